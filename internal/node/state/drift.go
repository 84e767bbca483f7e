// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// These are the kinds of drift. Status counts the corrections of each kind.
const (
	// ConfigurationDrift means that the resctrl group of a class, or the disks to which a class applies, have changed.
	ConfigurationDrift = "configuration"
	// AssignmentDrift means that a container or pod was not in its class.
	AssignmentDrift = "assignment"
	// ThreadDrift means that threads of a container were not in the container's class, e.g. the threads of a process
	// that "kubectl exec" started.
	ThreadDrift = "threads"
)

// Drifts returns all kinds of drift.
func Drifts() []string { return []string{ConfigurationDrift, AssignmentDrift, ThreadDrift} }

// Correction identifies a counter of drift corrections, by resource and kind of drift.
type Correction struct {
	// What is the kind of drift: ConfigurationDrift, AssignmentDrift or ThreadDrift.
	Resource, What string
}

type driftRecord struct {
	count uint64
	last  string
	at    time.Time
	// uncorrected is true if the last drift that was found could not be corrected and is still present.
	uncorrected bool
}

// Corrected adds count to the counter of drift corrections for a resource and a kind of drift.
func (s *Store) Corrected(resource, what string, count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drifts[Correction{resource, what}] += uint64(count) //nolint:gosec // a count is not negative
}

// ConfigurationDrifted records that the configuration of a resource has drifted, and whether the drift was corrected.
func (s *Store) ConfigurationDrifted(resource, found string, corrected bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	r := s.resources[resource]
	r.drift = driftRecord{count: r.drift.count + 1, last: found, at: s.now(), uncorrected: !corrected}
	s.resources[resource] = r
	if corrected {
		s.drifts[Correction{resource, ConfigurationDrift}]++
	}
	s.notify()
}

// ConfigurationInSync records that the configuration of a resource shows no drift. If earlier drift could not be
// corrected, ConfigurationInSync counts that drift as corrected.
func (s *Store) ConfigurationInSync(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if r := s.resources[resource]; r.drift.uncorrected {
		r.drift.uncorrected = false
		s.resources[resource] = r
		s.drifts[Correction{resource, ConfigurationDrift}]++
		s.notify()
	}
}

// conditions reports the drift of a resource as conditions. It returns none if no drift was ever found.
func (d driftRecord) conditions() []classes.Condition {
	if d.count == 0 {
		return nil
	}
	reason, state := "DriftCorrected", "drift corrected"
	if d.uncorrected {
		reason, state = "DriftNotCorrected", "drift not corrected"
	}
	return []classes.Condition{{Type: "KernelStateInSync", Healthy: !d.uncorrected, Reason: reason, Message: fmt.Sprintf(
		"%s; drifts found: %d, the last at %s: %s", state, d.count, d.at.UTC().Format(time.RFC3339), d.last)}}
}
