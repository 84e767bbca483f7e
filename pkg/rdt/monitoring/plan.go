// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"cmp"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// user is a group of this program that needs counters of memory bandwidth. It is the root group, the control group of a class, or the
// monitoring group of a container.
type user struct {
	group   string
	control string
	// container is the monitored container. It is nil for a control group.
	container *candidate
	has       resctrl.Assignments
	// last has the number of the last turn in which a container had a counter. It is nil without turns.
	last map[resctrl.Counter]int
}

// keeps reports whether the user keeps its counters. This is true for the root group: it does not belong to this
// program, so another program may have assigned its counters.
func (u user) keeps() bool { return u.group == resctrl.Root }

// change gives a counter to a user or takes it away. `user` is the index of the user.
type change struct {
	user     int
	counter  resctrl.Counter
	assigned bool
}

// planCounters returns the changes that share the counters of memory bandwidth between users. `free` has the number of
// counters that no group has, by cache. The changes that take away counters are the first ones.
//
// Counters of all transfers are more important than counters of transfers within a NUMA node: no user gets the second
// kind before all users have the first kind. For each kind, control groups come first, in the order of `users`. The
// containers share the rest evenly between classes, and between the pods of a class, as they share RMIDs. If a group is
// not a user, its counters are never taken away.
//
// If `anew` is true, the present counters of containers do not matter. Each counter goes to the containers that have
// waited longest for it.
func planCounters(users []user, free map[int]int, anew bool) (changes []change) {
	var later []change
	for cache, n := range free {
		for _, u := range users {
			for counter, assigned := range u.has {
				if counter.Domain == cache && assigned && !u.keeps() {
					n++
				}
			}
		}
		for _, event := range []resctrl.Event{resctrl.MBMTotal, resctrl.MBMLocal} {
			counter := resctrl.Counter{Event: event, Domain: cache}
			wanted := whoCounts(users, counter, anew, &n)
			for i, u := range users {
				has, known := u.has[counter]
				switch {
				case !known || has == wanted[i]:
				case has:
					changes = append(changes, change{i, counter, false})
				default:
					later = append(later, change{i, counter, true})
				}
			}
		}
	}
	return append(changes, later...)
}

// whoCounts returns the users that should have a counter, by index, and subtracts their number from `n`, the number of
// counters that can be given to users.
func whoCounts(users []user, counter resctrl.Counter, anew bool, n *int) map[int]bool {
	wanted := map[int]bool{}
	var candidates []candidate
	order := make([]int, len(users))
	for i := range users {
		order[i] = i
	}
	// Those that have waited longest for this counter come first.
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(users[a].last[counter], users[b].last[counter]) })
	var of []int
	for _, i := range order {
		u := users[i]
		has, known := u.has[counter]
		switch {
		case !known:
		case u.container != nil:
			c := *u.container
			c.monitored = has && !anew
			candidates, of = append(candidates, c), append(of, i)
		case has && u.keeps():
			wanted[i] = true
		case *n > 0:
			wanted[i] = true
			*n--
		}
	}

	s := newSharing(candidates)
	s.balance(*n)
	for i, c := range s.all {
		if c.monitored {
			wanted[of[i]] = true
			*n--
		}
	}
	return wanted
}
