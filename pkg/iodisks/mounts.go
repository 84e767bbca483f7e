// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iodisks

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/mountinfo"
)

// An alias is an entry of Devices that names disks by their use. The disks can differ between nodes.
const (
	// AliasRootFS selects the disks that contain the writable layers of containers.
	AliasRootFS = "rootfs"
	// AliasEphemeral selects the disks that contain the kubelet's directory, where the emptyDir volumes are.
	AliasEphemeral = "ephemeral"
)

// IsAlias reports whether an entry of Devices is an alias.
func IsAlias(name string) bool { return name == AliasRootFS || name == AliasEphemeral }

var (
	// layerDir matches the directory of an overlay mount's writable layer, as containerd's snapshotters and CRI-O's
	// storage library name it.
	layerDir = regexp.MustCompile(`^(/.+/(?:io\.containerd\.snapshotter\.v1\.\w+/snapshots|overlay))/[^/]+/(?:fs|diff)$`)
	// rootDir matches the root directory of a container, as containerd names it.
	rootDir = regexp.MustCompile(`/io\.containerd\.runtime\.v2\.task/[^/]+/[^/]+/rootfs$`)
	// kubeletDir matches the mount point of a pod's volume.
	kubeletDir = regexp.MustCompile(`^(/.+/pods)/[^/]+/volumes/`)
)

