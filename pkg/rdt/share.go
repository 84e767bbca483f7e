// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"cmp"
	"maps"
	"slices"
)

// candidate is a running container that is to be monitored.
type candidate struct {
	id, class, pod string
	monitored      bool
}

// turn gives an RMID to the container begin. If end is not empty, this container loses its RMID first.
type turn struct{ begin, end string }

// shareRMIDs returns the changes that share the RMIDs evenly between classes, and the RMIDs of a class evenly between the class's
// pods. The candidates are in the order of their creation. free is the number of RMIDs that no container has.
//
// Free RMIDs go to the class that has the fewest, there to the pod that has the fewest, and there to the oldest container. If no
// RMID is free, a class, or a pod among the pods of its class, loses an RMID to another one that has at least two fewer. So the
// result is max-min fair, and no RMID moves back and forth. The newest container of the class or pod loses its RMID.
//
// shareRMIDs takes away at most as many RMIDs as most. While RMIDs are free, it takes away none: the kernel may not have freed those of
// removed groups yet, and then another removed group does not help. A negative free means that other programs use RMIDs that
// are reserved for classes. Then an RMID that is taken away would not become free for a container.
func shareRMIDs(candidates []candidate, free, most int) (turns []turn) {
	s := newSharing(candidates)
	for range free {
		to, _ := s.extremes(s.all)
		if to == nil {
			break
		}
		s.set(to, true)
		turns = append(turns, turn{begin: to.id})
	}
	if free != 0 {
		return turns
	}

	for range most {
		to, from := s.exchange()
		if to == nil {
			break
		}
		s.set(from, false)
		s.set(to, true)
		turns = append(turns, turn{begin: to.id, end: from.id})
	}
	return turns
}

// sharing has the number of RMIDs of each class and pod.
type sharing struct {
	all     []*sharer
	classes map[string]int
	pods    map[podOfClass]int
}

type podOfClass struct{ class, pod string }

// sharer is a candidate with its position in the order of creation.
type sharer struct {
	candidate
	position int
}

func newSharing(candidates []candidate) *sharing {
	s := &sharing{classes: map[string]int{}, pods: map[podOfClass]int{}}
	for i, c := range candidates {
		s.all = append(s.all, &sharer{c, i})
		s.count(c, 0)
		if c.monitored {
			s.count(c, 1)
		}
	}
	return s
}

func (s *sharing) count(c candidate, by int) {
	s.classes[c.class] += by
	s.pods[podOfClass{c.class, c.pod}] += by
}

func (s *sharing) set(c *sharer, monitored bool) {
	c.monitored = monitored
	by := -1
	if monitored {
		by = 1
	}
	s.count(c.candidate, by)
}

// class and pod return the number of RMIDs of a container's class, and of its pod in this class.
func (s *sharing) class(c *sharer) int { return s.classes[c.class] }
func (s *sharing) pod(c *sharer) int   { return s.pods[podOfClass{c.class, c.pod}] }

// exchange returns the container that gets the RMID of another one, and the container that loses it. They are nil if the RMIDs are
// shared evenly.
func (s *sharing) exchange() (to, from *sharer) {
	to, from = s.extremes(s.all)
	if to != nil && from != nil && s.class(from)-s.class(to) > 1 {
		return to, from
	}

	for _, class := range slices.Sorted(maps.Keys(s.classes)) {
		to, from = s.extremes(filter(s.all, func(c *sharer) bool { return c.class == class }))
		if to != nil && from != nil && s.pod(from)-s.pod(to) > 1 {
			return to, from
		}
	}
	return nil, nil
}

// extremes returns the unmonitored container that gets the next RMID, and the monitored container that is the first to lose
// one. They are nil if there is none.
func (s *sharing) extremes(among []*sharer) (to, from *sharer) {
	compare := func(a, b *sharer) int {
		return cmp.Or(cmp.Compare(s.class(a), s.class(b)), cmp.Compare(s.pod(a), s.pod(b)), cmp.Compare(a.position, b.position))
	}
	if waiting := filter(among, func(c *sharer) bool { return !c.monitored }); len(waiting) > 0 {
		to = slices.MinFunc(waiting, compare)
	}
	if monitored := filter(among, func(c *sharer) bool { return c.monitored }); len(monitored) > 0 {
		from = slices.MaxFunc(monitored, compare)
	}
	return to, from
}

func filter(all []*sharer, selected func(*sharer) bool) (found []*sharer) {
	for _, c := range all {
		if selected(c) {
			found = append(found, c)
		}
	}
	return found
}
