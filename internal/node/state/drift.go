// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// What drift corrections are about, as counted in Status.
const (
	// ConfigurationDrift is of what belongs to the classes: resctrl groups, disks that classes name.
	ConfigurationDrift = "configuration"
	// AssignmentDrift is of a container or pod that was not in its class.
	AssignmentDrift = "assignment"
	// ThreadDrift is of a container with threads outside of its class, like those of a process that was started in it later.
	ThreadDrift = "threads"
)

// Correction is a kind of drift correction.
type Correction struct {
	// Resource is its name, What one of the words above.
	Resource, What string
}

// driftRecord is the drift that was found of a resource's configuration.
type driftRecord struct {
	count uint64
	last  string
	at    time.Time
	// uncorrected is true while the last one could not be corrected.
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

// ConfigurationInSync records that no drift was found. What could not be corrected at first is corrected now.
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

// conditions reports drift; none was found without any.
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
