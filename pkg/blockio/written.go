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

// classLimits implements limiter.
func (b *VolumeBackend) classLimits() (all []value) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.written))
}

// foreignTo returns the limits in v that differ from the limit of the same kind in every candidate.
func (v value) foreignTo(candidates []value) (foreign value) {
	for kind, limit := range v {
		if !slices.ContainsFunc(candidates, func(c value) bool { return c[kind] == limit }) {
			foreign[kind] = limit
		}
	}
	return foreign
}

// except returns v without each kind of limit that the argument other also has.
func (v value) except(other value) value {
	for kind, limit := range other {
		if limit != 0 {
			v[kind] = 0
		}
	}
	return v
}

func except(all []value, other value) []value {
	rest := make([]value, len(all))
	for i, limits := range all {
		rest[i] = limits.except(other)
	}
	return rest
}

// describeLower describes limits that another program has set, or returns "" if there are none.
func describeLower(foreign values) string {
	var parts []string
	for _, s := range foreign.sorted() {
		part := s.device.String()
		for kind, key := range rateKeys() {
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
