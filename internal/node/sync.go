// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Existing is a container that exists already, with its pod.
type Existing struct {
	Pod       Pod
	Container Container
	// Started is false before its first process is about to run.
	Started bool
}

// Synchronize rebuilds the ledger from what exists on the node. What a container was assigned is in its record, or in a
// change that was made after its creation; it is never refused, also when it exceeds a capacity. A container without
// a record, which was created while the plugin was away, gets what it asks for if there is room. Of two containers of
// one name the newer comes later. It builds anew and then swaps; whatever is not in its class yet is left to Reconcile.
func (n *Node) Synchronize(pods []Pod, containers []Existing) {
	pods = withoutDead(pods)
	n.mu.Lock()
	defer n.mu.Unlock()
	podScope := n.podScope() // also by what the old ledger has in use
	before := n.ledger
	owed := n.owed
	n.ledger, n.tracked, n.unproven = classes.NewLedger(), make(map[string]tracked, len(containers)), nil
	n.owed = map[string]classes.Holder{}
	if podScope {
		for _, pod := range pods {
			known, _ := before.Get(pod.ID)
			n.adoptPod(pod, known.Assignments)
		}
	}
	clear(n.stale)
	for _, e := range containers {
		if has := recordOf(e.Pod, e.Container); has != nil {
			n.adoptRecorded(e, has)
		}
	}
	for _, e := range containers {
		if _, adopted := n.ledger.Get(e.Container.ID); !adopted && e.Started {
			n.adoptUnrecorded(e)
		}
		n.noteStored(e.Container.ID, e.Container.Unified)
	}
	for id, request := range owed {
		if _, still := n.owed[id]; !still {
			n.accept(classes.Owner{PodUID: request.PodUID, Container: request.Container})
		}
	}
	n.signalRelease() // what was kept as long as nobody had told what runs
	n.changes.Keep(func(id string) bool {
		_, known := n.ledger.Get(id)
		return known || slices.ContainsFunc(pods, func(p Pod) bool { return p.ID == id })
	})
	if !n.info.Synchronized {
		n.info.Synchronized, n.info.Since = true, time.Now()
	}
	n.notify()
}

// withoutDead leaves out the sandboxes of a pod that have no process where another one has: runtimes keep dead ones until the kubelet removes
// them, and tell of them in any order. The cgroup is that of the live one.
func withoutDead(pods []Pod) []Pod {
	lives := map[string]bool{}
	for _, pod := range pods {
		lives[pod.UID] = lives[pod.UID] || pod.PID > 0
	}
	return slices.DeleteFunc(slices.Clone(pods), func(pod Pod) bool { return pod.PID <= 0 && lives[pod.UID] })
}

// sandbox is a pod with what it asks for.
type sandbox struct {
	id      string
	request classes.Holder
}

// HasPodScope says whether a resource of pods is configured, or was and is still in use.
func (n *Node) HasPodScope() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.podScope()
}

func (n *Node) podScope() bool {
	for name, b := range n.backends {
		if b.config.Scope == classes.PodScope && (!n.isGone(name) || len(n.ledger.Used(name)) > 0) {
			return true
		}
	}
	return false
}

// adoptPod takes a pod for what it asks for: the runtime has no record of a pod's classes. Where that is not what it was known to have, it
// may have been made without the plugin; Reconcile looks at the kernel for that.
func (n *Node) adoptPod(pod Pod, known []classes.Assignment) {
	wanted, err := n.catalog.Resolve(podRequest(pod))
	if err != nil {
		n.log.Warn("a running pod asks for classes that this node cannot give; it has those of pods that ask for none", "error", err)
		wanted = n.defaults(podHolder(pod, nil))
		n.owe(podHolder(pod, nil), podRequest(pod), err)
	}
	if changed, ok := n.changes.Get(pod.ID); ok {
		wanted = classes.Overlay(wanted, changed)
	}
	n.ledger.Adopt(podHolder(pod, wanted))
	n.track(pod, podTarget(pod), true, nil)
	if !slices.Equal(known, wanted) {
		n.unproven = append(n.unproven, sandbox{pod.ID, podRequest(pod).WithoutUnusedAnnotations()})
	}
}

