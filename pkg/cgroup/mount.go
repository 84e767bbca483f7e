// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
)

type hierarchy struct {
	// point is the mount point. root is the cgroup at the mount point. It is "/", except in containers that see only a part
	// of the hierarchy.
	point, root string
	version     int
	// controllers has the controllers of a v1 hierarchy, including "name=systemd". The controllers of a v2 hierarchy
	// are in its file cgroup.controllers.
	controllers []string
}

// parseMountinfo returns the cgroup hierarchies in /proc/<pid>/mountinfo. If a hierarchy has several mounts,
// parseMountinfo prefers a mount of the whole hierarchy, then a mount below /sys/fs/cgroup.
func parseMountinfo(data []byte) ([]hierarchy, error) {
	mounts, err := mountinfo.GetMountsFromReader(bytes.NewReader(data), nil)
	if err != nil {
		return nil, err
	}

	var best []hierarchy
	for i, mount := range mounts {
		h := hierarchy{point: mount.Mountpoint, root: mount.Root, version: 2}
		if mount.FSType == "cgroup" {
			h.version, h.controllers = 1, parseControllers(mount.VFSOptions)
		}
		hides := func(later *mountinfo.Info) bool { return later.Mountpoint == mount.Mountpoint }
		if !strings.HasPrefix(mount.FSType, "cgroup") || slices.ContainsFunc(mounts[i+1:], hides) {
			continue
		}

		known := slices.IndexFunc(best, h.isSame)
		if known < 0 {
			best = append(best, h)
		} else if h.rank() > best[known].rank() {
			best[known] = h
		}
	}
	return best, nil
}

func parseControllers(options string) []string {
	notControllers := []string{"rw", "ro", "xattr", "noprefix", "clone_children", "cpuset_v2_mode", "favordynmods"}
	return slices.DeleteFunc(strings.Split(options, ","), func(option string) bool {
		return slices.Contains(notControllers, option) || strings.HasPrefix(option, "release_agent=")
	})
}

func (h hierarchy) isSame(other hierarchy) bool {
	return h.version == other.version && slices.Equal(h.controllers, other.controllers)
}

func (h hierarchy) rank() (rank int) {
	if h.root == "/" {
		rank += 2
	}
	if strings.HasPrefix(h.point+"/", defaultMount+"/") {
		rank++
	}
	return rank
}

// dirOf returns the directory of a cgroup whose path is from /proc/<pid>/cgroup.
func (h hierarchy) dirOf(group string) string {
	if rest, isBelow := strings.CutPrefix(group+"/", h.root+"/"); isBelow {
		group = rest
	}
	return path.Join(h.point, group)
}
