// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Running is a container that runs already, with its pod.
type Running struct {
	Pod       Pod
	Container Container
}

// Synchronize rebuilds the ledger from what runs on the node: what a container was assigned is in its record, or in
// a change that was made after its creation. Of two containers of one name the newer comes later in running. What runs
// is never refused, also when it exceeds a capacity. It builds anew and then swaps. Whatever is not in its class yet is left to Converge.
func (n *Node) Synchronize(pods []Pod, running []Running) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ledger, n.tracked = classes.NewLedger(), make(map[string]tracked, len(running))
	n.pending = map[string][]step{}
	if n.podScope() {
		for _, pod := range pods {
			n.adoptPod(pod)
		}
	}
	for _, r := range running {
		n.adoptContainer(r.Pod, r.Container)
	}
	n.changes.Keep(func(id string) bool { _, known := n.ledger.Get(id); return known })
	if !n.info.Synchronized {
		n.info.Synchronized, n.info.Since = true, time.Now()
	}
	n.notify()
}

// HasPodScope says whether a resource of pods is configured.
func (n *Node) HasPodScope() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.podScope()
}

func (n *Node) podScope() bool {
	return slices.ContainsFunc(n.catalog.Offers(), func(o classes.Offer) bool { return o.Scope == classes.PodScope })
}

func (n *Node) adoptPod(pod Pod) {
	wanted, err := n.catalog.Resolve(podRequest(pod))
	if err != nil {
		n.log.Warn("running pod asks for classes that this node cannot give; it keeps the system default", "error", err)
	}
	if changed, ok := n.changes.Get(pod.ID); ok {
		wanted = overlay(wanted, changed)
	}
	// The runtime has no record of a pod's classes, so Converge enforces them again.
	n.adopt(pod, podHolder(pod, wanted), podTarget(pod), nil)
}

func (n *Node) adoptContainer(pod Pod, ctr Container) {
	wanted, err := n.catalog.Resolve(containerRequest(pod, ctr))
	has := recorded(ctr.Annotations)
	if err != nil && has == nil {
		n.log.Warn("running container asks for classes that this node cannot give; it keeps the system default", "error", err)
	}
	wanted = overlay(wanted, lasting(has))
	if changed, ok := n.changes.Get(ctr.ID); ok {
		wanted = overlay(wanted, changed)
	}
	n.adopt(pod, containerHolder(pod, ctr, wanted), containerTarget(pod, ctr), has)
}

// adopt takes a holder that runs already into the ledger, and leaves it to Converge when it is to be in other classes
// than the kernel has it in. The caller holds mu.
func (n *Node) adopt(pod Pod, holder classes.Holder, target classes.Target, enforced []classes.Assignment) {
	n.ledger.Adopt(holder)
	n.track(pod, target, true)
	if steps := stepsBetween(enforced, holder.Assignments); len(steps) > 0 {
		n.pending[holder.ID] = steps
	}
}

// lasting returns the assignments that hold for the life of a container. Those of a default follow the default (KEP-3008,
// "Implicit defaults").
func lasting(assignments []classes.Assignment) []classes.Assignment {
	return slices.DeleteFunc(slices.Clone(assignments), func(a classes.Assignment) bool { return a.Source == classes.SourceDefault })
}

// overlay returns base with the assignments of over in place of those for the same resource.
func overlay(base, over []classes.Assignment) []classes.Assignment {
	merged := slices.Clone(base)
	for _, a := range over {
		if i := slices.IndexFunc(merged, func(m classes.Assignment) bool { return m.Resource == a.Resource }); i >= 0 {
			merged[i] = a
		} else {
			merged = append(merged, a)
		}
	}
	return merged
}

// Converge brings what runs into the classes that it was found not to be in, one after another. It is to be called
// after Synchronize, outside of hooks.
func (n *Node) Converge(ctx context.Context) {
	n.changing.Lock()
	defer n.changing.Unlock()
	for id, steps := range n.takePending() {
		if ctx.Err() != nil {
			return
		}
		holder, t, known := n.live(id)
		if !known {
			continue
		}
		if err := n.take(ctx, t.target, steps); err != nil {
			n.log.Warn("a running container could not be brought into its class", "error", err, "container", describe(holder))
			n.giveUp(holder, steps)
		}
	}
}

func (n *Node) takePending() map[string][]step {
	n.mu.Lock()
	defer n.mu.Unlock()
	pending := n.pending
	n.pending = map[string][]step{}
	return pending
}

// giveUp notes that a holder stays in the classes that it was found in, so that what is reported is true.
func (n *Node) giveUp(holder classes.Holder, steps []step) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range steps {
		found := classes.Assignment{Resource: s.resource, Class: s.from, Source: classes.SourceAdopted}
		if s.from == s.to {
			found.Class = classes.SystemDefault // it was not in its class, and cannot be brought there
		}
		holder.Assignments = overlay(holder.Assignments, []classes.Assignment{found})
	}
	if _, known := n.ledger.Get(holder.ID); known {
		n.ledger.Adopt(holder)
		n.notify()
	}
}
