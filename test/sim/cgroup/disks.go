// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"
)

// disk is a whole block device.
type disk struct {
	name         string
	major, minor uint32
	scheduler    string
	// cost has the parameters of iocost. It is nil if iocost was never set up.
	cost *costs
}

func (d *disk) number() string { return fmt.Sprintf("%d:%d", d.major, d.minor) }

// AddDisk adds a disk, with its files in /dev and /sys.
func (m *Machine) AddDisk(name string, major, minor uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := &disk{name: name, major: major, minor: minor, scheduler: "none"}
	m.disks = append(m.disks, d)
	home := "/sys/devices/virtual/block/" + name
	m.addBlock(home, name, major, minor)
	if !strings.HasPrefix(name, "dm-") {
		m.mkdirs(home + "/mq")
	}
	m.put("/sys/block/"+name, &node{kind: symlink, target: "../devices/virtual/block/" + name})
	m.put(home+"/queue/scheduler", &node{
		read:  func() []byte { return []byte(m.schedulerText(d)) },
		write: func(data string) error { return m.setScheduler(d, strings.TrimSpace(data)) }})
}

func (m *Machine) addBlock(home, name string, major, minor uint32) {
	number := fmt.Sprintf("%d:%d", major, minor)
	m.put("/dev/"+name, &node{kind: block, major: major, minor: minor})
	m.put(home+"/dev", &node{data: []byte(number + "\n")})
	m.put("/sys/dev/block/"+number, &node{kind: symlink, target: path.Join("../..", strings.TrimPrefix(home, "/sys"))})
}

// AddPartition adds a partition of a disk, e.g. "vda1" of "vda".
func (m *Machine) AddPartition(disk, name string, major, minor uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	home := "/sys/devices/virtual/block/" + disk + "/" + name
	m.addBlock(home, name, major, minor)
	m.put(home+"/partition", &node{data: []byte("1\n")})
}

// RemoveDisk removes a disk and its limits in all cgroups.
func (m *Machine) RemoveDisk(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.disks, func(d *disk) bool { return d.name == name })
	gone := m.disks[i]

	m.disks = slices.Delete(m.disks, i, i+1)
	home := "/sys/devices/virtual/block/" + name
	for known := range m.nodes {
		if known == home || strings.HasPrefix(known, home+"/") {
			delete(m.nodes, known)
		}
	}

	delete(m.nodes, "/dev/"+name)
	delete(m.nodes, "/sys/block/"+name)
	delete(m.nodes, "/sys/dev/block/"+gone.number())
	m.forEachGroup(func(g *group) { g.forget(gone) })
}

// AddSymlink adds a symbolic link.
func (m *Machine) AddSymlink(name, target string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(name, &node{kind: symlink, target: target})
}

// AddFile adds a regular file.
func (m *Machine) AddFile(name, data string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(name, &node{data: []byte(data)})
}

func (m *Machine) schedulerText(d *disk) string {
	var text strings.Builder
	for _, name := range m.schedulers {
		if name == d.scheduler {
			name = "[" + name + "]"
		}
		text.WriteString(name + " ")
	}
	return text.String() + "\n"
}

// setScheduler changes the scheduler of a disk. A change from bfq to another scheduler drops the disk's bfq weights.
func (m *Machine) setScheduler(d *disk, name string) error {
	if !slices.Contains(m.schedulers, name) {
		return syscall.EINVAL
	}
	if d.scheduler == "bfq" && name != "bfq" {
		m.forEachGroup(func(g *group) { delete(g.bfq.devices, d) })
	}
	d.scheduler = name
	return nil
}

func (m *Machine) forEachGroup(visit func(*group)) {
	for _, n := range m.nodes {
		if n.group != nil {
			visit(n.group)
		}
	}
}

// findDisk parses "MAJ:MIN " at the start of a write, and returns the rest. It skips blanks like the kernel
// (block/blk-cgroup.c, blkg_conf_open_bdev).
func (m *Machine) findDisk(text string) (*disk, string, error) {
	var major, minor uint32
	text = strings.TrimLeft(text, blanks)
	number, rest := text, ""
	if i := strings.IndexAny(text, blanks); i >= 0 {
		number, rest = text[:i], text[i:]
	}

	if n, err := fmt.Sscanf(number, "%d:%d", &major, &minor); n != 2 || err != nil || rest == "" ||
		number != fmt.Sprintf("%d:%d", major, minor) {
		return nil, "", syscall.EINVAL
	}

	for _, d := range m.disks {
		if d.major == major && d.minor == minor {
			return d, strings.TrimLeft(rest, blanks), nil
		}
	}

	return nil, "", syscall.ENODEV // unknown, or a partition
}

const blanks = " \t\n"

// Mount adds a line to mountinfo, e.g. "41 28 8:1 / /var rw - ext4 /dev/sda1 rw".
func (m *Machine) Mount(line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mountinfo = append(m.mountinfo, line)
}

// Unmount removes the lines of a mount point from mountinfo.
func (m *Machine) Unmount(point string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mountinfo = slices.DeleteFunc(m.mountinfo, func(line string) bool { return strings.Fields(line)[4] == point })
}
