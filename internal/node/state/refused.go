// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

const (
	// refusedTime is the time for which a refusal is reported after the last attempt. It is longer than five minutes,
	// because the kubelet may wait five minutes before it retries.
	refusedTime = 10 * time.Minute
	// maxMessage is the maximum size of the message of a refusal, in bytes.
	maxMessage = 4 << 10
	// maxRefused limits the number of reported refusals. The store keeps the newest ones.
	maxRefused = 1000
)

// These errors mean that another NRI plugin or the runtime kept the plugin from setting the class of a container.
var (
	ErrNotCreated        = errors.New("the container runtime did not create the container, although the plugin had admitted its classes")
	ErrAdjustmentChanged = errors.New("another NRI plugin has changed a value of the container's classes")
)

// Refusals counts refusals by reason since the process started.
type Refusals map[string]uint64

// Refused is a container or pod whose request for classes was refused. Its creation or start failed, or it was created
// while the plugin was not connected and runs without the classes that it requests.
type Refused struct {
	Subject               qos.Subject
	PodNamespace, PodName string
	// Reason is the key of the refusal in Refusals. Message is the text of the error.
	Reason, Message string
	// Count is the number of consecutive refusals for this reason. The first was at First and the last at Last.
	Count       uint64
	First, Last time.Time
}

// refusalLog has the recent refusals, and counts all of them. It is not safe for concurrent use.
type refusalLog struct {
	now    func() time.Time
	counts Refusals
	recent map[qos.Subject]Refused
}

func newRefusalLog(now func() time.Time) refusalLog {
	return refusalLog{now: now, counts: Refusals{}, recent: map[qos.Subject]Refused{}}
}

// count counts an error by its reason.
func (l refusalLog) count(err error) { l.counts[refusalReason(err)]++ }

// record records the refusal of a holder.
func (l refusalLog) record(h classes.Holder, err error) {
	now, r := l.now(), l.recent[h.Subject()]
	if reason := refusalReason(err); r.Reason != reason {
		r = Refused{Subject: h.Subject(), Reason: reason, First: now}
	}

	r.PodNamespace, r.PodName, r.Message, r.Last = h.PodNamespace, h.PodName, err.Error(), now
	r.Count++
	l.recent[h.Subject()] = r

	for len(l.recent) > maxRefused {
		l.forgetOldest()
	}
}

// repeat records that the retry of a refused request was also refused. If the message is the same as before, it updates
// only the time of the last refusal, and returns false.
func (l refusalLog) repeat(h classes.Holder, err error) (changed bool) {
	if r, known := l.recent[h.Subject()]; known && r.Message == err.Error() {
		r.Last = l.now()
		l.recent[h.Subject()] = r
		return false
	}
	l.record(h, err)
	return true
}

func (l refusalLog) forgetOldest() {
	var oldest Refused
	for _, r := range l.recent {
		if oldest.Last.IsZero() || r.Last.Before(oldest.Last) {
			oldest = r
		}
	}
	delete(l.recent, oldest.Subject)
}

// remove removes the refusal of a subject, and reports whether there was one.
func (l refusalLog) remove(subject qos.Subject) bool {
	_, known := l.recent[subject]
	delete(l.recent, subject)
	return known
}

// expire removes refusals that were not repeated for refusedTime, and reports whether there were any.
func (l refusalLog) expire() bool {
	now, before := l.now(), len(l.recent)
	maps.DeleteFunc(l.recent, func(_ qos.Subject, r Refused) bool { return now.Sub(r.Last) > refusedTime })
	return len(l.recent) < before
}

// list returns the recent refusals, sorted by namespace, pod, container and volume.
func (l refusalLog) list() []Refused {
	return slices.SortedFunc(maps.Values(l.recent), func(a, b Refused) int {
		return cmp.Or(
			strings.Compare(a.PodNamespace, b.PodNamespace), strings.Compare(a.PodName, b.PodName),
			strings.Compare(a.Subject.PodUID, b.Subject.PodUID), strings.Compare(a.Subject.Container, b.Subject.Container),
			strings.Compare(a.Subject.Volume, b.Subject.Volume),
		)
	})
}

// Refused returns recent refusals, sorted by namespace, pod, container and volume.
func (s *View) Refused() []Refused {
	defer s.lock()()
	return s.node.refused.list()
}

// Refuse records and counts the refusal of a holder, and returns the error.
func (s *Store) Refuse(h classes.Holder, err error) error {
	defer s.lock()()
	return s.node.refuse(h, err)
}

// ExpireRefused removes refusals that were not repeated for ten minutes, and those of subjects that have a newer holder
// with all its classes. The hooks do not remove the refusals of such subjects if the newer holder was started while the
// plugin was not connected, or does not request a class for the volume any more. ExpireRefused must be called
// periodically.
func (s *Store) ExpireRefused() {
	defer s.lock()()
	n := &s.node

	n.changed = n.refused.expire()
	for _, r := range n.refused.list() {
		newest := n.table.newest(r.Subject)
		if newest.Number == 0 {
			newest = n.table.newest(r.Subject.WithoutVolume())
		}
		if newest.Number > 0 && newest.Phase == Running && newest.Since.After(r.Last) {
			n.changed = n.refused.remove(r.Subject) || n.changed
		}
	}
}

// refuse records and counts the refusal of a holder, and returns the error.
func (n *node) refuse(h classes.Holder, err error) error {
	err = oneLine{err}
	n.refused.record(h, err)
	return n.countRefusal(err)
}

// refuseAgain records that the retry of a refused request was also refused.
func (n *node) refuseAgain(h classes.Holder, err error) {
	if n.refused.repeat(h, oneLine{err}) {
		n.changed = true
	}
}

// countRefusal counts an error by its reason and returns it.
func (n *node) countRefusal(err error) error {
	n.refused.count(err)
	n.changed = true
	return err
}

// oneLine is an error whose text is one printable line of limited length, as container runtimes and logs need it.
type oneLine struct{ error }

func (e oneLine) Error() string {
	return printable.Text(strings.ReplaceAll(e.error.Error(), "\n", "; "), maxMessage)
}

func (e oneLine) Unwrap() error { return e.error }

// These are the reasons of refusals that are not among classes.RefusalReasons.
const (
	notCreated        = "NotCreated"
	adjustmentChanged = "AdjustmentChanged"
	enforcementFailed = "EnforcementFailed"
)

func refusalReason(err error) string {
	switch {
	case errors.Is(err, ErrNotCreated):
		return notCreated
	case errors.Is(err, ErrAdjustmentChanged):
		return adjustmentChanged
	}
	return cmp.Or(classes.RefusalReason(err), enforcementFailed)
}

// RefusalReasons returns all reasons that Refusals can count.
func RefusalReasons() []string {
	return append(classes.RefusalReasons(), notCreated, adjustmentChanged, enforcementFailed)
}
