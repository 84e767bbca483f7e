// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iodisks

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/kubeletdir"
	"github.com/qos-nri/qos-nri-plugin/pkg/mountinfo"
)

// ErrNoPID is the error for a volume that can only be found in the mounts of its container.
var ErrNoPID = errors.New("the runtime has not reported the PID of the container; if the runtime is CRI-O, update it to 1.36 or later")

// Volume is a volume with its disks.
type Volume struct {
	target classes.Holder
	mount  *mount // nil for a block device without a filesystem
	Disks  []iocgroup.Disk
}

// Limit returns values that set the same limits on each disk of the volume.
func (v Volume) Limit(limits iocgroup.Value) iocgroup.Values {
	all := iocgroup.Values{}
	for _, disk := range v.Disks {
		all[iocgroup.Setting{Device: disk.Device}] = limits
	}
	return all
}

// Finder finds the disks of volumes. It reads each file and finds each volume only once, so a finder is used for one
// operation, or for one round. It is safe for concurrent use.
type Finder struct {
	host FS
	node *Node
	// `volumesOf` returns the paths of those volumes of a container that have classes.
	volumesOf func(container, podUID string) []string
	// `running` has the results of checkRunning, and `inContainer` has the mounts. The key of both is the container's
	// ID and not its PID, because a new process may have the PID of an ended one.
	running     memo[string, error]
	inContainer memo[string, containerMounts]
	// `found` has the volumes, and `shared` has the results of checkShared. The key of both is the ID of the volume.
	found  memo[string, foundVolume]
	shared memo[string, error]
}

// containerMounts has the last mount at each path at which a container has a volume, or nil if there is no mount.
type containerMounts struct {
	at  map[string]*mount
	err error
}

type foundVolume struct {
	volume Volume
	err    error
}

// NewFinder returns a Finder. The function `volumesOf` returns the paths of those volumes of a container that have
// classes.
func NewFinder(host FS, volumesOf func(container, podUID string) []string) *Finder {
	return &Finder{host: host, node: NewNode(host), volumesOf: volumesOf}
}

// Find finds the disks and the mount of a volume. A volume that is a block device has no mount. The error is
// classes.ErrNoBlockDevice if the filesystem has no block device, and classes.ErrEnded if the container's process has
// ended.
func (f *Finder) Find(target classes.Holder) (Volume, error) {
	found := f.found.get(target.ID, func() foundVolume {
		v, err := f.search(target)
		return foundVolume{v, err}
	})
	return found.volume, found.err
}

// FindExclusive works like Find. If a disk of the volume also has data outside of the volume, the error is
// classes.ErrSharedDisk.
func (f *Finder) FindExclusive(target classes.Holder) (Volume, error) {
	found, err := f.Find(target)
	if err != nil {
		return found, err
	}
	return found, f.shared.get(target.ID, func() error { return f.node.checkShared(found) })
}

func (f *Finder) search(target classes.Holder) (Volume, error) {
	found := Volume{target: target}
	if device := target.VolumeSources[target.Volume].Device; device != "" {
		if err := f.checkRunning(target); err != nil {
			return found, err
		}
		whole, err := f.diskOf(device)
		if err != nil {
			return found, fmt.Errorf("find the disk of %s: %w", target.Volume, err)
		}
		found.Disks = []iocgroup.Disk{whole}
		return found, nil
	}

	mount, err := f.mountOf(target)
	if err != nil {
		return found, err
	}
	found.mount = mount
	found.Disks, err = f.node.disksOf(mount)
	if errors.Is(err, errNoBlockDevice) {
		return found, fmt.Errorf("%w: %s is on %s, but the kernel limits only the I/O of block devices; remove the request",
			classes.ErrNoBlockDevice, target.Volume, mount.fstype)
	}
	if err != nil {
		return found, fmt.Errorf("find the disk of %s: %w", target.Volume, err)
	}
	return found, nil
}

