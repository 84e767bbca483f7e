// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"
)

// maxSymlinks is the maximum number of symbolic links in one path, as in the kernel (path_resolution(7)).
const maxSymlinks = 40

// disk is a whole block device. The io controller accepts only whole devices.
type disk struct {
	device
	name string // in /sys/block
}

func (d disk) String() string { return fmt.Sprintf("%s (%s)", d.name, d.device) }

type match struct {
	disks []disk
	// partitions has one sentence for each matched file that is a partition. ignored has one sentence, with the reason,
	// for each matched file that is ignored.
	partitions, ignored []string
}

// matchDevices finds the disks that an entry of Devices selects. If a pattern matches disks and other files, e.g. the character
// device /dev/nvme0 of the controller of the disk /dev/nvme0n1, the other files do not count.
func matchDevices(node *nodeMounts, pattern string) (match, error) {
	if isAlias(pattern) {
		return matchAlias(node, pattern)
	}

	var found match
	host := node.host
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
			found.ignored = append(found.ignored, ignored(name, err))
		}
	}
	if len(found.disks) == 0 {
		found.ignored = append(found.ignored, others...)
	}
	return found, nil
}

func ignored(name string, err error) string { return fmt.Sprintf("%s is ignored: %v", name, err) }

func (m *match) add(host FS, name string) error {
	node, err := followSymlinks(host, name)
	if err != nil {
		return err
	}
	major, minor, err := host.BlockDevice(node)
	if err != nil {
		return err
	}
	whole, isPartition, err := wholeDisk(host, device{major, minor})
	if err != nil {
		return err
	}

	if isPartition {
		m.partitions = append(m.partitions, fmt.Sprintf("%s is a partition: the class applies to its whole disk %s", name, whole))
	}
	m.disks = append(m.disks, whole)
	return nil
}

// followSymlinks resolves all symbolic links in a path on the host. Its result differs from filepath.EvalSymlinks,
// because the host's root directory may differ from the root directory of this process.
func followSymlinks(host FS, name string) (string, error) {
	done, rest := "/", strings.Split(strings.Trim(path.Clean(name), "/"), "/")
	for links := 0; len(rest) > 0; {
		next := path.Join(done, rest[0])
		rest = rest[1:]
		target, err := host.Readlink(next)
		if errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if err != nil { // not a symbolic link
			done = next
			continue
		}

		if links++; links > maxSymlinks {
			return "", fmt.Errorf("more than %d symbolic links, perhaps a loop", maxSymlinks)
		}
		if path.IsAbs(target) {
			done = "/"
		}
		rest = append(strings.Split(strings.Trim(path.Clean(target), "/"), "/"), rest...)
	}
	return done, nil
}

// wholeDisk returns the disk of a device. For a partition it returns the disk that has the partition; for another
// device it returns the device itself. Device mapper, loop and md devices count as disks.
func wholeDisk(host FS, dev device) (whole disk, isPartition bool, err error) {
	node := "/sys/dev/block/" + dev.String()
	link, err := host.Readlink(node)
	if err != nil {
		return disk{}, false, fmt.Errorf("device %s is not in /sys/dev/block: %w", dev, err)
	}
	if _, err := host.ReadFile(node + "/partition"); err != nil {
		return disk{device: dev, name: path.Base(link)}, false, nil
	}

	name := path.Base(path.Dir(link))
	number, err := host.ReadFile("/sys/block/" + name + "/dev")
	if err != nil {
		return disk{}, true, fmt.Errorf("find the disk of partition %s: %w", dev, err)
	}
	parent, err := parseDevice(strings.TrimSpace(string(number)))
	if err != nil {
		return disk{}, true, fmt.Errorf("/sys/block/%s/dev: %w", name, err)
	}
	return disk{device: parent, name: name}, true, nil
}
