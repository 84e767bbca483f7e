// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"syscall"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/kubeletdir"
)

// errNoPID is the error for a volume that can only be found in the mounts of its container.
var errNoPID = errors.New("the runtime has not reported the PID of the container; if the runtime is CRI-O, update it to 1.36 or later")

type volume struct {
	target classes.Holder
	mount  *mount // nil for a block device without a filesystem
	disks  []disk
}

// isWhole reports whether the volume is a whole filesystem, or a subPath of a filesystem that belongs to the pod. For a
// subPath, the kubelet first mounts the whole filesystem for the pod. mounts has the mounts of PID 1.
func (v volume) isWhole(mounts []*mount) bool {
	return v.mount != nil && (v.mount.isWhole || slices.ContainsFunc(mounts, func(m *mount) bool {
		return isSame(m, v.mount) && m.isWhole && kubeletdir.IsVolume(m.point, v.target.PodUID)
	}))
}

// isSame reports whether two mounts have the same filesystem.
func isSame(a, b *mount) bool { return a.device == b.device }

// limit returns values that set the same limits on each disk of the volume.
func (v volume) limit(limits value) values {
	all := values{}
	for _, disk := range v.disks {
		all[setting{device: disk.device}] = limits
	}
	return all
}

// finder finds the disks of volumes. It reads mounts and disks only once, so each operation needs a new finder.
type finder struct {
	host   FS
	mounts map[int][]*mount
	disks  map[*mount]disksFound
	// ofNode has the mounts that contain the node's own directories. checkShared fills it at its first call.
	ofNode []*mount
}

type disksFound struct {
	disks []disk
	err   error
}

func newFinder(host FS) *finder {
	return &finder{host: host, mounts: map[int][]*mount{}, disks: map[*mount]disksFound{}}
}

// next makes the finder ready for another pod. It drops all mounts but those of PID 1, because a new process may have
// the PID of an ended one. If the mounts of PID 1 are outdated, the worst result is that a pod keeps all its limits.
func (f *finder) next() {
	maps.DeleteFunc(f.mounts, func(pid int, _ []*mount) bool { return pid != 1 })
}

func (f *finder) mountsOf(pid int) ([]*mount, error) {
	if mounts, read := f.mounts[pid]; read {
		return mounts, nil
	}
	mounts, err := mountsOf(f.host, pid)
	if err == nil {
		f.mounts[pid] = mounts
	}
	return mounts, err
}

// mountsOfContainer returns the mounts of a container, or none if the runtime has not reported the container's PID.
func (f *finder) mountsOfContainer(target classes.Holder) ([]*mount, error) {
	if target.PID <= 0 {
		return nil, nil
	}
	return f.mountsOf(target.PID)
}

func (f *finder) disksOf(mount *mount) ([]disk, error) {
	found, known := f.disks[mount]
	if !known {
		found.disks, found.err = disksOfMount(f.host, mount)
		f.disks[mount] = found
	}
	return found.disks, found.err
}

// mountOf returns the mount of a volume. If the kubelet mounted the volume for the pod, mountOf returns the kubelet's
// mount. For other volumes, e.g. hostPath volumes, it searches the parameter mounts, which has the container's own mounts.
// The container's mounts are the second choice, because the container can change them: a symbolic link in its image changes
// the path of a mount, and a process with its own mount namespace can hide a mount.
func (f *finder) mountOf(target classes.Holder, mounts []*mount) (*mount, error) {
	ofKubelet, err := f.mountOfKubelet(target)
	if err != nil || ofKubelet != nil {
		return ofKubelet, err
	}
	if target.PID <= 0 {
		return nil, fmt.Errorf("find the disk of the volume: %w", errNoPID)
	}
	if mount := lastAt(mounts, target.Volume); mount != nil {
		return mount, nil
	}
	return nil, fmt.Errorf("%w: the container has no mount and no device at %s; name the mountPath or devicePath of a volume",
		classes.ErrNoBlockDevice, target.Volume)
}

// mountOfKubelet returns the mount that the kubelet made for a volume of a pod, or nil if there is none, e.g. for an emptyDir volume,
// which is only a directory.
func (f *finder) mountOfKubelet(target classes.Holder) (*mount, error) {
	dir := target.VolumeSources[target.Volume].Dir
	if dir == "" {
		return nil, nil //nolint:nilnil // the kubelet has mounted nothing for the volume
	}
	mounts, err := f.mountsOf(1)
	if err != nil {
		return nil, fmt.Errorf("find the disk of the volume: %w", err)
	}
	if mount := mountOf(f.host, mounts, dir); mount != nil && kubeletdir.IsVolume(mount.point, target.PodUID) {
		return mount, nil
	}
	return nil, nil //nolint:nilnil // the directory is on a filesystem of the node
}