// checkRunning returns classes.ErrEnded if the process of the container has ended. It does not read the mounts of the
// container.
func (f *Finder) checkRunning(target classes.Holder) error {
	if target.PID <= 0 {
		return nil
	}
	return f.running.get(target.ContainerID, func() error {
		file, err := mountinfo.Open(f.host, mountinfo.File(target.PID))
		if err != nil {
			return fmt.Errorf("find the disk of the volume: %w", orEnded(err))
		}
		return file.Close()
	})
}

// orEnded returns classes.ErrEnded if `err` shows that the process has ended: the kernel refuses to show the mounts of
// an ended process with ENOENT, and those of a zombie with EINVAL (fs/proc_namespace.c).
func orEnded(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("%w: %w", classes.ErrEnded, err)
	}
	return err
}

// mountOf returns the mount of a volume. If the kubelet mounted the volume for the pod, mountOf returns the kubelet's
// mount. For other volumes, e.g. hostPath volumes, it searches the container's own mounts. They are the second choice,
// because the container can change them: a symbolic link in its image changes the path of a mount, a process with its
// own mount namespace can hide a mount, and the container can have so many mounts that reading them takes too long.
func (f *Finder) mountOf(target classes.Holder) (*mount, error) {
	ofKubelet, err := f.mountOfKubelet(target)
	switch {
	case err != nil:
		return nil, err
	case ofKubelet != nil:
		return ofKubelet, f.checkRunning(target)
	case target.PID <= 0:
		return nil, fmt.Errorf("find the disk of the volume: %w", ErrNoPID)
	}

	mounts := f.inContainer.get(target.ContainerID, func() containerMounts {
		return mountsAt(f.host, target.PID, f.volumesOf(target.ContainerID, target.PodUID))
	})
	if _, read := mounts.at[target.Volume]; !read && mounts.err == nil {
		mounts = mountsAt(f.host, target.PID, []string{target.Volume})
	}
	if mounts.err != nil {
		return nil, fmt.Errorf("find the disk of the volume: %w", orEnded(mounts.err))
	}
	if mount := mounts.at[target.Volume]; mount != nil {
		return mount, nil
	}
	return nil, fmt.Errorf("%w: the container has no mount and no device at %s; name the mountPath or devicePath of a volume",
		classes.ErrNoBlockDevice, target.Volume)
}

// mountsAt returns the mounts of a process at some paths. The last mount at a path hides the earlier ones.
func mountsAt(host FS, pid int, paths []string) containerMounts {
	found := containerMounts{at: map[string]*mount{}}
	for _, path := range paths {
		found.at[path] = nil
	}
	found.err = mountinfo.Read(host, mountinfo.File(pid), mountinfo.ContainerLimit, func(m mountinfo.Mount) {
		if _, wanted := found.at[m.Point]; wanted {
			found.at[m.Point] = newMount(m)
		}
	})
	return found
}

// mountOfKubelet returns the mount that the kubelet made for a volume of a pod, or nil if there is none, e.g. for an emptyDir volume,
// which is only a directory.
func (f *Finder) mountOfKubelet(target classes.Holder) (*mount, error) {
	dir := target.VolumeSources[target.Volume].Dir
	if dir == "" {
		return nil, nil //nolint:nilnil // the kubelet has mounted nothing for the volume
	}
	mounts := f.node.read()
	mount := mounts.of(dir)
	if mount != nil && kubeletdir.IsVolume(mount.point, target.PodUID) {
		return mount, nil
	}
	if mounts.err != nil {
		return nil, fmt.Errorf("find the disk of the volume: %w", mounts.err)
	}
	return nil, nil //nolint:nilnil // the directory is on a filesystem of the node
}

// diskOf returns the whole disk of a volume of mode Block. `numbers` has the major and minor number of its device, e.g. "8:17".
func (f *Finder) diskOf(numbers string) (iocgroup.Disk, error) {
	dev, err := iocgroup.ParseDevice(numbers)
	if err != nil {
		return iocgroup.Disk{}, err
	}
	whole, _, err := iocgroup.WholeDisk(f.host, dev)
	return whole, err
}
