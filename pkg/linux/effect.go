// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// statusOf reports the classes with properties that have no effect on this machine, and those that can harm their containers.
func (b *Backend) statusOf(all map[string]class, unordered []string) classes.BackendStatus {
	status := classes.BackendStatus{Degraded: map[string]string{}, Conditions: b.conditions(all)}
	for _, name := range sortedKeys(all) {
		var reasons []string
		if all[name].has(ioPriority) && len(unordered) > 0 {
			reasons = append(reasons, fmt.Sprintf("ioPriority has no effect on %s: their I/O scheduler knows no priorities; "+
				"select mq-deadline or bfq in /sys/block/NAME/queue/scheduler", list(unordered)))
		}
		if reason := b.opts.unprotected(all[name]); reason != "" {
			reasons = append(reasons, reason)
		}
		if len(reasons) > 0 {
			status.Degraded[name] = strings.Join(reasons, "; ")
		}
	}
	return status
}

func ioPriority(p property) bool { return p.setting.Name == classes.SettingIOPriority }

// has reports whether the class has a property.
func (c class) has(property func(property) bool) bool { return slices.ContainsFunc(c, property) }

// value returns the value of a property, or nil if the class does not set it.
func (c class) value(name string) value {
	i := slices.IndexFunc(c, func(p property) bool { return p.name == name })
	if i < 0 {
		return nil
	}
	return c[i].value
}

// disksWithoutPriorities returns the disks whose I/O scheduler ignores the priorities of processes, e.g. none. It
// leaves out loop devices and zram, whose I/O goes to other disks, or to no disk.
func (o Options) disksWithoutPriorities() (names []string) {
	files, _ := o.FS.Glob("/sys/block/*/queue/scheduler")
	for _, file := range files {
		disk := path.Base(path.Dir(path.Dir(file)))
		text, err := o.read(file)
		if err != nil || strings.HasPrefix(disk, "loop") || strings.HasPrefix(disk, "zram") {
			continue
		}
		if !strings.Contains(text, "[mq-deadline]") && !strings.Contains(text, "[bfq]") && strings.Contains(text, "[") {
			names = append(names, disk)
		}
	}
	return names
}

// conditions reports the classes that can harm their containers. These classes are still enforced.
func (b *Backend) conditions(all map[string]class) (conditions []classes.Condition) {
	report := func(about []string, kind, reason, format string, args ...any) {
		if len(about) > 0 {
			conditions = append(conditions, classes.Condition{Type: kind, Healthy: true, Limited: true, Reason: reason, Message: fmt.Sprintf(format, args...)})
		}
	}

	stalling, why := b.stalling(all)
	report(stalling, "MemoryHighSafe", "NoSwap", "a container of class %s that allocates more than memory.high can stall for minutes, and is not killed: "+
		"without swap, the kernel cannot reclaim what programs allocate; %s", list(stalling), why)
	killed := classesWith(all, func(c class) bool {
		share, is := c.value("memory.min").(ofLimit)
		return is && share.percent == 100 || c.value("memory.min") == fixed("max")
	})
	report(killed, "MemoryMinSafe", "WholeLimit", "memory.min of class %s is the whole memory limit or more, which keeps the kernel from reclaiming the page "+
		"cache: a container can be killed because of the files that it writes; lower memory.min, or set memory.low", list(killed))
	for _, protection := range []string{"memory.min", "memory.low"} {
		names := classesWith(all, func(c class) bool { return atLeast(c.value(protection), c.value("memory.high")) })
		report(names, "MemoryProtectionBelowHigh", "NotBelowHigh", "%[1]s of class %[2]s is not below memory.high: the kernel still reclaims what a container "+
			"uses above memory.high; lower %[1]s, or raise memory.high", protection, list(names))
	}
	refused := refusedWithoutLimits(all)
	report(refused, "NeedsLimits", "WithoutLimit", "containers without %s are refused; to leave out only these properties, write withoutLimit: skip into "+
		"the class", strings.Join(refused, " and without "))
	idle := classesWith(all, func(c class) bool { return idleOf(c) == "1" })
	report(idle, "PodResizeSafe", "CPUIdle", "the kubelet cannot change the CPU requests of a running pod of class %s: the kernel refuses a CPU weight for "+
		"the cgroup of an idle pod; let the pod leave the class before a resize, or create it again", list(idle))
	return conditions
}

