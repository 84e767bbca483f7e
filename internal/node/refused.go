// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const (
	// refusedTime is how long a refusal is told after the last attempt; the kubelet tries again within five minutes.
	refusedTime = 10 * time.Minute
	// maxRefused bounds the refusals that are told: the newest ones.
	maxRefused = 1000
)

// Refused is a container, or a pod, that was not created or started because of its classes, and has not been since; or that was made without
// the plugin and runs without them.
type Refused struct {
	Owner                 classes.Owner
	PodNamespace, PodName string
	// Reason is the word under which it is counted; Message is what the runtime was told.
	Reason, Message string
	// Count is how often it was refused in a row for this reason, between First and Last.
	Count       uint64
	First, Last time.Time
}

// Refused returns what was refused lately, by namespace, pod and container.
func (n *Node) Refused() []Refused {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := make([]Refused, 0, len(n.refused))
	for _, r := range n.refused {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Refused) int {
		return cmp.Or(
			strings.Compare(a.PodNamespace, b.PodNamespace), strings.Compare(a.PodName, b.PodName),
			strings.Compare(a.Owner.PodUID, b.Owner.PodUID), strings.Compare(a.Owner.Container, b.Owner.Container),
		)
	})
	return list
}

// refuse notes that a holder could not be created or started, and returns the error. The caller holds mu.
func (n *Node) refuse(h classes.Holding, err error) error {
	err = oneLine{err}
	n.noteRefused(h, err)
	return n.count(err)
}

// refuseStill notes that nothing has changed for a holder that was refused. That is not counted. The caller holds mu.
func (n *Node) refuseStill(h classes.Holding, err error) {
	err = oneLine{err}
	if r, told := n.refused[h.Owner()]; told && r.Message == err.Error() {
		r.Last = n.now()
		n.refused[h.Owner()] = r
		return
	}
	n.noteRefused(h, err)
	n.notify()
}

func (n *Node) noteRefused(h classes.Holding, err error) {
	now, r := n.now(), n.refused[h.Owner()]
	if reason := refusalReason(err); r.Reason != reason {
		r = Refused{Owner: h.Owner(), Reason: reason, First: now}
	}
	r.PodNamespace, r.PodName, r.Message, r.Last = h.PodNamespace, h.PodName, err.Error(), now
	r.Count++
	n.refused[h.Owner()] = r
	for len(n.refused) > maxRefused {
		n.forgetOldestRefused()
	}
}

// oneLine is an error of several, as runtimes and people want to read it.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }

func (e oneLine) Unwrap() error { return e.error }

// count counts a refusal and returns it. The caller holds mu.
func (n *Node) count(err error) error {
	n.refusals[refusalReason(err)]++
	n.notify()
	return err
}

// accepted is accept for who does not hold mu.
func (n *Node) accepted(owner classes.Owner) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.accept(owner)
}

// accept notes that an owner got what it asked for. The caller holds mu.
func (n *Node) accept(owner classes.Owner) {
	if _, known := n.refused[owner]; known {
		delete(n.refused, owner)
		n.notify()
	}
}

// ForgetRefused drops refusals that nobody has repeated for ten minutes. It is to be called now and then.
func (n *Node) ForgetRefused() {
	n.mu.Lock()
	defer n.mu.Unlock()
	now, before := n.now(), len(n.refused)
	maps.DeleteFunc(n.refused, func(_ classes.Owner, r Refused) bool { return now.Sub(r.Last) > refusedTime })
	if len(n.refused) < before {
		n.notify()
	}
}

func (n *Node) forgetOldestRefused() {
	var oldest Refused
	for _, r := range n.refused {
		if oldest.Last.IsZero() || r.Last.Before(oldest.Last) {
			oldest = r
		}
	}
	delete(n.refused, oldest.Owner)
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
		{"CreatedWithoutPlugin", errCreatedWithoutUs},
	} {
		if errors.Is(err, reason.err) {
			return reason.word
		}
	}
	return "EnforcementFailed"
}
