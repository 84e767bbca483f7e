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
	if err != nil {
		return classes.Adjustment{}, nil, n.refuse(err)
	}
	holder := containerHolder(pod, ctr, assignments)
	if err := n.ledger.Admit(holder, n.catalog); err != nil {
		return classes.Adjustment{}, nil, n.refuse(err)
	}
	adjustment, err := n.adjust(holder)
	if err != nil {
		n.ledger.Release(ctr.ID)
		return classes.Adjustment{}, nil, n.refuse(fmt.Errorf("%s: %w", describe(holder), err))
	}
	n.track(pod, containerTarget(pod, ctr), false)
	n.notify()
	return adjustment, assignments, nil
}

// adjust merges what the backends need for the classes of a new holder. The caller holds mu.
func (n *Node) adjust(holder classes.Holder) (classes.Adjustment, error) {
	var all classes.Adjustment
	for _, a := range holder.Assignments {
		if a.Class == classes.SystemDefault {
			continue
		}
		s := step{resource: a.Resource, to: a.Class}
		one, err := n.backends[a.Resource].Adjust(s.from, s.to)
		if err != nil {
			return classes.Adjustment{}, s.failed(err)
		}
		all = all.Merge(one)
	}
	return all, nil
}

// StartContainer finishes and verifies the classes of a container before its first instruction. On error it must not
// be started. A container that was created while the plugin was away is refused if it asks for a class, since it was
// created without it: the kubelet makes a new one.
func (n *Node) StartContainer(ctx context.Context, pod Pod, ctr Container) error {
	target := containerTarget(pod, ctr)
	target.Starting = true
	holder, known := n.starting(target)
	if !known {
		return n.adoptAtStart(pod, ctr)
	}
	return n.enforceNew(ctx, target, holder)
}

// starting notes the process of a container that is about to start, and returns what it holds.
func (n *Node) starting(target classes.Target) (classes.Holder, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	holder, known := n.ledger.Get(target.ID)
	if known {
		t := n.tracked[target.ID]
		t.target, t.started = target, true
		t.target.Starting = false
		n.tracked[target.ID] = t
	}
	return holder, known
}

// errCreatedWithoutUs is returned for a container that was created without its classes.
var errCreatedWithoutUs = errors.New("the container was created while qos-nri-plugin was not connected to the runtime, " +
	"so without this class; it has to be created anew")

func (n *Node) adoptAtStart(pod Pod, ctr Container) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	wanted, err := n.catalog.Resolve(containerRequest(pod, ctr))
	if err != nil {
		return n.refuse(err)
	}
	holder := containerHolder(pod, ctr, wanted)
	for _, a := range wanted {
		if a.Class != classes.SystemDefault && a.Source != classes.SourceDefault {
			return n.refuse(fmt.Errorf("%s: class %q of %s: %w", describe(holder), a.Class, a.Resource, errCreatedWithoutUs))
		}
	}
	n.adopt(pod, holder, containerTarget(pod, ctr), nil)
	n.notify()
	return nil
}

// enforceNew brings what is new into the classes that it holds, outside of the lock.
func (n *Node) enforceNew(ctx context.Context, target classes.Target, holder classes.Holder) error {
	for _, a := range holder.Assignments {
		if a.Class == classes.SystemDefault {
			continue
		}
		if err := n.enforce(ctx, target, step{resource: a.Resource, to: a.Class}); err != nil {
			err = fmt.Errorf("%s: %w", describe(holder), err)
			n.countRefusal(err)
			return err
		}
	}
	return nil
}

func (n *Node) enforce(ctx context.Context, target classes.Target, s step) error {
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
	if _, known := n.ledger.Get(id); !known {
		return
	}
	n.ledger.Release(id)
	delete(n.tracked, id)
	delete(n.pending, id)
	n.changes.Forget(id)
	n.notify()
}

// RunPod gives a pod that is about to run its pod-scope classes, and enforces them on its cgroup.
func (n *Node) RunPod(ctx context.Context, pod Pod) error {
	holder, err := n.admitPod(pod)
	if err != nil {
		return err
	}
	if err := n.enforceNew(ctx, podTarget(pod), holder); err != nil {
		n.Stop(pod.ID)
		return err
	}
	return nil
}

func (n *Node) admitPod(pod Pod) (classes.Holder, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	assignments, err := n.catalog.Resolve(podRequest(pod))
	if err != nil {
		return classes.Holder{}, n.refuse(err)
	}
	holder := podHolder(pod, assignments)
	if err := n.ledger.Admit(holder, n.catalog); err != nil {
		return classes.Holder{}, n.refuse(err)
	}
	n.track(pod, podTarget(pod), true)
	n.notify()
	return holder, nil
}

// refuse counts a refusal and returns it. The caller holds mu.
func (n *Node) refuse(err error) error {
	n.refusals[refusalReason(err)]++
	n.notify()
	return err
}

func (n *Node) countRefusal(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.refuse(err)
}

// refusalReason is the word under which a refusal is counted.
func refusalReason(err error) string {
	for _, reason := range []struct {
		word string
		err  error
	}{
		{"ClassFull", classes.ErrClassFull},
		{"UnknownClass", classes.ErrUnknownClass},
		{"UnknownResource", classes.ErrUnknownResource},
		{"Unavailable", classes.ErrUnavailable},
		{"Contradiction", classes.ErrContradiction},
		{"BadRequest", classes.ErrBadRequest},
	} {
		if errors.Is(err, reason.err) {
			return reason.word
		}
	}
	return "EnforcementFailed"
}
