// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"path"
	"slices"
	"strings"
	"syscall"
)

// ReadFile implements FS.
func (m *Machine) ReadFile(name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if fault := m.fault("read", name); fault != nil && fault.Err != nil {
		return nil, failure("read", name, fault.Err)
	}

	_, n, err := m.find("open", name, true)
	switch {
	case err != nil:
		return nil, err
	case n.kind == directory:
		return nil, failure("read", name, syscall.EISDIR)
	case n.read != nil:
		return n.read(), nil
	}

	return slices.Clone(n.data), nil
}

// WriteFile implements FS. It simulates one write(2).
func (m *Machine) WriteFile(name string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if fault := m.fault("write", name); fault != nil {
		if fault.Err != nil {
			return failure("write", name, fault.Err)
		}
		return nil // the fault discards the data
	}

	_, n, err := m.find("open", name, true)
	switch {
	case err != nil:
		return err
	case n.kind == directory:
		return failure("open", name, syscall.EISDIR)
	case n.write == nil && n.read != nil:
		return failure("open", name, syscall.EACCES)
	case n.write == nil:
		n.data = slices.Clone(data)
	case len(data) > 0: // kernfs ignores an empty write
		if err := n.write(string(data)); err != nil {
			return failure("write", name, err)
		}
	}

	m.writes = append(m.writes, Write{Path: name, Data: string(data)})
	return nil
}

// ReadDir implements FS.
func (m *Machine) ReadDir(name string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, n, err := m.find("open", name, true)
	if err != nil {
		return nil, err
	}
	if n.kind != directory {
		return nil, failure("readdirent", name, syscall.ENOTDIR)
	}
	return m.list(dir, n), nil
}

func (m *Machine) list(dir string, n *node) []string {
	var names []string
	for name := range m.nodes {
		if name != "/" && path.Dir(name) == dir {
			names = append(names, path.Base(name))
		}
	}
	if n.group != nil {
		for name := range n.group.files() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Mkdir implements FS. In a cgroup tree it creates a cgroup.
func (m *Machine) Mkdir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	parent, n, err := m.find("mkdir", path.Dir(name), true)
	if err != nil {
		return err
	}

	full := path.Join(parent, path.Base(name))
	if m.lookup(full) != nil {
		return failure("mkdir", name, syscall.EEXIST)
	}

	made := &node{kind: directory}
	if n.group != nil {
		made.group = n.group.child(full)
	}

	m.nodes[full] = made
	return nil
}

// Remove implements FS. A cgroup with processes or children is busy.
func (m *Machine) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	full, n, err := m.find("remove", name, false)
	if err != nil {
		return err
	}

	busy := n.group != nil && len(n.group.processes) > 0
	for other := range m.nodes {
		busy = busy || strings.HasPrefix(other, full+"/")
	}

	if busy {
		return failure("remove", name, syscall.EBUSY)
	}

	delete(m.nodes, full)
	return nil
}

// Readlink implements FS.
func (m *Machine) Readlink(name string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, n, err := m.find("readlink", name, false)
	if err != nil {
		return "", err
	}
	if n.kind != symlink {
		return "", failure("readlink", name, syscall.EINVAL)
	}
	return n.target, nil
}

// BlockDevice implements FS.
func (m *Machine) BlockDevice(name string) (major, minor uint32, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, n, err := m.find("stat", name, true)
	if err != nil {
		return 0, 0, err
	}
	if n.kind != block {
		return 0, 0, failure("stat", name, syscall.ENOTBLK)
	}
	return n.major, n.minor, nil
}

// Glob implements FS.
func (m *Machine) Glob(pattern string) ([]string, error) {
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, err
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	matches := []string{"/"}
	for _, part := range strings.Split(strings.Trim(path.Clean(pattern), "/"), "/") {
		var deeper []string
		for _, dir := range matches {
			deeper = append(deeper, m.matchIn(dir, part)...)
		}
		matches = deeper
	}

	slices.Sort(matches)
	return matches, nil
}

func (m *Machine) matchIn(dir, part string) []string {
	full, n, err := m.find("open", dir, true)
	if err != nil || n.kind != directory {
		return nil
	}
	var found []string
	for _, name := range m.list(full, n) {
		if ok, _ := path.Match(part, name); ok {
			found = append(found, path.Join(dir, name))
		}
	}
	return found
}
