// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iotest

import (
	"maps"

	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// Memory implements classes.Memory. It returns Err for each Save.
type Memory struct {
	Data map[string][]byte
	Err  error
}

// NewMemory returns the memory of a process that has applied nothing.
func NewMemory() *Memory { return &Memory{Data: map[string][]byte{"cgroups": []byte("{}")}} }

// Load implements classes.Memory.
func (m *Memory) Load() map[string][]byte { return maps.Clone(m.Data) }

// Save implements classes.Memory.
func (m *Memory) Save(changed map[string][]byte) error {
	if m.Err != nil {
		return m.Err
	}
	if m.Data == nil {
		m.Data = map[string][]byte{}
	}
	for key, data := range changed {
		if m.Data[key] = data; data == nil {
			delete(m.Data, key)
		}
	}
	return nil
}

// Mortal is a machine on which the process is killed after some writes to cgroups.
type Mortal struct {
	*simcgroup.Machine
	// Left is the number of writes that are left.
	Left *int
}

// killed is the panic of a process that is killed.
type killed struct{}

// WriteFile writes a file, or kills the process.
func (m Mortal) WriteFile(path string, data []byte) error {
	if *m.Left == 0 {
		panic(killed{})
	}
	*m.Left--
	return m.Machine.WriteFile(path, data)
}

// Survives calls a function, and reports whether the process was not killed.
func Survives(do func()) (alive bool) {
	defer func() {
		if cause := recover(); cause != nil && cause != (killed{}) {
			panic(cause)
		}
	}()
	do()
	return true
}
