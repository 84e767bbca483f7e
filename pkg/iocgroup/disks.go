// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iocgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// maxSymlinks is the maximum number of symbolic links in one path, as in the kernel (path_resolution(7)).
const maxSymlinks = 40

// Disk is a whole block device. The io controller accepts only whole devices.
type Disk struct {
	Device
	Name string // in /sys/block
}

func (d Disk) String() string { return fmt.Sprintf("%s (%s)", d.Name, d.Device) }

// FollowSymlinks resolves all symbolic links in a path on the host. Its result differs from filepath.EvalSymlinks,
// because the host's root directory may differ from the root directory of this process.
func FollowSymlinks(host FS, name string) (string, error) {
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

// WholeDisk returns the disk of a device. For a partition it returns the disk that has the partition; for another
// device it returns the device itself. Device mapper, loop and md devices count as disks.
func WholeDisk(host FS, dev Device) (whole Disk, isPartition bool, err error) {
	node := "/sys/dev/block/" + dev.String()
	link, err := host.Readlink(node)
	if err != nil {
		return Disk{}, false, fmt.Errorf("device %s is not in /sys/dev/block: %w", dev, err)
	}
	if _, err := host.ReadFile(node + "/partition"); err != nil {
		return Disk{Device: dev, Name: path.Base(link)}, false, nil
	}

	name := path.Base(path.Dir(link))
	number, err := host.ReadFile("/sys/block/" + name + "/dev")
	if err != nil {
		return Disk{}, true, fmt.Errorf("find the disk of partition %s: %w", dev, err)
	}
	parent, err := ParseDevice(strings.TrimSpace(string(number)))
	if err != nil {
		return Disk{}, true, fmt.Errorf("/sys/block/%s/dev: %w", name, err)
	}
	return Disk{Device: parent, Name: name}, true, nil
}
