// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// candidate is a running container that is to be monitored.
type candidate struct {
	id, class, pod string
	monitored      bool
}

// turn gives an RMID to the container with the ID `begin`. If `end` is not empty, the container with the ID `end` loses
// its RMID first.
type turn struct{ begin, end string }

// shareRMIDs returns the changes that share the RMIDs evenly between classes, and the RMIDs of a class evenly between the class's
// pods. The candidates are in the order of their creation. `free` is the number of RMIDs that no container has.
//
// A free RMID goes to the class with the fewest RMIDs, in this class to the pod with the fewest RMIDs, and in this pod to the
// oldest container. If no RMID is free, a class loses an RMID to another class that has at least two fewer. In the same way, a pod
// loses an RMID to another pod of its class. So the result is max-min fair, and no RMID moves back and forth. The container that
// loses its RMID is the newest one of the class or pod.
//
// The parameter `most` is the maximum number of RMIDs that shareRMIDs takes away from containers. If `free` is not 0, shareRMIDs takes
// none away. If `free` is positive, the kernel may still hold the RMIDs of removed groups, and removing another group would not help.
// If `free` is negative, other programs use RMIDs that are reserved for classes. An RMID that a container loses would then be
// reserved for classes, and no other container could get it.
func shareRMIDs(candidates []candidate, free, most int) (turns []turn) {
	s := newSharing(candidates)
	if free == 0 {
		return s.exchange(most)
	}
	return s.give(free)
}

// sharing has the candidates in the order of their creation, and the number of RMIDs of each class and pod.
type sharing struct {
	all     []candidate
	classes map[string]int
	pods    map[podOfClass]int
}

type podOfClass struct{ class, pod string }

func newSharing(candidates []candidate) *sharing {
	s := &sharing{slices.Clone(candidates), map[string]int{}, map[podOfClass]int{}}
	for i, c := range s.all {
		if c.monitored {
			s.set(&s.all[i], true)
		}
	}
	return s
}

func (s *sharing) set(c *candidate, monitored bool) {
	by := -1
	if monitored {
		by = 1
	}
	c.monitored = monitored
	s.classes[c.class] += by
	s.pods[podOfClass{c.class, c.pod}] += by
}

// give gives up to `n` free RMIDs to containers.
func (s *sharing) give(n int) (turns []turn) {
	for range n {
		to, _ := s.extremes(everyone)
		if to == nil {
			break
		}
		s.set(to, true)
		turns = append(turns, turn{begin: to.id})
	}
	return turns
}

// exchange moves up to `most` RMIDs, until they are shared evenly.
func (s *sharing) exchange(most int) (turns []turn) {
	for range most {
		to, from := s.uneven()
		if to == nil {
			break
		}
		s.set(from, false)
		s.set(to, true)
		turns = append(turns, turn{begin: to.id, end: from.id})
	}
	return turns
}

// uneven returns the container that gets an RMID, and the container that loses this RMID. Both results are nil if the RMIDs
// are shared evenly.
func (s *sharing) uneven() (to, from *candidate) {
	class := func(c *candidate) int { return s.classes[c.class] }
	to, from = s.extremes(everyone)
	if to != nil && from != nil && class(from)-class(to) > 1 {
		return to, from
	}

	pod := func(c *candidate) int { return s.pods[podOfClass{c.class, c.pod}] }
	for _, name := range slices.Sorted(maps.Keys(s.classes)) {
		to, from = s.extremes(func(c candidate) bool { return c.class == name })
		if to != nil && from != nil && pod(from)-pod(to) > 1 {
			return to, from
		}
	}
	return nil, nil
}

// balance shares `n` counters evenly. Containers keep the counters that they have, as long as the shares are even.
func (s *sharing) balance(n int) {
	for i := range s.all {
		if s.all[i].monitored {
			n--
		}
	}
	for ; n < 0; n++ {
		_, from := s.extremes(everyone)
		s.set(from, false)
	}
	s.give(n)
	s.exchange(math.MaxInt)
}

func everyone(candidate) bool { return true }

// extremes returns the unmonitored container that gets the next RMID, and the monitored container that is the first to lose
// its RMID. A result is nil if there is no such container.
func (s *sharing) extremes(among func(candidate) bool) (to, from *candidate) {
	fewer := func(a, b *candidate) bool {
		byPod := cmp.Compare(s.pods[podOfClass{a.class, a.pod}], s.pods[podOfClass{b.class, b.pod}])
		return cmp.Or(cmp.Compare(s.classes[a.class], s.classes[b.class]), byPod) < 0
	}
	for i := range s.all {
		c := &s.all[i]
		switch {
		case !among(*c):
		case !c.monitored && (to == nil || fewer(c, to)): // the oldest one of several
			to = c
		case c.monitored && (from == nil || !fewer(c, from)): // the newest one of several
			from = c
		}
	}
	return to, from
}
