// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sim combines the simulated resctrl and the simulated cgroups into one machine, and simulates runc on it.
package sim

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
	"github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// Options describes a machine. The zero value is a machine with the RDT of an Intel CPU, cgroup v2, and the disks vda
// and vdb.
type Options struct {
	// RDT describes the resctrl of the machine's CPU. The default is resctrl.IntelSpec, not mounted.
	RDT *resctrl.Spec
	// Cgroups has the cgroup trees and disks. The default is cgroup v2.
	Cgroups *cgroup.Machine
}

// Machine is a simulated host with RDT, cgroups and disks. It is safe for concurrent use.
type Machine struct {
	resctrl *resctrl.FS
	cgroups *cgroup.Machine
	runc    runc
}

// New returns a machine.
func New(o Options) *Machine {
	spec := resctrl.IntelSpec()
	spec.Unmounted = true
	if o.RDT != nil {
		spec = *o.RDT
	}
	if o.Cgroups == nil {
		o.Cgroups = cgroup.New()
		o.Cgroups.AddDisk("vda", 254, 0)
		o.Cgroups.AddDisk("vdb", 254, 16)
	}
	m := &Machine{resctrl: resctrl.New(spec), cgroups: o.Cgroups}
	m.runc.init(m)
	return m
}

// Resctrl returns the simulated resctrl.
func (m *Machine) Resctrl() *resctrl.FS { return m.resctrl }

// Cgroups returns the simulated cgroups and disks.
func (m *Machine) Cgroups() *cgroup.Machine { return m.cgroups }

// isResctrl reports whether the simulated resctrl has the file at a path. This includes some files of /proc.
func isResctrl(name string) bool {
	name = path.Clean(name)
	if name == resctrl.MountPoint || strings.HasPrefix(name, resctrl.MountPoint+"/") {
		return true
	}
	base := path.Base(name)
	return strings.HasPrefix(name, "/proc/") && slices.Contains([]string{"cpuinfo", "stat", "cpu_resctrl_groups"}, base)
}

// ReadFile returns the content of a file.
func (m *Machine) ReadFile(name string) ([]byte, error) {
	switch {
	case slices.Contains([]string{"/proc/filesystems", "/proc/1/mountinfo", "/proc/self/mountinfo"}, path.Clean(name)):
		return m.readBoth(name)
	case path.Clean(name) == "/proc/sys/kernel/random/boot_id":
		return []byte("5a3c1e7f-0b2d-4c6e-8f90-a1b2c3d4e5f6\n"), nil
	}
	data, err := m.readPart(name)
	var pid int
	if n, _ := fmt.Sscanf(path.Clean(name), "/proc/%d/", &pid); n == 1 {
		if of, exists := m.readProcess(pid, path.Base(name), data); exists {
			return of, nil
		}
	}
	return data, err
}

func (m *Machine) readPart(name string) ([]byte, error) {
	if isResctrl(name) {
		return m.resctrl.ReadFile(name)
	}
	return m.cgroups.ReadFile(name)
}

// readBoth joins the content of a file in the simulated resctrl and in the simulated cgroups.
func (m *Machine) readBoth(name string) ([]byte, error) {
	one, err := m.resctrl.ReadFile(name)
	other, otherErr := m.cgroups.ReadFile(name)
	return slices.Concat(one, other), errors.Join(err, otherErr)
}

// tree has the methods that the simulated resctrl and the simulated cgroups have in common.
type tree interface {
	WriteFile(name string, data []byte) error
	Mkdir(name string) error
	Remove(name string) error
	ReadDir(name string) ([]string, error)
}

func (m *Machine) part(name string) tree {
	if isResctrl(name) {
		return m.resctrl
	}
	return m.cgroups
}

// WriteFile writes to an existing file in one write(2).
func (m *Machine) WriteFile(name string, data []byte) error {
	if err := m.part(name).WriteFile(name, data); err != nil {
		return err
	}
	if path.Base(name) == "cgroup.kill" {
		m.runc.reap()
	}
	return nil
}

// Mkdir makes a directory.
func (m *Machine) Mkdir(name string) error { return m.part(name).Mkdir(name) }

// Remove removes a directory.
func (m *Machine) Remove(name string) error { return m.part(name).Remove(name) }

// ReadDir lists a directory.
func (m *Machine) ReadDir(name string) ([]string, error) { return m.part(name).ReadDir(name) }

// Rename moves a monitoring group.
func (m *Machine) Rename(from, to string) error {
	if !isResctrl(from) {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrPermission}
	}
	return m.resctrl.Rename(from, to)
}

// Mount mounts resctrl.
func (m *Machine) Mount(source, target, fstype, options string) error {
	return m.resctrl.Mount(source, target, fstype, options)
}

// Readlink returns where a symbolic link leads.
func (m *Machine) Readlink(name string) (string, error) { return m.cgroups.Readlink(name) }

// Glob lists the files that match.
func (m *Machine) Glob(pattern string) ([]string, error) { return m.cgroups.Glob(pattern) }

// BlockDevice returns a block device's numbers.
func (m *Machine) BlockDevice(name string) (major, minor uint32, err error) {
	return m.cgroups.BlockDevice(name)
}
