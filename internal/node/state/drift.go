// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"maps"
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
	// `What` is the kind of drift: ConfigurationDrift, AssignmentDrift or ThreadDrift.
	Resource, What string
}

// Drift is the drift of a resource that was found since the process started. Its map is replaced at each change and never
// modified.
type Drift struct {
	// corrections counts the corrections by kind of drift.
	corrections map[string]uint64
	// `count`, `last` and `at` describe the drift of the configuration.
	count uint64
	last  string
	at    time.Time
	// uncorrected is true if the last drift that was found could not be corrected and is still present.
	uncorrected bool
}

// Corrected adds to the counter of corrections for a kind of drift.
func (d *Drift) Corrected(kind string, count int) {
	corrections := maps.Clone(d.corrections)
	if corrections == nil {
		corrections = map[string]uint64{}
	}
	corrections[kind] += uint64(count) //nolint:gosec // a count is not negative
	d.corrections = corrections
}

// ConfigurationDrifted records that the configuration has drifted, and whether the drift was corrected.
func (d *Drift) ConfigurationDrifted(found string, corrected bool, at time.Time) {
	d.count, d.last, d.at, d.uncorrected = d.count+1, found, at, !corrected
	if corrected {
		d.Corrected(ConfigurationDrift, 1)
	}
}

// Uncorrected reports whether the last drift of the configuration is still present.
func (d Drift) Uncorrected() bool { return d.uncorrected }

// ConfigurationInSync records that the configuration shows no drift. If earlier drift could not be corrected,
// ConfigurationInSync counts that drift as corrected.
func (d *Drift) ConfigurationInSync() {
	if d.uncorrected {
		d.uncorrected = false
		d.Corrected(ConfigurationDrift, 1)
	}
}

// conditions reports the drift of a resource as conditions. It returns none if no drift was ever found.
func (d Drift) conditions() []classes.Condition {
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
