// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Kinds of drift corrections, as counted in Status.
const (
	// ConfigurationDrift is drift in the configuration of classes: resctrl groups, and disks that classes name.
	ConfigurationDrift = "configuration"
	// AssignmentDrift is a container or pod that was not in its class.
	AssignmentDrift = "assignment"
	// ThreadDrift is a container with threads outside of its class, e.g. of a process that was started later.
	ThreadDrift = "threads"
)

// Correction is a kind of drift correction.
type Correction struct {
	// Resource is the name of a resource. What is one of the kinds above.
	Resource, What string
}

// driftRecord is the drift found in a resource's configuration.
type driftRecord struct {
	count uint64
	last  string
	at    time.Time
	// uncorrected is true while the last drift could not be corrected.
	uncorrected bool
}

// Corrected counts drift corrections.
func (s *Store) Corrected(resource, what string, count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drifts[Correction{resource, what}] += uint64(count) //nolint:gosec // a count is not negative
}

// ConfigurationDrifted records drift of a resource's configuration, and whether it was corrected.
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

// ConfigurationInSync records that no drift was found. Earlier drift that could not be corrected counts as corrected.
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

// conditions reports drift; nothing if none was ever found.
func (d driftRecord) conditions() []classes.Condition {
	if d.count == 0 {
		return nil
	}
	reason, state := "DriftCorrected", "drift corrected"
	if d.uncorrected {
		reason, state = "DriftNotCorrected", "drift not corrected"
	}
	return []classes.Condition{{Type: "KernelStateInSync", Healthy: !d.uncorrected, Reason: reason, Message: fmt.Sprintf(
		"%s; found %d in total, the last at %s: %s", state, d.count, d.at.UTC().Format(time.RFC3339), d.last)}}
}
