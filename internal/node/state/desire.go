// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// maxPendingSize is the maximum size, in bytes, of the annotations that the store keeps for a pending request.
const maxPendingSize = 16 << 10

func errCreatedWithout(err error) error {
	return fmt.Errorf("%w; the container or pod was created without the class, because qos-nri-plugin was not connected to the runtime", err)
}

// requestOf returns a copy of a holder that has only the annotations that request classes. The store keeps this copy to
// admit the holder later. If these annotations are too large, requestOf returns nil.
func requestOf(h classes.Holder) *classes.Holder {
	if h = h.WithoutUnusedAnnotations(); h.AnnotationsSize() > maxPendingSize {
		return nil
	}
	return &h
}

// postpone marks the request of a running holder as pending. As long as the request is pending, the holder is reported
// as refused for the reason `err`. postpone returns the refusal. If `err` is nil, postpone does nothing.
func (n *node) postpone(h classes.Holder, err error) error {
	if err == nil {
		return nil
	}
	if request := requestOf(h); request != nil {
		n.update(h.ID, func(held *Holding) {
			held.happens(postponed)
			held.Request = request
		})
	}
	return n.refuse(h, errCreatedWithout(err))
}

// Refresh updates the desired classes of a holder. It replaces default classes by the current defaults, and retries a
// pending request. It does not change assignments that an update made.
func (s *Store) Refresh(id string) {
	defer s.lock()()
	s.node.followDefaults(id)
	s.node.retryPending(id)
}

// followDefaults assigns the current default classes to a holder, for the resources that the holder did not request.
func (n *node) followDefaults(id string) {
	n.update(id, func(h *Holding) {
		if now := classes.Overlay(h.Assignments, n.live.defaults(h.Holding)); !slices.Equal(now, h.Assignments) {
			h.assign(now)
		}
	})
}

// retryPending admits a pending request if all requested classes now have a free slot.
func (n *node) retryPending(id string) {
	before, _ := n.table.Get(id)
	if !before.Phase.isWaiting() {
		return
	}

	after := before
	catalog, wanted, err := n.resolve(*before.Request)
	if err == nil {
		after.assign(classes.Overlay(wanted, updates(before.Assignments)))
		after.happens(admitted)
		err = n.table.Admit(catalog, after)
	}
	if err != nil {
		n.refuseAgain(before.Holder, errCreatedWithout(err))
		return
	}
	n.follow(before, after)
}

// Shown has the classes in which the kernel shows a holder, by resource. It lacks the resources whose class is unknown.
type Shown struct {
	ID      string
	Classes map[string]string
}

// Verified records which unverified pods and volumes are in the classes that they request. The parameter `inClass` lists
// those that are in these classes, and the parameter `elsewhere` lists those that may be in other classes. Verified
// admits the second list to the requested classes if these classes have free slots, and returns those that it could not
// admit.
func (s *Store) Verified(inClass []string, elsewhere []Shown) (failed []FailedAdoption) {
	defer s.lock()()
	n := &s.node

	for _, id := range inClass {
		if h, _ := n.table.Get(id); h.Phase == Unverified {
			n.update(id, func(h *Holding) { h.happens(verified) })
			n.accept(h)
		}
	}

	var late []func() []FailedAdoption
	for _, e := range elsewhere {
		if h, _ := n.table.Get(e.ID); h.Phase == Unverified {
			late = append(late, func() []FailedAdoption { return n.readmit(h, e.Classes) })
			n.table.Release(e.ID) // release all before admitting any, so that none keeps a slot that it was not admitted to
		}
	}
	for _, readmit := range late {
		failed = append(failed, readmit()...)
	}
	return failed
}

// readmit admits a pod or volume to the classes that it requests. If the admission fails, a pod gets the defaults, and a
// volume keeps the class of its claim. The holder is then reported in the classes that the kernel has shown, and otherwise
// in the system default, because it may have none of the values of its class.
func (n *node) readmit(before Holding, shown map[string]string) (failed []FailedAdoption) {
	after := before
	for resource, class := range shown {
		after.observe(resource, class)
	}
	after.happens(verified)
	n.changed = true
	err := n.table.Admit(n.live.Catalog, after)
	if err == nil {
		return nil
	}

	claimed := slices.DeleteFunc(slices.Clone(before.Assignments), func(a classes.Assignment) bool { return a.Source != classes.SourceClaim })
	after.assign(slices.Concat(claimed, n.live.defaults(classes.Holding{Holder: before.Holder})))
	after.observeAll(func(resource string) string {
		if class, known := shown[resource]; known {
			return class
		}
		return before.Observed[resource]
	})
	n.table.Adopt(after)

	request := before.Holder
	if before.Request != nil {
		request = *before.Request
	}
	_ = n.postpone(request, err)
	return []FailedAdoption{{request, err}}
}
