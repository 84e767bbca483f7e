// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// protects reports whether a file protects memory from being reclaimed. A cgroup protects at most what all its parents protect
// (Documentation/admin-guide/cgroup-v2.rst, "memory.min").
func protects(setting classes.Setting) bool {
	return setting == classes.Unified("memory.min") || setting == classes.Unified("memory.low")
}

// capped describes which parents of a cgroup protect less than its own file says, and what to set there. It returns "" if none does.
func (b *Backend) capped(dir string, p property, text string) string {
	wanted := protection(text)
	least, parents := wanted, []string(nil)
	for dir = path.Dir(dir); ; dir = path.Dir(dir) {
		has, err := b.read(path.Join(dir, p.setting.Key))
		if err != nil {
			break // the root of the hierarchy has no such file
		}
		if bytes := protection(has); bytes < wanted {
			least = min(least, bytes)
			parents = append(parents, path.Base(dir)+" has "+sizeText(bytes))
		}
	}
	if len(parents) == 0 {
		return ""
	}
	slices.Reverse(parents)
	effect := "has no effect"
	if least > 0 {
		effect = "protects only " + sizeText(least)
	}
	own := sizeText(wanted)
	return fmt.Sprintf("%s %s %s because %s (set %s to %s or more there)", p.name, own, effect, strings.Join(parents, " and "), p.setting.Key, own)
}

// sizeText returns a number of bytes for users, e.g. "64Mi".
func sizeText(bytes uint64) string {
	if bytes > math.MaxInt64 {
		return "max"
	}
	return resource.NewQuantity(int64(bytes), resource.BinarySI).String()
}

// protection returns the number of bytes in memory.min or memory.low.
func protection(text string) uint64 {
	if text == "max" {
		return math.MaxUint64
	}
	bytes, _ := strconv.ParseUint(text, 10, 64)
	return bytes
}

// podsCgroup is a cgroup that the kubelet makes for all pods, and a command that sets a file of it.
type podsCgroup struct{ name, command string }

// podsCgroups returns the names that the cgroup of all pods has with the cgroup drivers systemd and cgroupfs.
func podsCgroups(file string) []podsCgroup {
	systemd := map[string]string{"memory.min": "MemoryMin", "memory.low": "MemoryLow"}
	return []podsCgroup{
		{"kubepods.slice", "systemctl set-property kubepods.slice " + systemd[file] + "=8G"},
		{"kubepods", "echo 8G > " + path.Join(root, "kubepods", file)},
	}
}

// unprotected returns why the memory protection of a class has no effect: the parent of all pods protects nothing. It returns "" if it does.
func (b *Backend) unprotected(c class) string {
	var reasons []string
	for _, p := range c {
		if !protects(p.setting) || p.value == fixed("0") {
			continue
		}
		for _, pods := range podsCgroups(p.setting.Key) {
			if text, err := b.read(path.Join(root, pods.name, p.setting.Key)); err == nil && text == "0" {
				reasons = append(reasons, fmt.Sprintf("%s has no effect, because %s has %s 0, and a cgroup protects at most what its parents protect; "+
					"set it there, e.g. %s, and in the cgroups of QoS classes and pods below it, or enable MemoryQoS of the kubelet",
					p.name, pods.name, p.setting.Key, pods.command))
			}
		}
	}
	return strings.Join(reasons, "; ")
}
