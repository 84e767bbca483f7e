// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"context"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Used is the name of the only value that the backend measures.
const Used = "used_bytes_total"

// Use sets the usage of a target.
func (b *Backend) Use(id string, bytes float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used[id] = bytes
}

// SumsEnded is part of classes.HolderMeter. The simulated kernel has no values of pods.
func (b *Backend) SumsEnded() bool { return false }

// MeasureHolder is part of classes.HolderMeter. Stick accepts "measure" and "measure <ID>" as its operation, and Fail accepts
// "measure".
func (b *Backend) MeasureHolder(_ context.Context, target classes.Holder) (classes.Reading, error) {
	b.wait("measure")
	b.wait("measure " + target.ID)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.failures["measure"]; err != nil {
		return nil, err
	}
	return classes.Reading{{Measure: Used}: b.used[target.ID]}, nil
}
