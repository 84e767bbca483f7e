// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iodisks

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// Match has the disks that an entry of Devices selects.
type Match struct {
	Disks []iocgroup.Disk
	// Partitions has one sentence for each matched file that is a partition. Ignored has one sentence, with the reason,
	// for each matched file that is ignored.
	Partitions, Ignored []string
}

// Match finds the disks that an entry of Devices selects. If a pattern matches disks and other files, e.g. the character
// device /dev/nvme0 of the controller of the disk /dev/nvme0n1, the other files do not count.
func (n *Node) Match(pattern string) (Match, error) {
	if IsAlias(pattern) {
		return matchAlias(n, pattern)
	}

	var found Match
	host := n.host
	paths, err := host.Glob(pattern)
	if err != nil {
		return found, fmt.Errorf("match %q: %w", pattern, err)
	}

	var others []string
	for _, name := range paths {
		err := found.add(host, name)
		switch {
		case errors.Is(err, syscall.ENOTBLK):
			others = append(others, ignored(name, err))
		case err != nil:
			found.Ignored = append(found.Ignored, ignored(name, err))
		}
	}
	if len(found.Disks) == 0 {
		found.Ignored = append(found.Ignored, others...)
	}
	return found, nil
}

func ignored(name string, err error) string { return fmt.Sprintf("%s is ignored: %v", name, err) }

func (m *Match) add(host FS, name string) error {
	node, err := iocgroup.FollowSymlinks(host, name)
	if err != nil {
		return err
	}
	major, minor, err := host.BlockDevice(node)
	if err != nil {
		return err
	}
	whole, isPartition, err := iocgroup.WholeDisk(host, iocgroup.Device{Major: major, Minor: minor})
	if err != nil {
		return err
	}

	if isPartition {
		m.Partitions = append(m.Partitions, fmt.Sprintf("%s is a partition: the class applies to its whole disk %s", name, whole))
	}
	m.Disks = append(m.Disks, whole)
	return nil
}