// refusedWithoutLimits names the limits without which containers are refused, each with the classes that require it.
func refusedWithoutLimits(all map[string]class) (limits []string) {
	for _, limit := range []struct {
		name  string
		needs func(value) bool
	}{
		{"a memory limit", func(v value) bool { share, is := v.(ofLimit); return is && !share.skip }},
		{"a CPU limit", func(v value) bool { time, is := v.(burst); return is && !time.skip }},
	} {
		names := classesWith(all, func(c class) bool { return c.has(func(p property) bool { return limit.needs(p.value) }) })
		if len(names) > 0 {
			limits = append(limits, limit.name+" in class "+list(names))
		}
	}
	return limits
}

// atLeast reports whether a memory protection is certain to be at least memory.high. If one of the two is a size and
// the other is a share of the limit, this is not certain.
func atLeast(protection, high value) bool {
	if share, is := protection.(ofLimit); is {
		other, both := high.(ofLimit)
		return both && share.percent >= other.percent
	}
	size, is := protection.(fixed)
	other, both := high.(fixed)
	return is && size == "max" && high != nil && other != "max" || is && both && other != "max" && bytesOf(string(size)) >= bytesOf(string(other))
}

// stalling returns the classes with memory.high whose containers have no swap, and why they have none. If no class sets
// memory.swapMax for a container, it has the swap that the kubelet allows, which is none by default (NoSwap in
// pkg/kubelet/types/constants.go of Kubernetes).
func (b *Backend) stalling(all map[string]class) (names []string, why string) {
	high := func(c class) bool { v := c.value("memory.high"); return v != nil && v != fixed("max") }
	if !b.opts.hasSwap() {
		return classesWith(all, high), "the machine has no swap; add swap, or remove memory.high"
	}

	zero := classesWith(all, func(c class) bool { return high(c) && c.value("memory.swapMax") == fixed("0") })
	unset := classesWith(all, func(c class) bool { return high(c) && c.value("memory.swapMax") == nil })
	var reasons []string
	if len(zero) > 0 {
		reasons = append(reasons, "memory.swapMax is 0 in class "+list(zero))
	}
	if len(unset) > 0 {
		reasons = append(reasons, "memory.swapMax is missing in class "+list(unset)+", and the kubelet allows no swap by default")
	}
	remedy := "; set memory.swapMax above 0, here or in a class of another resource, or remove memory.high"
	return slices.Sorted(slices.Values(slices.Concat(zero, unset))), strings.Join(reasons, "; ") + remedy
}

// classesWith returns the names of the classes for which is(class) is true.
func classesWith(all map[string]class, is func(class) bool) []string {
	return slices.DeleteFunc(sortedKeys(all), func(name string) bool { return !is(all[name]) })
}

// hasSwap reports whether the machine uses swap.
func (o Options) hasSwap() bool {
	text, err := o.read("/proc/swaps") // a kernel without swap does not have the file
	return err == nil && strings.Contains(text, "\n")
}

// limited returns the reasons why properties of a class have no effect on a container that has them, or harm it.
func (b *Backend) limited(target classes.Holder, c class, adjustment classes.Adjustment) string {
	dir, err := b.opts.Tree.UnifiedDir(target)
	var notes []string
	for _, p := range c {
		text, sets := adjustment[p.setting]
		note := ""
		switch unordered := b.live.Load().unordered; {
		case !sets:
		case ioPriority(p) && len(unordered) > 0:
			note = "ioPriority has no effect on " + list(unordered)
		case err == nil && protects(p.setting):
			note = cmp.Or(b.opts.capped(dir, p, text), b.opts.excessive(dir, target.Spec.MemoryLimit, p, text))
		case err == nil && p.name == "memory.high":
			note = cmp.Or(unreached(target.Spec.MemoryLimit, text), b.stuck(dir, text))
		}
		if note != "" {
			notes = append(notes, note)
		}
	}
	return strings.Join(notes, " and ")
}
