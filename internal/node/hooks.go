// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// CreateContainer gives a container that is about to be created its classes, and says what the runtime must set for
// them. On error nothing is assigned. It works in memory only.
func (n *Node) CreateContainer(pod Pod, ctr Container) (classes.Adjustment, []classes.Assignment, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	assignments, err := n.catalog.Resolve(containerRequest(pod, ctr))
	holder := containerHolder(pod, ctr, assignments)
	if err == nil {
		err = n.ledger.Admit(holder, n.catalog)
	}
	if err != nil {
		return classes.Adjustment{}, nil, n.refuse(holder, err)
	}
	adjustment, err := n.adjust(holder)
	if err != nil {
		n.ledger.Release(ctr.ID)
		return classes.Adjustment{}, nil, n.refuse(holder, fmt.Errorf("%s: %w", describe(holder), err))
	}
	n.track(pod, containerTarget(pod, ctr), false, assignments)
	n.notify()
	return adjustment, assignments, nil
}

// adjust merges what the backends need for the classes of a new holder. The caller holds mu.
func (n *Node) adjust(holder classes.Holding) (classes.Adjustment, error) {
	var all classes.Adjustment
	for _, a := range holder.Assignments {
		if a.Class == classes.SystemDefault {
			continue
		}
		one, err := n.backends[a.Resource].Adjust(classes.SystemDefault, a.Class)
		if err != nil {
			return classes.Adjustment{}, step{resource: a.Resource, to: a.Class}.failed(err)
		}
		all = all.Merge(one)
	}
	return all, nil
}

// StartContainer notes the process of a container that is about to start. enforce, if there is anything to do, finishes and
// verifies its classes; on error the container must not be started. A container that was created while the plugin was
// away is refused if it asks for a class, since it was created without it: the kubelet makes a new one.
func (n *Node) StartContainer(pod Pod, ctr Container) (enforce func(context.Context) error, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	target := containerTarget(pod, ctr)
	if _, known := n.ledger.Get(ctr.ID); !known {
		if err := n.admitLate(pod, ctr); err != nil {
			return nil, n.refuse(containerHolder(pod, ctr, nil), err)
		}
	}
	t := n.tracked[ctr.ID]
	t.target, t.started = target, true
	n.tracked[ctr.ID] = t
	holder, _ := n.ledger.Get(ctr.ID)
	// What was created in another class has to be moved rather than verified.
	target.Starting = len(t.astray) == 0
	return n.enforcement(target, holder), nil
}

// errCreatedWithoutUs is returned for a container that was created without its classes.
var errCreatedWithoutUs = errors.New("the container was created while qos-nri-plugin was not connected to the runtime, " +
	"so without this class; it has to be created anew")

// admitLate gives a container that was created without the plugin what it can still have: the classes of defaults.
// The caller holds mu.
func (n *Node) admitLate(pod Pod, ctr Container) error {
	wanted, err := n.catalog.Resolve(containerRequest(pod, ctr))
	if err != nil {
		return err
	}
	holder := containerHolder(pod, ctr, wanted)
	for _, a := range wanted {
		if a.Class != classes.SystemDefault && a.Source != classes.SourceDefault {
			return fmt.Errorf("%s: class %q of %s: %w", describe(holder), a.Class, a.Resource, errCreatedWithoutUs)
		}
	}
	n.ledger.Adopt(holder)
	n.track(pod, containerTarget(pod, ctr), true, nil)
	n.foundIn(ctr.ID, nil)
	n.notify()
	return nil
}

// enforcement returns what brings a new holder into its classes, to be called without the lock; nil when it has none. The
// caller holds mu.
func (n *Node) enforcement(target classes.Holder, holder classes.Holding) func(context.Context) error {
	var steps []step
	for _, a := range holder.Assignments {
		if a.Class != classes.SystemDefault {
			// From the class to itself: its values may have changed since the creation, and the old ones are cleared then.
			steps = append(steps, step{resource: a.Resource, from: a.Class, to: a.Class})
		}
	}
	if len(steps) == 0 {
		n.accept(holder.Owner())
		return nil
	}
	n.setEnforcing(holder.ID, true)
	return func(ctx context.Context) error {
		err := n.enforceWithin(ctx, target, steps)
		n.mu.Lock()
		n.setEnforcing(holder.ID, false)
		n.mu.Unlock()
		if err != nil {
			return n.failed(holder, err)
		}
		n.arrived(holder.ID, steps)
		n.accepted(holder.Owner())
		return nil
	}
}

