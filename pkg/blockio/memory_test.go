// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"maps"

	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
)

// memory implements classes.Memory. It returns err for each Save.
type memory struct {
	data map[string][]byte
	err  error
}

func (m *memory) Load() map[string][]byte { return maps.Clone(m.data) }

func (m *memory) Save(changed map[string][]byte) error {
	if m.err != nil {
		return m.err
	}
	if m.data == nil {
		m.data = map[string][]byte{}
	}
	for key, data := range changed {
		if m.data[key] = data; data == nil {
			delete(m.data, key)
		}
	}
	return nil
}

// newMemory returns the memory of a process that has applied nothing.
func newMemory() *memory { return &memory{data: map[string][]byte{"cgroups": []byte("{}")}} }

// remember makes a backend use a memory instead of the one that it has.
func (f fixture) remember(m *memory) {
	f.t.Helper()
	f.backend.cgroups.Records = ioapply.NewRecords(f.backend.cgroups.Log)
	if err := f.backend.Remember(m); err != nil {
		f.t.Fatal(err)
	}
}
