// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// save saves limits before the backend writes them to a cgroup.
func (b *VolumeBackend) save(written []iocgroup.Value) {
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
	var written []iocgroup.Value
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

// classLimits implements limiter.
func (b *VolumeBackend) classLimits() (all []iocgroup.Value) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.written))
}

func except(all []iocgroup.Value, other iocgroup.Value) []iocgroup.Value {
	rest := make([]iocgroup.Value, len(all))
	for i, limits := range all {
		rest[i] = limits.Except(other)
	}
	return rest
}

// describeLower describes limits that another program has set, or returns "" if there are none.
func describeLower(foreign iocgroup.Values) string {
	var parts []string
	for _, s := range foreign.Sorted() {
		part := s.Device.String()
		for kind, key := range iocgroup.RateKeys() {
			if limit := foreign[s][kind]; limit != 0 {
				part += fmt.Sprintf(" %s=%d", key, limit)
			}
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return ""
	}
	return "lower limits on " + strings.Join(parts, ", ")
}

var _ classes.Rememberer = (*VolumeBackend)(nil)
