// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// PodAssignments is a pod with what it and its containers have.
type PodAssignments struct {
	UID, Namespace, Name string
	// SandboxID is the runtime's.
	SandboxID string
	// Assignments are those of pod-scope resources.
	Assignments []classes.Assignment
	Containers  []ContainerAssignments
}

// ContainerAssignments is what a container has: the class of every resource, the system default included.
type ContainerAssignments struct {
	ID, Name    string
	Assignments []classes.Assignment
}

// Assignments returns every pod that runs with the class of every resource, by namespace and name. What is not in the class
// that it should have is told as it is.
func (n *Node) Assignments() []PodAssignments {
	n.mu.Lock()
	holders, offers := n.ledger.Holdings(), n.told()
	known := make(map[string]tracked, len(n.tracked))
	for id, t := range n.tracked {
		known[id] = t
	}
	n.mu.Unlock()
	pods := map[string]*PodAssignments{}
	newest := map[string]uint64{} // number of the newest sandbox, by pod
	for _, h := range holders {
		t, uid := known[h.ID], h.Owner().PodUID
		pod := pods[uid]
		if pod == nil {
			pod = &PodAssignments{UID: uid, Namespace: h.PodNamespace, Name: h.PodName, SandboxID: t.sandbox}
			pods[uid] = pod
		}
		if h.Owner().Container != "" {
			pod.Containers = append(pod.Containers, containerAssignments(h, t, offers))
		} else if t.number > newest[uid] {
			newest[uid], pod.SandboxID = t.number, t.sandbox
			pod.Assignments = complete(h, t, offers, classes.PodScope)
		}
	}
	sorted := make([]PodAssignments, 0, len(pods))
	for _, pod := range pods {
		slices.SortFunc(pod.Containers, compareContainers)
		sorted = append(sorted, *pod)
	}
	slices.SortFunc(sorted, comparePods)
	return sorted
}

// Synchronized says whether the runtime has told all that runs, and tells what is new.
func (n *Node) Synchronized() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.info.Synchronized
}

// Container returns what the newest container of an owner has, or, for an owner without a container, what its pod has itself; ok is
// false when there is none that runs.
func (n *Node) Container(owner classes.Owner) (ctr ContainerAssignments, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h, t, err := n.holderOf(owner)
	if err != nil {
		return ContainerAssignments{}, false
	}
	if owner.Container == "" {
		return ContainerAssignments{ID: h.ID, Assignments: complete(h, t, n.told(), classes.PodScope)}, true
	}
	return containerAssignments(h, t, n.told()), true
}

func containerAssignments(h classes.Holding, t tracked, offers []classes.Offer) ContainerAssignments {
	return ContainerAssignments{ID: h.ID, Name: h.Owner().Container, Assignments: complete(h, t, offers, classes.ContainerScope)}
}

// complete returns what a holder has of every resource: also of those that were configured after it got its assignments,
// and as it is where that is not as it should be.
func complete(h classes.Holding, t tracked, offers []classes.Offer, scope classes.Scope) []classes.Assignment {
	all := slices.Clone(h.Assignments)
	for i, a := range all {
		if class, astray := t.astray[a.Resource]; astray {
			all[i] = classes.Assignment{Resource: a.Resource, Class: class, Source: classes.SourceAdopted}
		}
	}
	for _, offer := range offers {
		if offer.Scope == scope && !slices.ContainsFunc(h.Assignments, func(a classes.Assignment) bool { return a.Resource == offer.Name }) {
			all = append(all, classes.Assignment{Resource: offer.Name})
		}
	}
	return all
}

func compareContainers(a, b ContainerAssignments) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
}

func comparePods(a, b PodAssignments) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.UID, b.UID))
}
