// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iodisks

import (
	"fmt"
	"path"
	"regexp"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/kubeletdir"
	"github.com/qos-nri/qos-nri-plugin/pkg/mountinfo"
)

// Node has the mounts of the node, which it reads once, and the disks of their filesystems. It is safe for concurrent
// use.
type Node struct {
	host   FS
	mounts memo[struct{}, *mountTable]
	disks  memo[filesystem, disksFound]
	// `byDisk` has the mounts of each disk, without those of pods' volumes. `ofNode` has the mounts that contain the
	// node's own directories.
	byDisk memo[struct{}, map[iocgroup.Disk][]*mount]
	ofNode memo[struct{}, []*mount]
}

// filesystem identifies a filesystem. The source is empty if the device number identifies the disk.
type filesystem struct {
	iocgroup.Device
	fstype, source string
}

type disksFound struct {
	disks []iocgroup.Disk
	err   error
}

// NewNode returns the mounts of a node. It reads them when they are needed.
func NewNode(host FS) *Node { return &Node{host: host} }

// mountTable has the mounts of the node, in the order in which they were made.
type mountTable struct {
	host FS
	all  []*mount
	// `at` has the last mount at each path. It hides the earlier ones.
	at map[string]*mount
	// err is the reason why mounts are missing, or nil.
	err error
}

func (n *Node) read() *mountTable {
	return n.mounts.get(struct{}{}, func() *mountTable {
		table := &mountTable{host: n.host, at: map[string]*mount{}}
		table.err = mountinfo.Read(n.host, mountinfo.File(1), mountinfo.NodeLimit, func(m mountinfo.Mount) {
			one := newMount(m)
			table.all = append(table.all, one)
			table.at[one.point] = one
		})
		return table
	})
}

// of returns the mount that contains a directory, or nil.
func (t *mountTable) of(dir string) *mount {
	dir = path.Clean(dir)
	if target, err := iocgroup.FollowSymlinks(t.host, dir); err == nil {
		dir = target // if this program runs in a container, a directory of the host may not exist; dir then stays as it is
	}
	for {
		if mount := t.at[dir]; mount != nil || dir == "/" || dir == "." {
			return mount
		}
		dir = path.Dir(dir)
	}
}

// disksOf returns the disks of a mounted filesystem.
func (n *Node) disksOf(m *mount) ([]iocgroup.Disk, error) {
	key := filesystem{Device: m.Device, fstype: m.fstype}
	if m.Major == 0 {
		key.source = m.source
	}
	found := n.disks.get(key, func() disksFound {
		disks, err := disksOfMount(n.host, m)
		return disksFound{disks, err}
	})
	return found.disks, found.err
}

// volumeDir matches the directories in which the kubelet mounts volumes.
var volumeDir = regexp.MustCompile(`/pods/[^/]+/(?:volumes|volume-subpaths)/|/plugins/kubernetes\.io/`)

func (n *Node) mountsByDisk() map[iocgroup.Disk][]*mount {
	return n.byDisk.get(struct{}{}, func() map[iocgroup.Disk][]*mount {
		byDisk := map[iocgroup.Disk][]*mount{}
		for _, mount := range n.read().all {
			if volumeDir.MatchString(mount.point) {
				continue
			}
			disks, _ := n.disksOf(mount) // after an error, the mount is on no disk
			for _, disk := range disks {
				byDisk[disk] = append(byDisk[disk], mount)
			}
		}
		return byDisk
	})
}

// checkShared returns classes.ErrSharedDisk if a disk of the volume also has other data. A limit of this disk would
// also apply to the pod's I/O to that data. A disk has such data if the host has mounted a filesystem of the disk for
// itself, or if the volume is only a directory of its filesystem.
func (n *Node) checkShared(v Volume) error {
	table := n.read()
	if table.err != nil {
		return fmt.Errorf("check whether the disk of %s is shared: %w", v.target.Volume, table.err)
	}
	isWhole := table.isWhole(v)
	for _, disk := range v.Disks {
		for _, other := range n.mountsByDisk()[disk] {
			if isWhole && other.Device == v.mount.Device && !slices.Contains(n.mountsOfNode(), other) {
				continue // the volume is mounted there, too
			}
			return fmt.Errorf("%w: disk %s of %s also contains the node's mount %s; use a class with sharedDisk: limit, or remove the request",
				classes.ErrSharedDisk, disk, v.target.Volume, other.point)
		}
	}
	return nil
}

// isWhole reports whether the volume is a whole filesystem, or a subPath of a filesystem that belongs to the pod. For a
// subPath, the kubelet first mounts the whole filesystem for the pod.
func (t *mountTable) isWhole(v Volume) bool {
	return v.mount != nil && (v.mount.isWhole || slices.ContainsFunc(t.all, func(m *mount) bool {
		return m.isWhole && m.Device == v.mount.Device && kubeletdir.IsVolume(m.point, v.target.PodUID)
	}))
}

// mountsOfNode returns the mounts that contain the node's own directories. A volume on such a mount shares its disk with the
// node.
func (n *Node) mountsOfNode() []*mount {
	return n.ofNode.get(struct{}{}, func() []*mount {
		table, dirs := n.read(), []string{"/"}
		for _, alias := range []string{AliasRootFS, AliasEphemeral} {
			if found, err := table.aliasedDirs(alias); err == nil {
				dirs = append(dirs, found...)
			}
		}

		var all []*mount
		for _, dir := range dirs {
			all = append(all, table.of(dir))
		}
		return all
	})
}
