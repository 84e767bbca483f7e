// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"io/fs"
	"sync"
	"syscall"

	"github.com/qos-nri/qos-nri-plugin/test/sim"
)

// mortal is the machine as seen by a process that can be killed. After the kill, every call of the process fails, and
// it cannot write anything.
type mortal struct {
	machine *sim.Machine
	// died is called once, when the process is killed, while no write is in progress.
	died func()

	mu sync.RWMutex // locked for writing during writes, so that no write is in progress when the process is killed; guards all fields below
	// left is the number of writes until the kill. It is 0 if no kill is planned.
	left int
	dead bool
	// late is true if the write during which the process is killed still takes effect. The process never gets its result.
	late bool
	// refusal is the refusal of the next write, or nil.
	refusal *refusal
}

// IOPriority implements config.FS.
func (m *mortal) IOPriority(pid int) (int, error) { return m.machine.IOPriority(pid) }

// kill lets the process make at-1 more writes, and ends it at the write after them. If `at` is 0, it ends the process
// at once.
func (m *mortal) kill(at int, late bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left, m.late = at, late; at == 0 {
		m.die()
	}
}

// die kills the process. The caller holds mu.
func (m *mortal) die() {
	if !m.dead {
		m.dead = true
		m.died()
	}
}

// write does one write, unless the process is killed first.
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

// read does a call that changes nothing.
func read[T any](m *mortal, op, path string, do func() (T, error)) (result T, err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.dead {
		return result, &fs.PathError{Op: op, Path: path, Err: syscall.EIO}
	}
	return do()
}

func (m *mortal) WriteFile(path string, data []byte) error {
	if m.refused() {
		return &fs.PathError{Op: "write", Path: path, Err: syscall.ENOSPC}
	}
	return m.write("write", path, func() error { return m.machine.WriteFile(path, data) })
}

func (m *mortal) Mkdir(path string) error {
	return m.write("mkdir", path, func() error { return m.machine.Mkdir(path) })
}

func (m *mortal) Remove(path string) error {
	return m.write("remove", path, func() error { return m.machine.Remove(path) })
}

func (m *mortal) Rename(from, to string) error {
	return m.write("rename", from, func() error { return m.machine.Rename(from, to) })
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
