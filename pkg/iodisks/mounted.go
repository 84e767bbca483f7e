// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iodisks

import (
	"fmt"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// DisksOf returns the disks of the filesystem that contains a directory.
func (n *Node) DisksOf(dir string) ([]iocgroup.Disk, error) {
	table := n.read()
	if table.err != nil {
		return nil, table.err
	}
	mount := table.of(dir)
	if mount == nil {
		return nil, fmt.Errorf("no mount contains %s", dir)
	}
	return n.disksOf(mount)
}

// MountPoints returns the mount points of the filesystems on a disk or on its partitions.
func (n *Node) MountPoints(disk iocgroup.Disk) (points []string, err error) {
	table := n.read()
	for _, mount := range table.all {
		disks, _ := n.disksOf(mount) // after an error, the mount is on no disk
		if slices.Contains(disks, disk) && !slices.Contains(points, mount.point) {
			points = append(points, mount.point)
		}
	}
	return points, table.err
}
