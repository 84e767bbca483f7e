// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iodisks

import (
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// DisksOf returns the disks of the filesystem that contains a directory. Unlike disksOfDir, it needs all mounts of the node.
func (n *Node) DisksOf(dir string) ([]iocgroup.Disk, error) {
	if err := n.read().err; err != nil {
		return nil, err
	}
	return n.disksOfDir(dir)
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
