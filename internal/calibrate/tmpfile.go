// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/iodisks"
)

const (
	// maxFile is the maximum size of the file, as in the kernel's script. The file takes at most half of the free
	// space.
	maxFile = 16 << 30
	minFile = 64 << 20
)

// openFile makes a file without a name in a directory on the disk. The kernel removes the file when it is closed, even
// if this process is killed.
func openFile(host Host, disk Disk, dir string) (file *os.File, size int64, err error) {
	if err := checkDirectory(host, disk, dir); err != nil {
		return nil, 0, err
	}
	target, err := iocgroup.FollowSymlinks(host, dir) // the kernel would follow absolute links to files outside of host.Root
	if err != nil {
		return nil, 0, fmt.Errorf("find %s: %w", dir, err)
	}
	name := filepath.Join(host.Root, target)
	var free unix.Statfs_t
	if err := unix.Statfs(name, &free); err != nil {
		return nil, 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if size = min(maxFile, int64(free.Bavail)*free.Bsize/2) / largeRequest * largeRequest; size < minFile {
		return nil, 0, fmt.Errorf("%s has too little free space: half of it is %s, and the measurement needs %s", dir, inUnits(float64(size)), inUnits(minFile))
	}

	fd, err := unix.Open(name, unix.O_TMPFILE|unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("make a file without a name for direct I/O in %s: %w", dir, err)
	}
	file = os.NewFile(uintptr(fd), name)
	overwriteInPlace(fd)
	if err := unix.Fallocate(fd, 0, 0, size); err != nil {
		return nil, 0, fmt.Errorf("allocate %s in %s: %w", inUnits(float64(size)), dir, errors.Join(err, file.Close()))
	}
	return file, size, nil
}

// overwriteInPlace makes btrfs overwrite the blocks of a file in place, as the kernel's script does. Other filesystems
// do this by default.
func overwriteInPlace(fd int) {
	const noCopyOnWrite = 0x00800000 // FS_NOCOW_FL in include/uapi/linux/fs.h
	if flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS); err == nil {
		_ = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, flags|noCopyOnWrite)
	}
}

// checkDirectory returns an error unless a directory is on the disk, and on no other disk.
func checkDirectory(host iodisks.FS, disk Disk, dir string) error {
	disks, err := iodisks.NewNode(host).DisksOf(dir)
	if err != nil {
		return fmt.Errorf("find the disk of %s: %w", dir, err)
	}
	var names []string
	for _, one := range disks {
		names = append(names, physical(host, one.Name, 0)...)
	}
	slices.Sort(names)
	if names = slices.Compact(names); !slices.Equal(names, []string{disk.Name}) {
		return fmt.Errorf("%s is on %s, but must be only on %s; name a directory of a filesystem on this disk", dir, strings.Join(names, ", "), disk.Name)
	}
	return nil
}

// physical returns the disks below a disk of device mapper or md, or else the disk itself.
func physical(host iodisks.FS, name string, depth int) (names []string) {
	const maxDepth = 10 // of devices on devices; the kernel allows no loops
	slaves, err := host.ReadDir(path.Join("/sys/block", name, "slaves"))
	if err != nil || len(slaves) == 0 || depth > maxDepth {
		return []string{name}
	}
	for _, slave := range slaves {
		whole, err := diskOf(host, path.Join("/sys/block", name, "slaves", slave))
		if err != nil {
			return []string{name}
		}
		names = append(names, physical(host, whole.Name, depth+1)...)
	}
	return names
}

// diskOf returns the disk of a device with a directory in sysfs.
func diskOf(host iodisks.FS, dir string) (iocgroup.Disk, error) {
	number, err := host.ReadFile(path.Join(dir, "dev"))
	if err != nil {
		return iocgroup.Disk{}, err
	}
	dev, err := iocgroup.ParseDevice(strings.TrimSpace(string(number)))
	if err != nil {
		return iocgroup.Disk{}, err
	}
	whole, _, err := iocgroup.WholeDisk(host, dev)
	return whole, err
}
