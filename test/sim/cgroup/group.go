// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// tree is a mounted hierarchy.
type tree struct {
	machine     *Machine
	version     int
	point       string
	controllers []string
}

// group is one cgroup, with the limits and weights of the io controller. While this controller is disabled, the
// limits and weights have their initial values.
type group struct {
	tree *tree
	// parent is nil for the root.
	parent *group
	// enabled has the controllers that are enabled for the children.
	enabled []string
	// processes maps each PID to the threads of the process.
	processes map[int][]int
	rates     map[*disk]rates
	// order is the order in which files list the disks. The first write for a disk puts it at the front.
	order []*disk
	// `bfq` has io.bfq.weight or blkio.bfq.weight, and `cost` has io.weight.
	bfq, cost weights
	// latency has io.latency, in microseconds.
	latency   map[*disk]uint64
	transfers map[*disk]transfers
	// `values` has the text that was written to each of plainFiles.
	values map[string]string
	dir    string
}

// rates has the limits for one disk, in the order of the keys in io.max. The value 0 means no limit.
type rates [4]uint64

type weights struct {
	base    uint64
	devices map[*disk]uint64
}

func initialWeights() weights { return weights{base: 100, devices: map[*disk]uint64{}} }

func (m *Machine) mount(version int, point string, controllers ...string) {
	t := &tree{machine: m, version: version, point: point, controllers: controllers}
	m.trees = append(m.trees, t)
	m.mkdirs(point)
	m.nodes[point].group = newGroup(t, nil, point)
	fstype, options := "cgroup2", "rw"
	if version == 1 {
		fstype, options = "cgroup", "rw,"+strings.Join(controllers, ",")
	}
	m.mountinfo = append(m.mountinfo, fmt.Sprintf("%d 24 0:%d / %s rw,nosuid,nodev,noexec,relatime shared:9 - %s %s %s",
		30+len(m.trees), 26+len(m.trees), point, fstype, fstype, options))
}

func newGroup(t *tree, parent *group, dir string) *group {
	return &group{tree: t, parent: parent, dir: dir, processes: map[int][]int{}, rates: map[*disk]rates{},
		bfq: initialWeights(), cost: initialWeights(), latency: map[*disk]uint64{}, transfers: map[*disk]transfers{}, values: map[string]string{}}
}

func (g *group) child(dir string) *group { return newGroup(g.tree, g, dir) }

// controllers returns the controllers that the cgroup has, as in cgroup.controllers.
func (g *group) controllers() []string {
	if g.parent == nil || g.tree.version == 1 {
		return g.tree.controllers
	}
	return g.parent.enabled
}

// files returns the current files of the cgroup.
func (g *group) files() map[string]*node {
	files := map[string]*node{
		"cgroup.procs": {read: func() []byte { return lines(slices.Sorted(maps.Keys(g.processes))) }, write: g.attach},
	}

	if g.tree.version == 1 {
		files["tasks"] = &node{read: g.threads, write: g.attach}
		if slices.Contains(g.tree.controllers, "blkio") {
			g.addLegacyFiles(files)
		}
		return files
	}

	files["cgroup.threads"] = &node{read: g.threads, write: g.attach}
	if g.parent != nil {
		files["cgroup.kill"] = &node{write: g.kill}
	}

	files["cgroup.controllers"] = &node{read: func() []byte { return words(g.controllers()) }}
	files["cgroup.subtree_control"] = &node{read: func() []byte { return words(g.enabled) }, write: g.enable}
	if slices.Contains(g.controllers(), "io") {
		g.addUnifiedFiles(files)
	}
	g.addPlainFiles(files)

	return files
}

func lines[T any](items []T) []byte {
	var text strings.Builder
	for _, item := range items {
		fmt.Fprintln(&text, item)
	}
	return []byte(text.String())
}

func words(names []string) []byte { return []byte(strings.Join(names, " ") + "\n") }

func (g *group) threads() []byte {
	var all []int
	for _, threads := range g.processes {
		all = append(all, threads...)
	}
	slices.Sort(all)
	return lines(all)
}

// attach moves a process from another group of the tree to this one.
func (g *group) attach(data string) error {
	pid, err := strconv.Atoi(strings.TrimSpace(data))
	if err != nil {
		return syscall.EINVAL
	}

	if g.tree.version == 2 && g.parent != nil && len(g.enabled) > 0 {
		return syscall.EBUSY // "no internal processes"
	}

	for _, n := range g.tree.machine.nodes {
		if n.group == nil || n.group.tree != g.tree {
			continue
		}
		if threads, ok := n.group.processes[pid]; ok {
			delete(n.group.processes, pid)
			g.processes[pid] = threads
			return nil
		}
	}

	return syscall.ESRCH
}

// kill implements a write to cgroup.kill. It ends all processes of the cgroup and of the cgroups below it.
func (g *group) kill(data string) error {
	if kill, err := strconv.Atoi(strings.TrimSpace(data)); err != nil {
		return syscall.EINVAL
	} else if kill != 1 {
		return syscall.ERANGE
	}
	g.end()
	return nil
}

func (g *group) end() {
	for pid := range g.processes {
		g.tree.machine.removeProcess(pid)
	}
	g.forEachChild(func(child *group) { child.end() })
}

