// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// protects reports whether a file protects memory from being reclaimed. A cgroup protects at most what all its parents protect
// (Documentation/admin-guide/cgroup-v2.rst, "memory.min").
func protects(setting classes.Setting) bool {
	return setting == classes.Unified("memory.min") || setting == classes.Unified("memory.low")
}

// capped returns the properties of a class that protect less than they say, because a parent of the cgroup protects less.
func (b *Backend) capped(target classes.Holder, c class, adjustment classes.Adjustment) (names []string) {
	for _, p := range c {
		text, sets := adjustment[p.setting]
		if !sets || !protects(p.setting) || text == "0" {
			continue
		}
		dir, err := b.opts.Tree.UnifiedDir(target)
		if err != nil {
			return nil // the target has ended
		}
		if b.lowestParent(dir, p.setting.Key) < protection(text) {
			names = append(names, p.name)
		}
	}
	return names
}

// lowestParent returns the least that the parents of a cgroup protect.
func (b *Backend) lowestParent(dir, file string) uint64 {
	least := uint64(math.MaxUint64)
	for dir = path.Dir(dir); ; dir = path.Dir(dir) {
		text, err := b.read(path.Join(dir, file))
		if err != nil {
			return least // the root of the hierarchy has no such file
		}
		least = min(least, protection(text))
	}
}

// protection returns the number of bytes in memory.min or memory.low.
func protection(text string) uint64 {
	if text == "max" {
		return math.MaxUint64
	}
	bytes, _ := strconv.ParseUint(text, 10, 64)
	return bytes
}

// unprotected returns why the memory protection of a class has no effect: the parent of all pods protects nothing. It returns "" if it does.
func (b *Backend) unprotected(c class) string {
	var without []string
	for _, p := range c {
		if !protects(p.setting) || p.value == fixed("0") {
			continue
		}
		for _, slice := range []string{"kubepods.slice", "kubepods"} {
			if text, err := b.read(path.Join("/sys/fs/cgroup", slice, p.setting.Key)); err == nil && text == "0" {
				without = append(without, fmt.Sprintf("%s has no effect, because %s has %s 0", p.name, slice, p.setting.Key))
			}
		}
	}
	if len(without) == 0 {
		return ""
	}
	return strings.Join(without, "; ") + ", and a cgroup protects at most what its parents protect; enable MemoryQoS of the kubelet, " +
		"or set the value there, e.g. systemctl set-property kubepods.slice MemoryLow=8G, and in the cgroups of QoS classes and pods below it"
}
