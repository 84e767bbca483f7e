// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/iodisks"
)

// Host is the machine whose disk is measured. Root is the directory that contains its files.
type Host struct {
	iodisks.FS
	Root string
}

// Run measures a disk, or a file in Options.Directory. With Options.Write, it overwrites this target. It changes
// settings of the disk's queue, and restores them before it returns.
func Run(ctx context.Context, host Host, disk Disk, o Options) (result Result, err error) {
	if err := checkCost(host, disk); err != nil {
		return Result{}, err
	}
	target, size, err := open(host, disk, o)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, target.Close()) }()

	restore, err := bypass(host, disk)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, restore()) }()
	return measure(ctx, target, size, disk.Rotational, o)
}

// checkCost returns an error if iocost is enabled for the disk. The measured speeds would then be those of the present
// model, and not those of the disk.
func checkCost(host Host, disk Disk) error {
	tree, err := cgroup.Detect(host)
	if err != nil {
		return err
	}
	root, version, err := tree.IORoot()
	if err != nil || version == 1 {
		return nil //nolint:nilerr // no io controller, so no iocost
	}
	costs, err := iocgroup.ReadCosts(host, root)
	if err != nil {
		return err
	}
	if costs[disk.Disk.Device].Enabled() {
		return fmt.Errorf("iocost is enabled for %s, so the measurement would show its present model, not the disk; "+
			"remove the disk from CostModels of the class file, or run: echo '%s enable=0' > %s/io.cost.qos", disk.Device(), disk.Number(), root)
	}
	return nil
}

func open(host Host, disk Disk, o Options) (target *os.File, size int64, err error) {
	if o.Directory != "" {
		return openFile(host, disk, o.Directory)
	}
	target, err = openDisk(host, disk, o.Write)
	return target, disk.Size, err
}

// openDisk opens a disk for direct I/O. With `write`, the kernel refuses to open a disk that is in use, e.g. mounted
// (O_EXCL of open(2)).
func openDisk(host Host, disk Disk, write bool) (*os.File, error) {
	flags := os.O_RDONLY
	if write {
		if err := CheckUnused(host, disk); err != nil {
			return nil, err
		}
		flags = os.O_RDWR | unix.O_EXCL
	}

	file, err := os.OpenFile(filepath.Join(host.Root, disk.Device()), flags|unix.O_DIRECT, 0)
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("%s %w by the kernel or by another process: %w", disk.Device(), ErrInUse, err)
	}
	if err != nil {
		return nil, err
	}
	if err := checkNumber(file, disk); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// checkNumber returns an error if an open file is not the device of the disk. The /dev of a container may have files of
// former disks.
func checkNumber(file *os.File, disk Disk) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return &os.PathError{Op: "fstat", Path: file.Name(), Err: err}
	}
	number := iocgroup.Device{Major: unix.Major(stat.Rdev), Minor: unix.Minor(stat.Rdev)}
	if stat.Mode&unix.S_IFMT != unix.S_IFBLK || number != disk.Disk.Device {
		return fmt.Errorf("%s is not the file of the disk %s (%s); run the command on the host, or pass --host-root", file.Name(), disk.Name, disk.Number())
	}
	return nil
}
