// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"io/fs"
	"sync"
	"syscall"

	"github.com/qos-nri/qos-nri-plugin/test/sim"
)

// mortal is a machine as a process sees it that can be killed: from a chosen write on nothing is written any more, and all that
// it is asked for fails.
type mortal struct {
	machine *sim.Machine
	// died is called once, at the moment of the death, while no write is under way.
	died func()

	mu sync.RWMutex // held for writing around writes, so that there is none in the moment of the death; guards what follows
	// left are the writes before the death; 0 is none to come.
	left int
	dead bool
	// late deaths come after the write has had its effect, of which the process does not know any more.
	late bool
}

// kill ends the process at its nth write from now; 0 is now.
func (m *mortal) kill(at int, late bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left, m.late = at, late; at == 0 {
		m.die()
	}
}

// die needs mu.
func (m *mortal) die() {
	if !m.dead {
		m.dead = true
		m.died()
	}
}

// write does one write into the kernel, unless the process is killed before.
func (m *mortal) write(op, path string, do func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.left == 1
	if m.left > 0 {
		m.left--
	}
	if last && !m.late {
		m.die()
	}
	if m.dead {
		return &fs.PathError{Op: op, Path: path, Err: syscall.EIO}
	}
	err := do()
	if last {
		m.die()
		return &fs.PathError{Op: op, Path: path, Err: syscall.EIO}
	}
	return err
}

// read does what changes nothing.
func read[T any](m *mortal, op, path string, do func() (T, error)) (result T, err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.dead {
		return result, &fs.PathError{Op: op, Path: path, Err: syscall.EIO}
	}
	return do()
}

func (m *mortal) WriteFile(path string, data []byte) error {
	return m.write("write", path, func() error { return m.machine.WriteFile(path, data) })
}

func (m *mortal) Mkdir(path string) error {
	return m.write("mkdir", path, func() error { return m.machine.Mkdir(path) })
}

func (m *mortal) Remove(path string) error {
	return m.write("remove", path, func() error { return m.machine.Remove(path) })
}

func (m *mortal) Mount(source, target, fstype, options string) error {
	return m.write("mount", target, func() error { return m.machine.Mount(source, target, fstype, options) })
}

func (m *mortal) ReadFile(path string) ([]byte, error) {
	return read(m, "read", path, func() ([]byte, error) { return m.machine.ReadFile(path) })
}

func (m *mortal) ReadDir(path string) ([]string, error) {
	return read(m, "readdir", path, func() ([]string, error) { return m.machine.ReadDir(path) })
}

func (m *mortal) Readlink(path string) (string, error) {
	return read(m, "readlink", path, func() (string, error) { return m.machine.Readlink(path) })
}

func (m *mortal) Glob(pattern string) ([]string, error) {
	return read(m, "glob", pattern, func() ([]string, error) { return m.machine.Glob(pattern) })
}

func (m *mortal) BlockDevice(path string) (major, minor uint32, err error) {
	numbers, err := read(m, "stat", path, func() ([2]uint32, error) {
		major, minor, err := m.machine.BlockDevice(path)
		return [2]uint32{major, minor}, err
	})
	return numbers[0], numbers[1], err
}
