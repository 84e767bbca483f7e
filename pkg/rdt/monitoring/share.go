// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

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

// turn gives an RMID to the container whose ID is begin. If end is not empty, the container whose ID is end loses its RMID first.
type turn struct{ begin, end string }

// shareRMIDs returns the changes that share the RMIDs evenly between classes, and the RMIDs of a class evenly between the class's
// pods. The candidates are in the order of their creation. free is the number of RMIDs that no container has.
//
// A free RMID goes to the class with the fewest RMIDs, in this class to the pod with the fewest RMIDs, and in this pod to the
// oldest container. If no RMID is free, a class loses an RMID to another class that has at least two fewer. In the same way, a pod
// loses an RMID to another pod of its class. So the result is max-min fair, and no RMID moves back and forth. The container that
// loses its RMID is the newest one of the class or pod.
//
// The parameter most is the maximum number of RMIDs that shareRMIDs takes away from containers. If free is not 0, shareRMIDs takes
// none away. If free is positive, the kernel may still hold the RMIDs of removed groups, and removing another group would not help.
// If free is negative, other programs use RMIDs that are reserved for classes. An RMID that a container loses would then be
// reserved for classes, and no other container could get it.
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

// exchange returns the container that gets an RMID, and the container that loses this RMID. Both results are nil if the RMIDs
// are shared evenly.
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
// its RMID. A result is nil if there is no such container.
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