// provePods takes those pods that the kernel does not show elsewhere for what they have, and gives the others their classes as far as
// there is room. Those that could not be looked at are left for the next time.
func (n *Node) provePods(ctx context.Context) {
	n.mu.Lock()
	unproven := n.unproven
	n.unproven = nil
	n.mu.Unlock()
	var unknown, late []sandbox
	for _, s := range unproven {
		holder, t, known := n.live(s.id)
		elsewhere, err := n.isElsewhere(ctx, t.target, holder.Assignments)
		switch {
		case known && err != nil:
			unknown = append(unknown, s)
		case known && elsewhere:
			late = append(late, s)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unproven = append(n.unproven, unknown...)
	n.admitPods(late)
}

// admitPods gives pods the classes that they have in the ledger, as far as there is room. The caller holds mu.
func (n *Node) admitPods(late []sandbox) {
	var holders []classes.Holding
	requests := map[string]classes.Holder{}
	for _, s := range late {
		if holder, lives := n.ledger.Get(s.id); lives {
			holders = append(holders, holder)
			requests[s.id] = s.request
			n.ledger.Release(s.id)
		}
	}
	for _, holder := range holders {
		err := n.ledger.Admit(holder, n.catalog)
		if err == nil {
			continue
		}
		n.owe(holder, requests[holder.ID], err)
		n.log.Warn("a running pod cannot have the classes that it asks for; it has those of pods that ask for none", "error", err)
		holder.Assignments = nil
		holder.Assignments = n.defaults(holder)
		n.ledger.Adopt(holder)
		n.notify()
	}
}

// isElsewhere says whether the kernel shows a target in another class than its own, the system default included.
func (n *Node) isElsewhere(ctx context.Context, target classes.Holder, assignments []classes.Assignment) (bool, error) {
	for _, a := range assignments {
		backend, err := n.backend(a.Resource)
		if err != nil {
			continue // nothing is there to look with
		}
		class, ok, err := backend.Observe(ctx, target, a.Class)
		if err != nil || ok && class != a.Class {
			return true, err
		}
	}
	return false, ctx.Err()
}

func (n *Node) adoptRecorded(e Existing, has []classes.Assignment) {
	wanted, err := n.catalog.Resolve(containerRequest(e.Pod, e.Container))
	if err == nil {
		wanted = classes.Overlay(wanted, lasting(has))
	} else {
		wanted = has
	}
	if changed, ok := n.changes.Get(e.Container.ID); ok {
		wanted = classes.Overlay(wanted, changed)
	}
	n.ledger.Adopt(containerHolder(e.Pod, e.Container, wanted))
	n.track(e.Pod, containerTarget(e.Pod, e.Container), e.Started, has)
	n.foundIn(e.Container.ID, has)
}

// adoptUnrecorded takes a container that was created in no class. It does not get into a class that is full. What it was changed to since,
// it keeps: that was admitted then.
func (n *Node) adoptUnrecorded(e Existing) {
	nothing := containerHolder(e.Pod, e.Container, nil)
	wanted, err := n.catalog.Resolve(containerRequest(e.Pod, e.Container))
	if err != nil {
		wanted = n.defaults(nothing)
	}
	changed, _ := n.changes.Get(e.Container.ID)
	asked := slices.DeleteFunc(slices.Clone(wanted), func(a classes.Assignment) bool {
		return slices.ContainsFunc(changed, func(c classes.Assignment) bool { return c.Resource == a.Resource })
	})
	if admitErr := n.ledger.Admit(containerHolder(e.Pod, e.Container, asked), n.catalog); admitErr != nil {
		wanted, err = n.defaults(nothing), errors.Join(err, admitErr)
	}
	if err != nil {
		n.log.Warn("a running container cannot have the classes that it asks for; it has those of containers that ask for none", "error", err)
		n.owe(nothing, containerRequest(e.Pod, e.Container), err)
	}
	holder := containerHolder(e.Pod, e.Container, classes.Overlay(wanted, changed))
	n.ledger.Adopt(holder)
	n.track(e.Pod, containerTarget(e.Pod, e.Container), true, nil)
	n.foundIn(holder.ID, nil)
}

// foundIn notes which classes a holder is in where they are not those that it should have. The caller holds mu.
func (n *Node) foundIn(id string, has []classes.Assignment) {
	holder, _ := n.ledger.Get(id)
	for _, want := range holder.Assignments {
		n.found(id, want, classOf(has, want.Resource))
	}
}

// lasting returns the assignments that hold for the life of a container. Those of a default follow the default (KEP-3008,
// "Implicit defaults").
func lasting(assignments []classes.Assignment) []classes.Assignment {
	return slices.DeleteFunc(slices.Clone(assignments), func(a classes.Assignment) bool { return a.Source == classes.SourceDefault })
}
