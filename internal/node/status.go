// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"maps"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Status is a snapshot of what the node offers.
type Status struct {
	Resources []ResourceStatus
	Runtime   RuntimeInfo
	Config    ConfigStatus
	Refusals  Refusals
	// Mends counts what was put right since the process started.
	Mends map[Mend]uint64
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
	status := Status{Runtime: n.info, Config: n.config, Refusals: maps.Clone(n.refusals), Mends: maps.Clone(n.mends)}
	for _, offer := range n.told() {
		backend := n.backends[offer.Name].Status()
		status.Resources = append(status.Resources, ResourceStatus{
			Offer: offer, InUse: n.ledger.Used(offer.Name), Degraded: backend.Degraded,
			Conditions: slices.Concat(backend.Conditions, n.findings[offer.Name].condition()),
		})
	}
	return status
}

// told are the resources that are configured, and those that are not any more and in use still, without classes. The caller holds mu.
func (n *Node) told() []classes.Offer {
	offers := slices.Clone(n.catalog.Offers())
	for _, name := range slices.Sorted(maps.Keys(n.backends)) {
		if n.isGone(name) && len(n.ledger.Used(name)) > 0 {
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

// Draining counts the assignments of classes that are offered no more.
func (n *Node) Draining() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := 0
	for _, h := range n.ledger.Holdings() {
		for _, a := range h.Assignments {
			if a.Class != classes.SystemDefault && !n.offered(a) {
				count++
			}
		}
	}
	return count
}

// Drained is signalled when assignments of classes that are offered no more have ended.
func (n *Node) Drained() <-chan struct{} { return n.drained }

// signalDrained is told which assignments have ended. The caller holds mu.
func (n *Node) signalDrained(ended []classes.Assignment) {
	for _, a := range ended {
		if a.Class == classes.SystemDefault || n.offered(a) {
			continue
		}
		n.signalRelease()
	}
}

func (n *Node) signalRelease() {
	select {
	case n.drained <- struct{}{}:
	default: // signalled already
	}
}

func (n *Node) offered(a classes.Assignment) bool {
	offer, ok := n.catalog.Lookup(a.Resource)
	if !ok {
		return false
	}
	_, ok = offer.Class(a.Class)
	return ok
}