// enable implements a write to cgroup.subtree_control, such as "+io -memory". If one word is invalid, it changes
// nothing.
func (g *group) enable(data string) error {
	enabled := slices.Clone(g.enabled)
	for _, word := range strings.Fields(data) {
		name := word[1:]
		switch {
		case word[0] != '+' && word[0] != '-' || !slices.Contains(g.tree.controllers, name):
			return syscall.EINVAL
		case word[0] == '+' && !slices.Contains(g.controllers(), name):
			return syscall.ENOENT
		case word[0] == '+' && g.parent != nil && len(g.processes) > 0:
			return syscall.EBUSY
		case word[0] == '-' && g.childEnables(name):
			return syscall.EBUSY
		case word[0] == '+' && !slices.Contains(enabled, name):
			enabled = append(enabled, name)
		case word[0] == '-':
			enabled = slices.DeleteFunc(enabled, func(other string) bool { return other == name })
		}
	}

	g.enabled = enabled
	if !slices.Contains(enabled, "io") {
		g.forEachChild(func(child *group) { child.reset() })
	}

	return nil
}

func (g *group) forEachChild(visit func(*group)) {
	g.tree.machine.forEachGroup(func(other *group) {
		if other.parent == g {
			visit(other)
		}
	})
}

func (g *group) childEnables(controller string) bool {
	busy := false
	g.forEachChild(func(child *group) { busy = busy || slices.Contains(child.enabled, controller) })
	return busy
}

// reset drops the values of the io controller when it is disabled.
func (g *group) reset() {
	g.rates, g.order, g.bfq, g.cost, g.latency = map[*disk]rates{}, nil, initialWeights(), initialWeights(), map[*disk]uint64{}
}

func (g *group) forget(gone *disk) {
	delete(g.rates, gone)
	delete(g.transfers, gone)
	delete(g.bfq.devices, gone)
	delete(g.cost.devices, gone)
	delete(g.latency, gone)
	g.order = slices.DeleteFunc(g.order, func(d *disk) bool { return d == gone })
}

// AddCgroup creates a cgroup and its ancestors in every hierarchy, and enables all controllers for them, as runtimes
// do. `name` is relative to the root of the hierarchy.
func (m *Machine) AddCgroup(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.trees {
		parent := m.nodes[t.point].group
		dir := t.point
		for _, part := range strings.Split(strings.Trim(name, "/"), "/") {
			parent.enabled = slices.Clone(parent.controllers())
			dir = path.Join(dir, part)
			if m.nodes[dir] == nil {
				m.nodes[dir] = &node{kind: directory, group: parent.child(dir)}
			}
			parent = m.nodes[dir].group
		}
	}
}

// Roots returns the mount points of the hierarchies.
func (m *Machine) Roots() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var roots []string
	for _, t := range m.trees {
		roots = append(roots, t.point)
	}
	return roots
}

// AddProcess adds a process and its other threads to a cgroup of every hierarchy.
func (m *Machine) AddProcess(cgroup string, pid int, threads ...int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.trees {
		m.nodes[path.Join(t.point, cgroup)].group.processes[pid] = append([]int{pid}, threads...)
	}
	m.put(fmt.Sprintf("/proc/%d/cgroup", pid), &node{read: func() []byte { return m.cgroupOf(pid) }})
	if m.nodes[mountsOf(pid)] == nil { // a test may have made it
		m.put(mountsOf(pid), &node{data: []byte("50 40 0:50 / / rw - overlay overlay rw\n")})
	}
}

// RemoveProcess ends a process with its threads.
func (m *Machine) RemoveProcess(pid int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removeProcess(pid)
}

func (m *Machine) removeProcess(pid int) {
	m.forEachGroup(func(g *group) { delete(g.processes, pid) })
	delete(m.nodes, fmt.Sprintf("/proc/%d/cgroup", pid))
	delete(m.nodes, mountsOf(pid))
}

// mountsOf returns the path of the file with the mounts of a process.
func mountsOf(pid int) string { return fmt.Sprintf("/proc/%d/mountinfo", pid) }

func (m *Machine) cgroupOf(pid int) []byte {
	var text strings.Builder
	for i, t := range slices.Backward(m.trees) {
		where := "/"
		m.forEachGroup(func(g *group) {
			if _, here := g.processes[pid]; here && g.tree == t {
				where = path.Join("/", strings.TrimPrefix(g.dir, t.point))
			}
		})
		if t.version == 2 {
			fmt.Fprintf(&text, "0::%s\n", where)
			continue
		}
		fmt.Fprintf(&text, "%d:%s:%s\n", i+1, strings.Join(t.controllers, ","), where)
	}

	return []byte(text.String())
}

// SetUnified writes values as runc 1.3 and later write linux.resources.unified: line by line, until the kernel refuses
// a line.
func (m *Machine) SetUnified(cgroup string, values map[string]string) error {
	for _, file := range slices.Sorted(maps.Keys(values)) {
		for line := range strings.Lines(values[file]) {
			if err := m.WriteFile(path.Join("/sys/fs/cgroup", cgroup, file), []byte(line)); err != nil {
				return fmt.Errorf("failed to write %q: %w", line, err)
			}
		}
	}
	return nil
}
