// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Draining counts the assignments of classes that are not offered any more.
func (s *Store) Draining() (count int) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, h := range s.ledger.Holdings() {
		for _, a := range h.Assignments {
			if s.drains(a) {
				count++
			}
		}
	}
	return count
}

func (s *Store) drains(a classes.Assignment) bool {
	return a.Class != classes.SystemDefault && !s.offered(a)
}

// Drained is signalled when assignments of classes that are not offered any more have ended.
func (s *Store) Drained() <-chan struct{} { return s.drained }

// signalDrained signals Drained if one of the ended assignments was draining. The caller holds mu.
func (s *Store) signalDrained(ended []classes.Assignment) {
	for _, a := range ended {
		if s.drains(a) {
			s.signalRelease()
		}
	}
}

func (s *Store) signalRelease() {
	select {
	case s.drained <- struct{}{}:
	default: // it is signalled already
	}
}

// ReasonClassRemoved is the reason of an Eviction whose class was removed from the class files, alone or with its whole resource.
const ReasonClassRemoved = "ClassRemoved"

// Eviction is a container, or a pod, whose pod is to be evicted.
type Eviction struct {
	Owner                 classes.Owner
	PodNamespace, PodName string
	// Resource and Class are the assignment that has to end.
	Resource, Class string
	// Reason is a word in CamelCase, Message a line for people.
	Reason, Message string
}

// Evictions returns the eviction targets, sorted by namespace, pod and container. A target has a class that it requested, and the
// class was removed from class files with onClassRemoved: evict. Holders of a default follow the default instead. The list is
// computed from the live configuration and the ledger, so restoring a class cancels its evictions.
//
// After a restart of the plugin, pods are not evicted if the whole resource was removed before, or if the class is of pod scope:
// the configuration of removed resources and the requests for removed classes of pod scope are lost.
func (s *Store) Evictions() []Eviction {
	s.mu.Lock()
	defer s.mu.Unlock()

	var list []Eviction
	listed := map[Eviction]bool{} // a container and its dead predecessor are one owner
	for _, h := range s.ledger.Holdings() {
		for _, a := range h.Assignments {
			if !s.isEvicted(a) {
				continue
			}
			if e := s.eviction(h.Holder, a); !listed[e] {
				listed[e] = true
				list = append(list, e)
			}
		}
	}
	return list
}

// isEvicted reports whether the holder of an assignment is to be evicted. The caller holds mu.
func (s *Store) isEvicted(a classes.Assignment) bool {
	// A removed resource keeps its last configuration. Without any class file the policy is unknown.
	evict := len(s.config.Files) > 0 && s.resources[a.Resource].Config.OnClassRemoved == classes.Evict
	return evict && isRequested(a) && s.drains(a)
}

func (s *Store) eviction(h classes.Holder, a classes.Assignment) Eviction {
	why := fmt.Sprintf("class %q of %s was removed from the class files, which say onClassRemoved: evict", a.Class, a.Resource)
	if !s.configured(a.Resource) {
		why = fmt.Sprintf("%s was removed from the class files, with class %q; they said onClassRemoved: evict", a.Resource, a.Class)
	}
	return Eviction{
		Owner: h.Owner(), PodNamespace: h.PodNamespace, PodName: h.PodName, Resource: a.Resource, Class: a.Class,
		Reason: ReasonClassRemoved, Message: h.String() + ": " + why,
	}
}