// aliasedDirs returns the directories of an alias. It takes them from the mounts of running pods, because the runtime
// and the kubelet can be configured to use other directories than usual. Without such mounts, it returns the usual
// directories that exist. It returns none for writable layers that are not overlays.
func (t *mountTable) aliasedDirs(alias string) ([]string, error) {
	match, usual := func(m *mount) []string { return layerDir.FindStringSubmatch(m.layer) },
		[]string{"/var/lib/containerd", "/var/lib/containers/storage"}
	if alias == AliasEphemeral {
		match, usual = func(m *mount) []string { return kubeletDir.FindStringSubmatch(m.point) }, []string{"/var/lib/kubelet"}
	}

	var dirs []string
	for _, mount := range t.all {
		if found := match(mount); len(found) > 1 && !slices.Contains(dirs, found[1]) {
			dirs = append(dirs, found[1])
		}
	}
	if len(dirs) > 0 || alias == AliasRootFS && len(t.plainRoots()) > 0 {
		return dirs, nil
	}

	for _, dir := range usual {
		if _, err := iocgroup.FollowSymlinks(t.host, dir); err == nil {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) == 0 {
		return nil, fmt.Errorf("the directory is unknown: no mount of a running pod shows it, and there is no %s", strings.Join(usual, " or "))
	}
	return dirs, nil
}

// mount is a mount of the node or of a container.
type mount struct {
	iocgroup.Device
	point, fstype, source string
	// isWhole is true if the mount shows the whole filesystem, and not only a directory of it.
	isWhole bool
	// layer is the directory of the writable layer, if the mount is an overlay.
	layer string
}

func newMount(m mountinfo.Mount) *mount {
	return &mount{
		Device: iocgroup.Device{Major: m.Major, Minor: m.Minor}, point: m.Point, fstype: m.Type, source: m.Source, isWhole: m.Root == "/", layer: upperDir(m),
	}
}

// upperDir returns the directory of the writable layer of an overlay mount.
func upperDir(m mountinfo.Mount) string {
	if m.Type != "overlay" {
		return ""
	}
	for option := range strings.SplitSeq(m.SuperOptions, ",") {
		if dir, found := strings.CutPrefix(option, "upperdir="); found {
			return strings.Clone(dir)
		}
	}
	return ""
}

// plainRoots returns the root directories that are not overlays. Containers have them with the snapshotters for device
// mapper, ZFS, btrfs and plain directories.
func (t *mountTable) plainRoots() (roots []*mount) {
	for _, mount := range t.all {
		if mount.fstype != "overlay" && rootDir.MatchString(mount.point) {
			roots = append(roots, mount)
		}
	}
	return roots
}

// disksOfRoots returns the disks of the root directories that are not overlays. It returns an error for devices of
// single containers, because a class cannot name the device of each container.
func (n *Node) disksOfRoots() (disks []iocgroup.Disk, err error) {
	reasons := map[string]bool{}
	for _, root := range n.read().plainRoots() {
		found, err := n.disksOf(root)
		if err == nil && root.isWhole && root.Major != 0 {
			found, err = nil, errors.New("each container has a device of its own")
		}
		disks = append(disks, found...)
		if err != nil {
			reasons[fmt.Sprintf("the root directories of containers are on %s: %v", root.fstype, err)] = true
		}
	}
	if len(reasons) > 0 {
		err = errors.New(strings.Join(slices.Sorted(maps.Keys(reasons)), "; "))
	}
	return disks, err
}

func matchAlias(node *Node, alias string) (Match, error) {
	mounts := node.read()
	if len(mounts.all) == 0 && mounts.err != nil {
		return Match{}, fmt.Errorf("find the disk of %s: %w", alias, mounts.err)
	}

	var found Match
	dirs, err := mounts.aliasedDirs(alias)
	if alias == AliasRootFS {
		disks, rootErr := node.disksOfRoots()
		found.Disks, err = disks, errors.Join(err, rootErr)
	}
	for _, dir := range dirs {
		disks, dirErr := node.disksOfDir(dir)
		found.Disks, err = append(found.Disks, disks...), errors.Join(err, dirErr)
	}
	if err != nil {
		found.Ignored = []string{fmt.Sprintf("%s is ignored: %v", alias, err)}
	}
	return found, nil
}

// disksOfDir returns the disks of the filesystem that contains a directory.
func (n *Node) disksOfDir(dir string) ([]iocgroup.Disk, error) {
	mount := n.read().of(dir)
	if mount == nil {
		return nil, fmt.Errorf("%s is on no mounted filesystem", dir)
	}
	disks, err := n.disksOf(mount)
	if err != nil {
		return nil, fmt.Errorf("%s is on %s: %w", dir, mount.fstype, err)
	}
	return disks, nil
}

// errNoBlockDevice is the error for a filesystem without a block device. Limits of block devices have no effect on its
// I/O.
var errNoBlockDevice = errors.New("this filesystem has no block device")

// disksOfMount returns the disks with the data of a mounted filesystem. It returns errNoBlockDevice for overlay, tmpfs,
// FUSE and network filesystems, because their data is on no block device, or on an unknown one. Most of these mounts
// have the major device number 0.
func disksOfMount(host FS, m *mount) ([]iocgroup.Disk, error) {
	switch {
	case m.fstype == "btrfs":
		return disksOfBtrfs(host, m.source)
	case m.Major == 0 || strings.HasPrefix(m.fstype, "fuse"):
		return nil, errNoBlockDevice
	}
	whole, _, err := iocgroup.WholeDisk(host, m.Device)
	return []iocgroup.Disk{whole}, err
}

// disksOfBtrfs returns all disks of a btrfs. The mount has an anonymous device number, and its source is one of the disks.
func disksOfBtrfs(host FS, source string) ([]iocgroup.Disk, error) {
	node, err := iocgroup.FollowSymlinks(host, source)
	if err != nil {
		return nil, err
	}
	major, minor, err := host.BlockDevice(node)
	if err != nil {
		return nil, err
	}
	files, err := host.Glob("/sys/fs/btrfs/*/devices/*/dev")
	if err != nil {
		return nil, err
	}

	byFilesystem := map[string][]iocgroup.Device{}
	filesystem := ""
	for _, file := range files {
		number, err := host.ReadFile(file)
		if err != nil {
			return nil, err
		}
		dev, err := iocgroup.ParseDevice(strings.TrimSpace(string(number)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		of := path.Dir(path.Dir(file))
		byFilesystem[of] = append(byFilesystem[of], dev)
		if dev == (iocgroup.Device{Major: major, Minor: minor}) {
			filesystem = of
		}
	}

	var disks []iocgroup.Disk
	for _, dev := range byFilesystem[filesystem] {
		whole, _, err := iocgroup.WholeDisk(host, dev)
		if err != nil {
			return nil, err
		}
		disks = append(disks, whole)
	}
	if len(disks) == 0 {
		return nil, fmt.Errorf("%s is not in /sys/fs/btrfs", source)
	}
	return disks, nil
}
