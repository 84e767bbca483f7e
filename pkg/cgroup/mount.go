// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"path"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/mountinfo"
)

type hierarchy struct {
	// `point` is the mount point. `root` is the cgroup that is mounted there: "/", except in containers that see only a
	// part of the hierarchy.
	point, root string
	version     int
	// controllers has the controllers of a v1 hierarchy, including "name=systemd". The controllers of a v2 hierarchy
	// are in its file cgroup.controllers.
	controllers []string
}

// readHierarchies returns the cgroup hierarchies in a mountinfo file. If a hierarchy has several mounts, readHierarchies
// prefers a mount of the whole hierarchy, then a mount below /sys/fs/cgroup. If an error occurs, it returns the hierarchies
// that it has found before the error.
func readHierarchies(fs FS, file string) ([]hierarchy, error) {
	var found []hierarchy
	err := mountinfo.Read(fs, file, mountinfo.NodeLimit, func(m mountinfo.Mount) {
		found = slices.DeleteFunc(found, func(h hierarchy) bool { return h.point == m.Point }) // the later mount hides it
		h := hierarchy{point: m.Point, root: m.Root, version: 2}
		if m.Type == "cgroup" {
			h.version, h.controllers = 1, parseControllers(m.SuperOptions)
		}
		if strings.HasPrefix(m.Type, "cgroup") {
			found = append(found, h)
		}
	})

	var best []hierarchy
	for _, h := range found {
		known := slices.IndexFunc(best, h.isSame)
		if known < 0 {
			best = append(best, h)
		} else if h.rank() > best[known].rank() {
			best[known] = h
		}
	}
	return best, err
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
