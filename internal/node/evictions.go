// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// ReasonClassRemoved is the reason of an Eviction whose class was taken out of the class files, alone or with its whole resource.
const ReasonClassRemoved = "ClassRemoved"

// Eviction is a container, or a pod, whose pod is to be evicted.
type Eviction struct {
	Owner                 classes.Owner
	PodNamespace, PodName string
	// Resource and Class are what it has, and shall not have any more.
	Resource, Class string
	// Reason is a word in CamelCase, Message a line for people.
	Reason, Message string
}

// Evictions returns who is to be evicted, by namespace, pod and container: what asked for a class and has it, when the class was taken
// out of class files that say so. Who has a default follows the default. It is what the class files in force and the ledger come to
// now, so a class that comes back takes it back. After a restart nothing is known of a resource that is gone as a whole, and of a
// class that is gone no pod is known to have it as its own: what is left of these is not evicted.
func (n *Node) Evictions() []Eviction {
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []Eviction
	listed := map[Eviction]bool{} // a container and its dead predecessor are one owner
	for _, h := range n.ledger.Holdings() {
		for _, a := range h.Assignments {
			if !n.isEvicted(a) {
				continue
			}
			if e := n.eviction(h, a); !listed[e] {
				listed[e] = true
				list = append(list, e)
			}
		}
	}
	return list
}

// isEvicted says whether who has an assignment is to be evicted. The caller holds mu.
func (n *Node) isEvicted(a classes.Assignment) bool {
	asked := a.Class != classes.SystemDefault && a.Source != classes.SourceDefault && a.Source != classes.SourceNone
	// The backend of a resource that is gone has the configuration that was its last. Without any class file nothing was said.
	return asked && !n.offered(a) && len(n.config.Files) > 0 && n.backends[a.Resource].config.OnClassRemoved == classes.Evict
}

// eviction says who is evicted, and why. The caller holds mu.
func (n *Node) eviction(h classes.Holding, a classes.Assignment) Eviction {
	what := fmt.Sprintf("class %q of %s was taken out of the class files, which say onClassRemoved: evict", a.Class, a.Resource)
	if n.isGone(a.Resource) {
		what = fmt.Sprintf("%s was taken out of the class files, with class %q; they said onClassRemoved: evict", a.Resource, a.Class)
	}
	return Eviction{
		Owner: h.Owner(), PodNamespace: h.PodNamespace, PodName: h.PodName, Resource: a.Resource, Class: a.Class,
		Reason: ReasonClassRemoved, Message: describe(h) + ": " + what,
	}
}
