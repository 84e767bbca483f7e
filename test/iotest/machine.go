// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package iotest has machines and a memory of a plugin for the tests of the packages of block I/O.
package iotest

import (
	"io/fs"
	"slices"
	"strings"
	"syscall"

	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// AddDisks adds disks to a machine. sda1 is a partition of sda. dm-0 and loop0 count as whole disks.
func AddDisks(m *simcgroup.Machine) *simcgroup.Machine {
	m.AddDisk("sda", 8, 0)
	m.AddPartition("sda", "sda1", 8, 1)
	m.AddDisk("sdb", 8, 16)
	m.AddDisk("dm-0", 253, 0)
	m.AddDisk("loop0", 7, 0)
	return m
}

// AddLinks adds symbolic links to the disks of AddDisks, links that lead nowhere, and a file that is no device.
func AddLinks(m *simcgroup.Machine) *simcgroup.Machine {
	m.AddSymlink("/dev/disk/by-id/ata-SSD", "../../sda")
	m.AddSymlink("/dev/disk/by-id/ata-SSD-part1", "../../sda1")
	m.AddSymlink("/dev/disk/by-id/ata-HDD", "/dev/disk/by-name/two") // through another symbolic link
	m.AddSymlink("/dev/disk/by-name", "../names")
	m.AddSymlink("/dev/names/two", "/dev/sdb")
	m.AddSymlink("/dev/disk/by-id/gone", "../../sdz")
	m.AddSymlink("/dev/loop-a", "loop-b")
	m.AddSymlink("/dev/loop-b", "loop-a")
	m.AddSymlink("/dev/mapper/data", "../dm-0")
	m.AddFile("/dev/plain", "text")
	return m
}

// NoThrottling is a machine whose kernel was built without CONFIG_BLK_DEV_THROTTLING.
type NoThrottling struct{ *simcgroup.Machine }

func isThrottling(name string) bool {
	return strings.HasSuffix(name, "/io.max") || strings.Contains(name, "/blkio.throttle.")
}

// ReadFile reads a file that the kernel has.
func (m NoThrottling) ReadFile(name string) ([]byte, error) {
	if isThrottling(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOENT}
	}
	return m.Machine.ReadFile(name)
}

// WriteFile writes a file that the kernel has.
func (m NoThrottling) WriteFile(name string, data []byte) error {
	if isThrottling(name) {
		return &fs.PathError{Op: "open", Path: name, Err: syscall.ENOENT}
	}
	return m.Machine.WriteFile(name, data)
}

// ReadDir lists the files that the kernel has.
func (m NoThrottling) ReadDir(name string) ([]string, error) {
	names, err := m.Machine.ReadDir(name)
	return slices.DeleteFunc(names, func(file string) bool { return isThrottling(name + "/" + file) }), err
}
