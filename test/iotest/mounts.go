// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iotest

import (
	"strings"

	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// RootMount is the line of mountinfo of a root filesystem that is on a partition of sda.
const RootMount = "28 1 8:1 / / rw - ext4 /dev/sda1 rw"

// Mount adds the root filesystem to a machine, and more mounts from lines of mountinfo.
func Mount(m *simcgroup.Machine, lines ...string) *simcgroup.Machine {
	m.Mount(RootMount)
	for _, line := range lines {
		m.Mount(line)
	}
	return m
}

// LongMount is the host's mount of a subPath of an emptyDir. The container, which also mounts the whole emptyDir, has moved the directory
// below 80 directories whose names have 255 blanks. The kernel shows the present path of the directory, with four bytes for each blank.
func LongMount() string {
	return "900 28 8:1 /var/lib/kubelet/pods/2/volumes/kubernetes.io~empty-dir/v" + strings.Repeat("/"+strings.Repeat(`\040`, 255), 80) +
		"/a /var/lib/kubelet/pods/2/volume-subpaths/v/main/1 rw - ext4 /dev/sda1 rw"
}
