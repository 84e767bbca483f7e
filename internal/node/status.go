// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Status is a snapshot of what the node offers.
type Status struct {
	Resources []ResourceStatus
	Runtime   RuntimeInfo
	Config    ConfigStatus
	Refusals  Refusals
}

// ResourceStatus is one resource, with what is in use of it.
type ResourceStatus struct {
	classes.Offer
	// InUse is the number of assignments by class; classes that drain, being gone from the configuration, included.
	InUse      map[string]int
	Conditions []classes.Condition
	Degraded   map[string]string
}

// Status returns what the node offers now.
func (n *Node) Status() Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	status := Status{Runtime: n.info, Config: n.config, Refusals: maps.Clone(n.refusals)}
	holders := n.ledger.Holders()
	for _, offer := range append(n.catalog.Offers(), n.gone()...) {
		used := inUse(holders, offer.Name)
		if n.isGone(offer.Name) && len(used) == 0 {
			continue
		}
		backend := n.backends[offer.Name].Status()
		status.Resources = append(status.Resources, ResourceStatus{
			Offer: offer, InUse: used, Conditions: backend.Conditions, Degraded: backend.Degraded,
		})
	}
	return status
}

// gone are the resources that are not configured any more, without classes. The caller holds mu.
func (n *Node) gone() []classes.Offer {
	var offers []classes.Offer
	for _, name := range slices.Sorted(maps.Keys(n.backends)) {
		if n.isGone(name) {
			resource := n.backends[name].config.Resource
			offers = append(offers, classes.Offer{Resource: classes.Resource{Name: name, Scope: resource.Scope, Mutable: resource.Mutable}})
		}
	}
	return offers
}

func (n *Node) isGone(resource string) bool {
	_, configured := n.catalog.Lookup(resource)
	return !configured
}

// inUse counts the owners that hold each class of a resource.
func inUse(holders []classes.Holder, resource string) map[string]int {
	owners := map[string]map[classes.Owner]bool{}
	for _, h := range holders {
		class := classOf(h.Assignments, resource)
		if class == classes.SystemDefault {
			continue
		}
		if owners[class] == nil {
			owners[class] = map[classes.Owner]bool{}
		}
		owners[class][h.Owner] = true
	}
	counts := make(map[string]int, len(owners))
	for class, of := range owners {
		counts[class] = len(of)
	}
	return counts
}

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

// Assignments returns every pod that runs with the class of every resource, by namespace and name.
func (n *Node) Assignments() []PodAssignments {
	n.mu.Lock()
	holders, offers := n.ledger.Holders(), n.catalog.Offers()
	sandboxes := make(map[string]string, len(n.tracked))
	for id, t := range n.tracked {
		sandboxes[id] = t.sandbox
	}
	n.mu.Unlock()
	pods := map[string]*PodAssignments{}
	for _, h := range holders {
		pod := pods[h.Owner.PodUID]
		if pod == nil {
			pod = &PodAssignments{UID: h.Owner.PodUID, Namespace: h.PodNamespace, Name: h.PodName, SandboxID: sandboxes[h.ID]}
			pods[h.Owner.PodUID] = pod
		}
		if h.Owner.Container == "" {
			pod.Assignments = complete(h.Assignments, offers, classes.PodScope)
			continue
		}
		pod.Containers = append(pod.Containers, ContainerAssignments{
			ID: h.ID, Name: h.Owner.Container, Assignments: complete(h.Assignments, offers, classes.ContainerScope),
		})
	}
	sorted := make([]PodAssignments, 0, len(pods))
	for _, pod := range pods {
		slices.SortFunc(pod.Containers, compareContainers)
		sorted = append(sorted, *pod)
	}
	slices.SortFunc(sorted, comparePods)
	return sorted
}

// Container returns what the newest container of an owner has; ok is false when there is none that runs.
func (n *Node) Container(owner classes.Owner) (ctr ContainerAssignments, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h, _, err := n.holderOf(owner)
	if err != nil {
		return ContainerAssignments{}, false
	}
	assignments := complete(h.Assignments, n.catalog.Offers(), classes.ContainerScope)
	return ContainerAssignments{ID: h.ID, Name: owner.Container, Assignments: assignments}, true
}

// complete adds the resources that were configured after a holder got its assignments.
func complete(assignments []classes.Assignment, offers []classes.Offer, scope classes.Scope) []classes.Assignment {
	var missing []classes.Assignment
	for _, offer := range offers {
		if offer.Scope == scope && !slices.ContainsFunc(assignments, func(a classes.Assignment) bool { return a.Resource == offer.Name }) {
			missing = append(missing, classes.Assignment{Resource: offer.Name})
		}
	}
	return append(slices.Clone(assignments), missing...)
}

func compareContainers(a, b ContainerAssignments) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
}

func comparePods(a, b PodAssignments) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.UID, b.UID))
}

// Draining counts the assignments of classes that are offered no more.
func (n *Node) Draining() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := 0
	for _, h := range n.ledger.Holders() {
		for _, a := range h.Assignments {
			if a.Class != classes.SystemDefault && !n.offered(a) {
				count++
			}
		}
	}
	return count
}

func (n *Node) offered(a classes.Assignment) bool {
	offer, ok := n.catalog.Lookup(a.Resource)
	if !ok {
		return false
	}
	_, ok = offer.Class(a.Class)
	return ok
}
