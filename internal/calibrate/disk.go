// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/iodisks"
)

// Disk is a whole disk.
type Disk struct {
	iocgroup.Disk
	iodisks.Identity
	// Path is a link in /dev/disk/by-id, whose name survives restarts of the machine. Without such a link, it is a file
	// in /dev.
	Path string
	// Size is in bytes.
	Size       int64
	Rotational bool
}

// Device returns the path of the disk's file in /dev.
func (d Disk) Device() string { return deviceOf(d.Name) }

// deviceOf returns the path in /dev for a name in /sys/block. In these names, the kernel replaces slashes by
// exclamation marks.
func deviceOf(name string) string { return "/dev/" + strings.ReplaceAll(name, "!", "/") }

// String describes the disk for users, with its size in units of 1000.
func (d Disk) String() string {
	text := fmt.Sprintf("%s (%s, %s", d.Device(), d.Number(), inUnits(float64(d.Size)))
	if identity := d.Identity.String(); identity != "" {
		text += ", " + identity
	}
	return text + ")"
}

// Number returns the number of the disk, e.g. "8:0".
func (d Disk) Number() string { return d.Disk.Device.String() }

// inUnits returns a number of bytes in units of 1000.
func inUnits(n float64) string {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB"}
	i := 0
	for ; n >= 1000 && i < len(units)-1; i++ {
		n /= 1000
	}
	return strconv.FormatFloat(n, 'g', 3, 64) + " " + units[i]
}

// Find finds the disk of a file in /dev. If the file is a partition, the error names its disk.
func Find(host iodisks.FS, name string) (Disk, error) {
	file, err := iocgroup.FollowSymlinks(host, name)
	if err != nil {
		return Disk{}, fmt.Errorf("find %s: %w", name, err)
	}
	major, minor, err := host.BlockDevice(file)
	if err != nil {
		return Disk{}, fmt.Errorf("%s is not a disk; name one like /dev/sda: %w", name, err)
	}
	whole, isPartition, err := iocgroup.WholeDisk(host, iocgroup.Device{Major: major, Minor: minor})
	if err != nil {
		return Disk{}, err
	}
	if isPartition {
		return Disk{}, fmt.Errorf("%s is a partition, and the kernel's io controller works on whole disks; name the disk %s", name, deviceOf(whole.Name))
	}

	d := Disk{Disk: whole, Identity: iodisks.Identify(host, whole.Name), Path: stablePath(host, whole.Name)}
	sectors, err := readNumber(host, path.Join("/sys/block", whole.Name, "size"))
	if err != nil {
		return d, err
	}
	rotational, err := readNumber(host, path.Join("/sys/block", whole.Name, "queue/rotational"))
	d.Size, d.Rotational = sectors*512, rotational == 1
	return d, err
}

func readNumber(host iocgroup.FS, name string) (int64, error) {
	data, err := host.ReadFile(name)
	if err != nil {
		return 0, err
	}
	number, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	return number, nil
}

// stablePath returns the first link to a disk in /dev/disk/by-id, or else its file in /dev.
func stablePath(host iodisks.FS, disk string) string {
	const byID = "/dev/disk/by-id"
	names, _ := host.ReadDir(byID) // the directory does not exist without udev
	for _, name := range names {
		if file, err := iocgroup.FollowSymlinks(host, path.Join(byID, name)); err == nil && file == deviceOf(disk) {
			return path.Join(byID, name)
		}
	}
	return deviceOf(disk)
}

// Partitions returns the names of the partitions of a disk.
func Partitions(host iocgroup.FS, disk Disk) ([]string, error) {
	dir := path.Join("/sys/block", disk.Name)
	names, err := host.ReadDir(dir)
	return slices.DeleteFunc(names, func(name string) bool {
		_, err := host.ReadFile(path.Join(dir, name, "partition"))
		return err != nil
	}), err
}

// ErrInUse is the error for a disk that must not be overwritten.
var ErrInUse = errors.New("is in use")

// CheckUnused returns ErrInUse with the reasons if a disk or one of its partitions has a mounted filesystem, is used
// for swap, or is a part of another device, e.g. of a logical volume. The kernel knows more uses, such as mounts of
// other processes. It refuses to open a used disk with O_EXCL.
func CheckUnused(host iodisks.FS, disk Disk) error {
	points, err := iodisks.NewNode(host).MountPoints(disk.Disk)
	if err != nil {
		return fmt.Errorf("check whether %s is mounted: %w", disk.Device(), err)
	}
	var reasons []string
	if len(points) > 0 {
		reasons = append(reasons, "it is mounted at "+strings.Join(points, ", "))
	}

	partitions, err := Partitions(host, disk)
	if err != nil {
		return err
	}
	swaps := swapFiles(host)
	for _, partition := range append([]string{""}, partitions...) { // the first is the disk itself
		dir := path.Join("/sys/block", disk.Name, partition)
		name := path.Base(dir)
		if holders, err := host.ReadDir(path.Join(dir, "holders")); err == nil && len(holders) > 0 {
			reasons = append(reasons, name+" is a part of "+strings.Join(holders, ", "))
		}
		number, err := host.ReadFile(path.Join(dir, "dev"))
		if err != nil {
			return err
		}
		if swaps[strings.TrimSpace(string(number))] {
			reasons = append(reasons, name+" is used for swap")
		}
	}
	if len(reasons) > 0 {
		return fmt.Errorf("%s %w: %s", disk.Device(), ErrInUse, strings.Join(reasons, "; "))
	}
	return nil
}

// swapFiles returns the device numbers of the swap areas in /proc/swaps. Its first line has titles.
func swapFiles(host iodisks.FS) map[string]bool {
	numbers := map[string]bool{}
	data, _ := host.ReadFile("/proc/swaps") // a kernel without swap lacks this file
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if major, minor, err := host.BlockDevice(fields[0]); err == nil {
			numbers[iocgroup.Device{Major: major, Minor: minor}.String()] = true
		}
	}
	return numbers
}
