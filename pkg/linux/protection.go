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

// capped describes the parents of a cgroup that protect less memory than the cgroup's own file, with the remedy. It
// returns "" if there are none.
func (o Options) capped(dir string, p property, text string) string {
	wanted := bytesOf(text)
	least, parents := wanted, []string(nil)
	for dir = path.Dir(dir); ; dir = path.Dir(dir) {
		has, err := o.read(path.Join(dir, p.setting.Key))
		if err != nil {
			break // the root of the hierarchy has no such file
		}
		if bytes := bytesOf(has); bytes < wanted {
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

// excessive describes a memory protection that is not below memory.high or the memory limit of the container, or returns
// "" if there is none. Other classes and the kubelet can set these limits. The kernel does not protect a cgroup from
// reclaim by its own limits (mem_cgroup_unprotected in include/linux/memcontrol.h). It does protect the cgroup from reclaim
// by the limits of the pod, and the limits of a pod with only one container are those of the container.
func (o Options) excessive(dir string, limit int64, p property, text string) string {
	own := bytesOf(text)
	if own == 0 {
		return ""
	}
	if has, err := o.read(path.Join(dir, "memory.high")); err == nil && has != "max" && own >= bytesOf(has) {
		return fmt.Sprintf("%s %s is not below memory.high %s: the kernel still reclaims what the container uses above memory.high "+
			"(lower %s or raise memory.high)", p.name, sizeText(own), sizeText(bytesOf(has)), p.name)
	}
	if p.name == "memory.min" && limit > 0 && own >= uint64(limit) {
		return fmt.Sprintf("memory.min %s is not below the memory limit %s: the container can be killed because of the files that it writes "+
			"(lower memory.min or set memory.low)", sizeText(own), sizeText(uint64(limit)))
	}
	return ""
}

// unreached describes a memory.high that a container cannot reach because of its memory limit. Otherwise it returns "".
func unreached(limit int64, high string) string {
	if high == "max" || limit <= 0 || bytesOf(high) < uint64(limit) {
		return ""
	}
	return fmt.Sprintf("memory.high %s has no effect because the memory limit is %s (lower memory.high)", sizeText(bytesOf(high)), sizeText(uint64(limit)))
}

// sizeText returns a number of bytes for users, e.g. "64Mi".
func sizeText(bytes uint64) string {
	if bytes > math.MaxInt64 {
		return "max"
	}
	return resource.NewQuantity(int64(bytes), resource.BinarySI).String()
}

// bytesOf returns the number of bytes in a file of the memory controller.
func bytesOf(text string) uint64 {
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

// unprotected returns the reasons why memory protections of a class have no effect, because the parent cgroup of all
// pods protects nothing. If there are none, it returns "".
func (o Options) unprotected(c class) string {
	var reasons []string
	for _, p := range c {
		if !protects(p.setting) || p.value == fixed("0") {
			continue
		}
		for _, pods := range podsCgroups(p.setting.Key) {
			if text, err := o.read(path.Join(root, pods.name, p.setting.Key)); err == nil && text == "0" {
				reasons = append(reasons, fmt.Sprintf("%s has no effect, because %s has %s 0, and a cgroup protects at most what its parents protect; "+
					"set it there, e.g. %s, and in the cgroups of QoS classes and pods below it, or enable MemoryQoS of the kubelet",
					p.name, pods.name, p.setting.Key, pods.command))
			}
		}
	}
	return strings.Join(reasons, "; ")
}
