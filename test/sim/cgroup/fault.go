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
	// File is the base name of the files that fail. If it is empty, all files fail.
	File string
	// Skip is the number of operations that match Op and File and succeed before the fault occurs.
	Skip int
	// Err is the error of the operation. If it is nil, a write reports success and changes nothing.
	Err error
	// Lasting is true if every later operation that matches fails too, and false if only one operation fails.
	Lasting bool
}

// Inject adds a fault. If several faults apply, the one that was added first decides.
func (m *Machine) Inject(fault Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = append(m.faults, &fault)
}

// Heal removes all faults.
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

// Writes returns the successful writes since the last call.
func (m *Machine) Writes() []Write {
	m.mu.Lock()
	defer m.mu.Unlock()
	writes := m.writes
	m.writes = nil
	return writes
}