// setEnforcing notes that a hook is about to bring a holder into its classes, or has done so. The caller holds mu.
func (n *Node) setEnforcing(id string, enforcing bool) {
	if t, known := n.tracked[id]; known {
		t.enforcing = enforcing
		n.tracked[id] = t
	}
}

// mostStuck bounds the threads of this process that wait in a kernel that does not answer.
const mostStuck = 100

var errStuck = errors.New("the kernel has not answered for many containers before; see what its processes hang in")

// enforceWithin gives up waiting for the kernel when ctx ends. What goes on after that changes only what the runtime will end, and nobody
// is told of it.
func (n *Node) enforceWithin(ctx context.Context, target classes.Holder, steps []step) error {
	if n.stuck.Add(1) > mostStuck {
		n.stuck.Add(-1)
		return errStuck
	}
	done := make(chan error, 1)
	go func() {
		defer n.stuck.Add(-1)
		done <- n.enforceAll(ctx, target, steps)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	default:
		return fmt.Errorf("enforcing its classes: %w", context.Cause(ctx))
	}
}

func (n *Node) enforceAll(ctx context.Context, target classes.Holder, steps []step) error {
	for _, s := range steps {
		if err := n.enforce(ctx, target, s); err != nil {
			return err
		}
	}
	return nil
}

// failed notes that a holder could not be brought into its classes, and returns why.
func (n *Node) failed(holder classes.Holding, err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.refuse(holder, fmt.Errorf("%s: %w", describe(holder), err))
}

func (n *Node) enforce(ctx context.Context, target classes.Holder, s step) error {
	backend, err := n.backend(s.resource)
	if err != nil {
		return err
	}
	if err := backend.Enforce(ctx, target, s.from, s.to); err != nil {
		return s.failed(err)
	}
	return nil
}

func (n *Node) backend(resource string) (classes.Backend, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if b, ok := n.backends[resource]; ok {
		return b, nil
	}
	return nil, fmt.Errorf("%s is not configured any more: %w", resource, classes.ErrUnknownResource)
}

// Stop frees the slots of a container or pod sandbox that has stopped or is removed, by its ID. It may be called any
// number of times, for IDs that nobody knows too.
func (n *Node) Stop(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.release(id)
}

// release forgets a container or sandbox. The caller holds mu.
func (n *Node) release(id string) {
	holder, known := n.ledger.Get(id)
	if !known {
		return
	}
	n.ledger.Release(id)
	n.signalDrained(holder.Assignments)
	delete(n.tracked, id)
	delete(n.stale, id)
	n.settleDebt(id, holder.Owner())
	n.changes.Forget(id)
	n.notify()
}

// RunPod gives a pod that is about to run its pod-scope classes. enforce, if there is anything to do, brings the pod's
// cgroup into them; on error the pod must not run.
func (n *Node) RunPod(pod Pod) (enforce func(context.Context) error, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	assignments, err := n.catalog.Resolve(podRequest(pod))
	holder := podHolder(pod, assignments)
	if err == nil {
		err = n.ledger.Admit(holder, n.catalog)
	}
	if err != nil {
		return nil, n.refuse(holder, err)
	}
	n.track(pod, podTarget(pod), true, nil)
	for id, t := range n.tracked {
		if id != pod.ID && t.target.PodUID == pod.UID && t.target.Container == "" {
			n.release(id) // a sandbox before this one: it is dead, and the cgroup is this one's
		}
	}
	n.notify()
	return n.enforcement(podTarget(pod), holder), nil
}
