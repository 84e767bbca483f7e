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
	// refusedTime is how long a refusal is reported after the last attempt. It is longer than five minutes, because the
	// kubelet may wait five minutes before it retries.
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

// Refused returns recent refusals, sorted by namespace, pod, container and volume.
func (s *Store) Refused() []Refused {
	s.mu.Lock()
	defer s.mu.Unlock()

	return slices.SortedFunc(maps.Values(s.refused), func(a, b Refused) int {
		return cmp.Or(
			strings.Compare(a.PodNamespace, b.PodNamespace), strings.Compare(a.PodName, b.PodName),
			strings.Compare(a.Subject.PodUID, b.Subject.PodUID), strings.Compare(a.Subject.Container, b.Subject.Container),
			strings.Compare(a.Subject.Volume, b.Subject.Volume),
		)
	})
}

// Refuse records and counts the refusal of a holder, and returns the error.
func (s *Store) Refuse(h classes.Holder, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refuse(h, err)
}

// refuse records and counts the refusal of a holder, and returns the error. The caller holds mu.
func (s *Store) refuse(h classes.Holder, err error) error {
	err = oneLine{err}
	s.recordRefused(h, err)
	return s.countRefusal(err)
}

// refuseAgain records that the retry of a refused request was also refused. If the message is the same as before, it
// updates only the time of the last refusal. The caller holds mu.
func (s *Store) refuseAgain(h classes.Holder, err error) {
	err = oneLine{err}
	if r, known := s.refused[h.Subject()]; known && r.Message == err.Error() {
		r.Last = s.now()
		s.refused[h.Subject()] = r
		return
	}

	s.recordRefused(h, err)
	s.notify()
}

func (s *Store) recordRefused(h classes.Holder, err error) {
	now, r := s.now(), s.refused[h.Subject()]
	if reason := refusalReason(err); r.Reason != reason {
		r = Refused{Subject: h.Subject(), Reason: reason, First: now}
	}

	r.PodNamespace, r.PodName, r.Message, r.Last = h.PodNamespace, h.PodName, err.Error(), now
	r.Count++
	s.refused[h.Subject()] = r

	for len(s.refused) > maxRefused {
		s.forgetOldestRefused()
	}
}

func (s *Store) forgetOldestRefused() {
	var oldest Refused
	for _, r := range s.refused {
		if oldest.Last.IsZero() || r.Last.Before(oldest.Last) {
			oldest = r
		}
	}
	delete(s.refused, oldest.Subject)
}

// countRefusal counts an error by its reason and returns it. The caller holds mu.
func (s *Store) countRefusal(err error) error {
	s.refusals[refusalReason(err)]++
	s.notify()
	return err
}

// accept removes the refusal of an owner that got its classes. The caller holds mu.
func (s *Store) accept(owner qos.Subject) {
	if _, known := s.refused[owner]; known {
		delete(s.refused, owner)
		s.notify()
	}
}

// ExpireRefused removes refusals that were not repeated for ten minutes. It must be called periodically.
func (s *Store) ExpireRefused() {
	s.mu.Lock()
	defer s.mu.Unlock()

	now, before := s.now(), len(s.refused)
	maps.DeleteFunc(s.refused, func(_ qos.Subject, r Refused) bool { return now.Sub(r.Last) > refusedTime })
	if len(s.refused) < before {
		s.notify()
	}
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
