// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"path"
	"slices"
)

// Fault makes operations fail.
type Fault struct {
	// Op is "read" or "write".
	Op string
	// File is the base name of the files that are meant; empty: all.
	File string
	// Skip is how many such operations go well first.
	Skip int
	// Err is what the operation fails with. A write without one is lost in silence.
	Err error
	// Lasting faults hit every operation from then on, others one.
	Lasting bool
}

// Inject adds a fault; the first that applies is taken.
func (m *Machine) Inject(fault Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = append(m.faults, &fault)
}

// Heal takes all faults away.
func (m *Machine) Heal() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = nil
}

func (m *Machine) fault(op, name string) *Fault {
	for i, fault := range m.faults {
		if fault.Op != op || fault.File != "" && fault.File != path.Base(name) {
			continue
		}
		if fault.Skip > 0 {
			fault.Skip--
			continue
		}
		if !fault.Lasting {
			m.faults = slices.Delete(m.faults, i, i+1)
		}
		return fault
	}
	return nil
}

// Writes returns the successful writes so far, and forgets them.
func (m *Machine) Writes() []Write {
	m.mu.Lock()
	defer m.mu.Unlock()
	writes := m.writes
	m.writes = nil
	return writes
}
