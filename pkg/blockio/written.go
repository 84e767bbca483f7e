// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// save saves limits before the backend writes them to a cgroup.
func (b *VolumeBackend) save(written []value) {
	if b.memory == nil {
		return
	}
	data, err := json.Marshal(written)
	if err == nil {
		err = b.memory.Save(data)
	}
	if err != nil {
		b.opts.Log.Warn("cannot save the limits of volumes; after a restart, limits of volumes that end meanwhile may stay", "error", err)
	}
}

// Remember implements classes.Rememberer.
func (b *VolumeBackend) Remember(memory classes.Memory) error {
	var written []value
	if data := memory.Load(); data != nil {
		if err := json.Unmarshal(data, &written); err != nil {
			return fmt.Errorf("read the saved limits of volumes: %w", err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.memory = memory
	for _, limits := range written {
		b.written[limits] = true
	}
	return nil
}

// volumeLimits implements limiter.
func (b *VolumeBackend) volumeLimits() (all []value) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.written))
}

var _ classes.Rememberer = (*VolumeBackend)(nil)
