// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// ReasonClassRemoved is the Reason of an Eviction. It means that the class was removed from the class files, alone or
// together with its resource.
const ReasonClassRemoved = "ClassRemoved"

// Eviction describes a pod that is to be evicted, because the pod or one of its containers has a removed class.
type Eviction struct {
	Subject               qos.Subject
	PodNamespace, PodName string
	// Resource and Class name the assignment for which the pod is to be evicted.
	Resource, Class string
	// Reason is one word in CamelCase. Message is one line of text for people.
	Reason, Message string
}

// Evictions returns the eviction targets, sorted by namespace, pod and container: the containers and pods that requested
// a removed class, if the class's resource has onClassRemoved: evict. Restoring a class cancels its evictions, because
// the list is computed from the live configuration and the ledger.
//
// After a restart of the plugin, the list lacks the targets of two kinds of removed classes: those whose whole resource
// was removed before the restart, and those of pod scope.
func (s *View) Evictions() []Eviction {
	defer s.lock()()
	n := &s.node

	var list []Eviction
	listed := map[Eviction]bool{} // a container and its dead predecessor have the same owner, and are listed once
	for _, h := range n.table.all() {
		for _, a := range h.Assignments {
			if !n.live.isEvicted(a) {
				continue
			}
			if e := n.live.eviction(h.Holder, a); !listed[e] {
				listed[e] = true
				list = append(list, e)
			}
		}
	}
	return list
}

// isEvicted reports whether the holder of an assignment is to be evicted.
func (o Offering) isEvicted(a classes.Assignment) bool {
	// A removed resource keeps its last configuration, including the policy OnClassRemoved. If there are no class files
	// at all, nothing is evicted.
	evict := len(o.Config.Files) > 0 && o.Resources[a.Resource].Config.OnClassRemoved == classes.Evict
	return evict && a.IsRequested() && o.Drains(a)
}

func (o Offering) eviction(h classes.Holder, a classes.Assignment) Eviction {
	why := fmt.Sprintf("class %q of %s was removed from the class files, and its resource has onClassRemoved: evict", a.Class, a.Resource)
	if !o.Configured(a.Resource) {
		why = fmt.Sprintf("resource %s and its class %q were removed from the class files, and onClassRemoved was evict", a.Resource, a.Class)
	}
	return Eviction{
		Subject: h.Subject(), PodNamespace: h.PodNamespace, PodName: h.PodName, Resource: a.Resource, Class: a.Class,
		Reason: ReasonClassRemoved, Message: h.String() + ": " + why,
	}
}
