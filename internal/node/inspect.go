// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// What Inspect and Gather put right, as counted in Status.
const (
	// MendedConfiguration is what belongs to the classes: resctrl groups, disks that classes name.
	MendedConfiguration = "configuration"
	// MendedAssignment is a container or pod that was not in its class.
	MendedAssignment = "assignment"
	// MendedThreads is a container that had threads outside of its class, like those of a process that was started in it later.
	MendedThreads = "threads"
)

// Mend is something that was put right.
type Mend struct {
	// Resource is its name, What one of the words above.
	Resource, What string
}

// finding is what Inspect found of a resource's configuration.
type finding struct {
	count uint64
	last  string
	at    time.Time
	// failed says that it could not be put right yet.
	failed bool
}

// Inspect compares the machine with what should be, and puts right what differs: what the backends have applied, then whatever runs
// and all of its threads. A resource that cannot be put right is withdrawn, and offered again once it can. It is to be called now
// and then, and when devices come or go.
func (n *Node) Inspect(ctx context.Context) {
	if err := n.changing.take(ctx); err != nil {
		return
	}
	defer n.changing.leave()
	for _, name := range n.backendNames() {
		n.inspect(ctx, name)
	}
	n.reconcile(ctx, n.countAssignments)
	n.gather(ctx, everyContainer)
}

func (n *Node) backendNames() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.backends))
}

// inspect puts right what belongs to the classes of one resource.
func (n *Node) inspect(ctx context.Context, name string) {
	n.mu.Lock()
	b, gone := n.backends[name], n.isGone(name)
	n.mu.Unlock()
	var mended classes.Drift
	var err error
	if gone || b.unavailable == nil {
		mended, err = b.Repair(ctx)
	} else if err = b.Check(ctx, b.config.Backend); err == nil {
		err = b.Apply(ctx, b.config.Backend)
	}
	switch {
	case len(mended.Found) > 0:
		n.foundDamage(name, mended, err)
	case err == nil:
		n.foundRepaired(name)
	}
	if mended.DevicesGone {
		n.mu.Lock()
		n.noteGone(name)
		n.mu.Unlock()
	}
	n.setUnavailable(name, unavailableBy(err))
}

// unavailableBy makes any error a reason why a resource cannot be offered.
func unavailableBy(err error) *classes.Unavailable {
	var unavailable *classes.Unavailable
	if err == nil || errors.As(err, &unavailable) {
		return unavailable
	}
	return &classes.Unavailable{Reason: "NotApplied", Message: fmt.Sprintf("the classes cannot be applied on this machine as it is now: %v", err)}
}

// foundDamage notes what was not as it had been left.
func (n *Node) foundDamage(name string, mended classes.Drift, err error) {
	found := strings.Join(mended.Found, "; ")
	if err == nil {
		n.log.Warn("the machine was not as it had been left; it is put right", "resource", name, "found", found)
	} else {
		n.log.Error("the machine was not as it had been left, and cannot be put right", "resource", name, "found", found, "error", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.findings[name] = finding{count: n.findings[name].count + 1, last: found, at: n.now(), failed: err != nil}
	if err == nil {
		n.mends[Mend{name, MendedConfiguration}]++
	}
	n.notify()
}

// foundRepaired notes that what could not be put right at first is right now.
func (n *Node) foundRepaired(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f := n.findings[name]; f.failed {
		f.failed = false
		n.findings[name] = f
		n.mends[Mend{name, MendedConfiguration}]++
	}
}

// condition tells of findings; nil without any.
func (f finding) condition() []classes.Condition {
	if f.count == 0 {
		return nil
	}
	reason := "PutRight"
	if f.failed {
		reason = "NotPutRight"
	}
	return []classes.Condition{{Type: "KernelStateKept", Healthy: !f.failed, Reason: reason, Message: fmt.Sprintf(
		"%d times something was found not as it had been left; the last time, at %s: %s", f.count, f.at.UTC().Format(time.RFC3339), f.last)}}
}

// setUnavailable withdraws a resource that is offered, or offers it again.
func (n *Node) setUnavailable(name string, why *classes.Unavailable) {
	n.mu.Lock()
	defer n.mu.Unlock()
	b := n.backends[name]
	if same := b.unavailable == nil && why == nil || b.unavailable != nil && why != nil && *b.unavailable == *why; same {
		return
	}
	b.unavailable = why
	n.backends[name] = b
	offers := slices.Clone(n.catalog.Offers())
	for i := range offers {
		if offers[i].Name == name {
			offers[i].Unavailable = why
		}
	}
	n.catalog = classes.NewCatalog(offers)
	if why == nil {
		n.log.Info("a resource is on this machine again", "resource", name)
	} else {
		n.log.Warn("a resource is not on this machine any more", "resource", name, "reason", why.Reason, "message", why.Message)
	}
	n.notify()
}

// countAssignments counts steps that were needed to bring what runs into its classes.
func (n *Node) countAssignments(holder classes.Holding, steps []step) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range steps {
		n.mends[Mend{s.resource, MendedAssignment}]++
		n.log.Warn("was not in its class; it is again", "container", describe(holder), "resource", s.resource, "was", s.from, "is", s.to)
	}
}