// lastAt returns the last mount at a path, or nil if there is no mount at the path. The last mount hides the earlier ones.
func lastAt(mounts []*mount, path string) (last *mount) {
	for _, mount := range mounts {
		if mount.point == path {
			last = mount
		}
	}
	return last
}

// find finds the disks and the mount of a volume. A volume that is a block device has no mount. The error is
// classes.ErrNoBlockDevice if the filesystem has no block device, and classes.ErrEnded if the container's process has
// ended.
func (f *finder) find(target classes.Holder) (volume, error) {
	found := volume{target: target}
	mounts, err := f.mountsOfContainer(target)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EINVAL) { // EINVAL is the error of a zombie (fs/proc_namespace.c)
		return found, fmt.Errorf("find the disk of the volume: %w: %w", classes.ErrEnded, err)
	}
	if err != nil {
		return found, fmt.Errorf("find the disk of the volume: %w", err)
	}

	if device := target.VolumeSources[target.Volume].Device; device != "" {
		whole, err := f.diskOf(device)
		if err != nil {
			return found, fmt.Errorf("find the disk of %s: %w", target.Volume, err)
		}
		found.disks = []disk{whole}
		return found, nil
	}

	mount, err := f.mountOf(target, mounts)
	if err != nil {
		return found, err
	}
	found.mount = mount
	found.disks, err = f.disksOf(found.mount)
	if errors.Is(err, errNoBlockDevice) {
		return found, fmt.Errorf("%w: %s is on %s, but the kernel limits only the I/O of block devices; remove the request",
			classes.ErrNoBlockDevice, target.Volume, found.mount.fstype)
	}
	if err != nil {
		return found, fmt.Errorf("find the disk of %s: %w", target.Volume, err)
	}
	return found, nil
}

// diskOf returns the whole disk of a volume of mode Block. numbers has the major and minor number of its device, e.g. "8:17".
func (f *finder) diskOf(numbers string) (disk, error) {
	dev, err := parseDevice(numbers)
	if err != nil {
		return disk{}, err
	}
	whole, _, err := wholeDisk(f.host, dev)
	return whole, err
}

// volumeDir matches the directories in which the kubelet mounts volumes.
var volumeDir = regexp.MustCompile(`/pods/[^/]+/(?:volumes|volume-subpaths)/|/plugins/kubernetes\.io/`)

// checkShared returns classes.ErrSharedDisk if a disk of the volume also has data outside of the volume. A limit of
// this disk would also apply to the pod's I/O to that data. A disk has such data if the host has mounted a filesystem
// of the disk for itself, or if the volume is only a directory of its filesystem.
func (f *finder) checkShared(v volume) error {
	mounts, err := f.mountsOf(1)
	if err != nil {
		return fmt.Errorf("check whether the disk of %s is shared: %w", v.target.Volume, err)
	}
	if f.ofNode == nil {
		f.ofNode = mountsOfNode(f.host, mounts)
	}
	isWhole := v.isWhole(mounts)

	for _, other := range mounts {
		isVolume := isWhole && isSame(other, v.mount) && !slices.Contains(f.ofNode, other)
		if isVolume || volumeDir.MatchString(other.point) {
			continue
		}
		disks, err := f.disksOf(other)
		if err != nil {
			continue // the mount is on no disk
		}
		for _, disk := range disks {
			if slices.Contains(v.disks, disk) {
				return fmt.Errorf("%w: disk %s of %s also contains the node's mount %s; use a class with sharedDisk: limit, or remove the request",
					classes.ErrSharedDisk, disk, v.target.Volume, other.point)
			}
		}
	}
	return nil
}

// mountsOfNode returns the mounts that contain the node's own directories. A volume on such a mount shares its disk
// with the node.
func mountsOfNode(host FS, mounts []*mount) []*mount {
	dirs := []string{"/"}
	for _, alias := range []string{aliasRootFS, aliasEphemeral} {
		if found, err := aliasedDirs(host, mounts, alias); err == nil {
			dirs = append(dirs, found...)
		}
	}

	var all []*mount
	for _, dir := range dirs {
		all = append(all, mountOf(host, mounts, dir))
	}
	return all
}
