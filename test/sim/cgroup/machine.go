// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Machine implements the FS interfaces of pkg/cgroup and pkg/iodisks. It is safe for concurrent use.
type Machine struct {
	mu sync.Mutex
	// mu guards the fields below.
	nodes map[string]*node
	disks []*disk
	// schedulers and iocost are the features that the kernel is built with.
	schedulers []string
	iocost     bool
	// without has the names of controllers of cgroup v2, and of files of controllers, that the kernel does not have.
	without   []string
	mountinfo []string
	trees     []*tree
	faults    []*Fault
	writes    []Write
}

// Write is one successful write(2).
type Write struct{ Path, Data string }

type kind int

const (
	regular kind = iota
	directory
	symlink
	block
	char
)

// node is a file. A regular file has data, or functions that read and write.
type node struct {
	kind         kind
	data         []byte
	read         func() []byte
	write        func(data string) error
	target       string
	major, minor uint32
	group        *group
}

// Option changes a new machine.
type Option func(*Machine)

// WithoutBFQ removes the bfq scheduler, as in a kernel without bfq or with its module not loaded.
func WithoutBFQ() Option {
	return func(m *Machine) {
		m.schedulers = slices.DeleteFunc(m.schedulers, func(name string) bool { return name == "bfq" })
	}
}

// WithoutIOCost removes iocost from the kernel.
func WithoutIOCost() Option { return func(m *Machine) { m.iocost = false } }

// Without removes a controller of cgroup v2 or one of its files from the kernel.
func Without(name string) Option { return func(m *Machine) { m.without = append(m.without, name) } }

func newMachine(options []Option) *Machine {
	m := &Machine{nodes: map[string]*node{"/": {kind: directory}}, iocost: true,
		schedulers: []string{"none", "mq-deadline", "kyber", "bfq"}}
	for _, option := range options {
		option(m)
	}

	for _, dir := range []string{"/dev", "/sys/block", "/sys/dev/block", "/sys/fs/cgroup", "/proc"} {
		m.mkdirs(dir)
	}

	m.nodes["/dev/null"] = &node{kind: char, major: 1, minor: 3}
	mountinfo := func() []byte { return lines(m.mountinfo) }
	m.put("/proc/1/mountinfo", &node{read: mountinfo})
	m.put("/proc/self/mountinfo", &node{read: mountinfo})
	m.put("/proc/sys/fs/nr_open", &node{data: []byte("1048576\n")})
	m.put("/sys/devices/system/node/has_memory", &node{data: []byte("0-1\n")})
	m.put("/proc/filesystems", &node{data: []byte("nodev\tcgroup\nnodev\tcgroup2\n")})
	return m
}

// New returns a machine with cgroup v2 only.
func New(options ...Option) *Machine {
	m := newMachine(options)
	controllers := slices.DeleteFunc([]string{"cpuset", "cpu", "io", "memory", "pids"}, func(name string) bool { return slices.Contains(m.without, name) })
	m.mount(2, "/sys/fs/cgroup", controllers...)
	return m
}

// NewLegacy returns a machine with cgroup v1 only.
func NewLegacy(options ...Option) *Machine {
	m := newMachine(options)
	m.mount(1, "/sys/fs/cgroup/memory", "memory")
	m.mount(1, "/sys/fs/cgroup/blkio", "blkio")
	return m
}

// NewHybrid returns a machine with v1 controllers, blkio included, and a cgroup2 tree without io.
func NewHybrid(options ...Option) *Machine {
	m := NewLegacy(options...)
	m.mount(2, "/sys/fs/cgroup/unified")
	return m
}

// NewHybridIO returns a machine with v1 controllers, and a cgroup2 tree with io.
func NewHybridIO(options ...Option) *Machine {
	m := newMachine(options)
	m.mount(1, "/sys/fs/cgroup/memory", "memory")
	m.mount(2, "/sys/fs/cgroup/unified", "io")
	return m
}

// NewBare returns a machine without cgroups.
func NewBare(options ...Option) *Machine { return newMachine(options) }

func (m *Machine) mkdirs(dir string) {
	for ; m.nodes[dir] == nil; dir = path.Dir(dir) {
		m.nodes[dir] = &node{kind: directory}
	}
}

func (m *Machine) put(name string, n *node) {
	m.mkdirs(path.Dir(name))
	m.nodes[name] = n
}

// find returns the file at a path. It follows symbolic links in the path. If the file itself is a symbolic link, the
// link is followed only if `follow` is true.
func (m *Machine) find(op, name string, follow bool) (string, *node, error) {
	done, rest := "/", strings.Split(strings.Trim(path.Clean(name), "/"), "/")
	if rest[0] == "" {
		return "/", m.nodes["/"], nil
	}

	for links := 0; len(rest) > 0; {
		next := path.Join(done, rest[0])
		rest = rest[1:]
		found := m.lookup(next)
		switch {
		case found == nil && m.nodes[done] != nil && m.nodes[done].kind == directory:
			return "", nil, failure(op, name, syscall.ENOENT)
		case found == nil:
			return "", nil, failure(op, name, syscall.ENOTDIR)
		case found.kind == symlink && (follow || len(rest) > 0):
			if links++; links > 40 {
				return "", nil, failure(op, name, syscall.ELOOP)
			}
			if path.IsAbs(found.target) {
				done = "/"
			}
			rest = append(strings.Split(strings.Trim(path.Clean(found.target), "/"), "/"), rest...)
		default:
			done = next
		}
	}

	return done, m.lookup(done), nil
}

// lookup returns the node or cgroup file at a path, or nil if there is none. It follows no symbolic links.
func (m *Machine) lookup(name string) *node {
	if n := m.nodes[name]; n != nil {
		return n
	}
	parent := m.nodes[path.Dir(name)]
	if parent == nil || parent.group == nil {
		return nil
	}
	return parent.group.files()[path.Base(name)]
}

func failure(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }
