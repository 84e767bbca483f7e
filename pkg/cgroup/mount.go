// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// hierarchy is one mounted tree of cgroups.
type hierarchy struct {
	// point is where it is mounted, root the cgroup that is mounted there: "/" but in containers that see a part only.
	point, root string
	version     int
	// controllers of a v1 hierarchy, "name=systemd" included; of v2 they are in cgroup.controllers.
	controllers []string
}

// parseMountinfo reads /proc/<pid>/mountinfo (proc_pid_mountinfo(5)) and returns the cgroup hierarchies, each where it is
// best reached: whole rather than in part, below /sys/fs/cgroup rather than elsewhere.
func parseMountinfo(data []byte) ([]hierarchy, error) {
	visible := map[string]hierarchy{} // by mount point: what is mounted later hides what was there
	var points []string
	for number, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		if line == "" {
			continue
		}
		mounted, err := parseMount(line)
		if err != nil {
			return nil, fmt.Errorf("mountinfo line %d: %w", number+1, err)
		}
		if _, again := visible[mounted.point]; !again {
			points = append(points, mounted.point)
		}
		visible[mounted.point] = mounted
	}
	var best []hierarchy
	for _, point := range points {
		if visible[point].version != 0 {
			best = keepBetter(best, visible[point])
		}
	}
	return best, nil
}

// parseMount reads one line; the version of anything but a cgroup filesystem is 0.
func parseMount(line string) (hierarchy, error) {
	fields := strings.Fields(line)
	separator := slices.Index(fields, "-")
	if separator < 6 || len(fields) < separator+4 {
		return hierarchy{}, fmt.Errorf("%q has too few fields", line)
	}
	mounted := hierarchy{root: unescape(fields[3]), point: unescape(fields[4])}
	switch fields[separator+1] {
	case "cgroup2":
		mounted.version = 2
	case "cgroup":
		mounted.version = 1
		mounted.controllers = controllersOf(fields[separator+3])
	}
	return mounted, nil
}

// controllersOf picks the controllers from the superblock options of a v1 hierarchy.
func controllersOf(options string) []string {
	notControllers := []string{"rw", "ro", "xattr", "noprefix", "clone_children", "cpuset_v2_mode", "favordynmods"}
	return slices.DeleteFunc(strings.Split(options, ","), func(option string) bool {
		return slices.Contains(notControllers, option) || strings.HasPrefix(option, "release_agent=")
	})
}

func keepBetter(known []hierarchy, h hierarchy) []hierarchy {
	same := func(k hierarchy) bool { return k.version == h.version && slices.Equal(k.controllers, h.controllers) }
	i := slices.IndexFunc(known, same)
	if i < 0 {
		return append(known, h)
	}
	if h.rank() > known[i].rank() {
		known[i] = h
	}
	return known
}

func (h hierarchy) rank() int {
	rank := 0
	if h.root == "/" {
		rank += 2
	}
	if h.point == usualPoint || strings.HasPrefix(h.point, usualPoint+"/") {
		rank++
	}
	return rank
}

// below returns the directory of a cgroup whose path the kernel told in /proc/<pid>/cgroup.
func (h hierarchy) below(group string) string {
	if h.root != "/" {
		if rest, found := strings.CutPrefix(group+"/", h.root+"/"); found {
			group = rest
		}
	}
	return path.Join(h.point, group)
}

// unescape undoes the octal escapes of blanks and backslashes in mountinfo.
func unescape(text string) string {
	var plain strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if char, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				plain.WriteByte(byte(char))
				i += 3
				continue
			}
		}
		plain.WriteByte(text[i])
	}
	return plain.String()
}
