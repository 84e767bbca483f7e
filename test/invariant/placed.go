// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// groups compares resctrl groups with classes. It checks nothing without a configuration, or while the resource is
// unavailable. The group of a draining class without holders may be missing, because the plugin does not store the
// values of such a class.
func (c *check) groups() {
	name := c.Expect.resctrl()
	resource, offered := c.offered[name]
	switch {
	case c.Status.GetConfig().GetGeneration() == 0 || c.unavailable(name):
		return
	case offered && c.Kernel.Groups == nil && c.Kernel.Classes[name] == nil:
		c.wrong("%s is offered, but resctrl is not mounted", name)
		return
	}

	wanted := map[string]bool{}
	for _, class := range resource.GetClasses() {
		group := groupPrefix + class.GetName()
		wanted[group] = true
		if _, there := c.Kernel.Groups[group]; !there && c.Kernel.Groups != nil && !class.GetDraining() {
			c.wrong("class %q of %s has no group %s", class.GetName(), name, group)
		}
	}

	for _, group := range slices.Sorted(maps.Keys(c.Kernel.Groups)) {
		if isOurs(group) && !wanted[group] {
			c.wrong("resctrl group %s is left behind, with %d threads; no class has it", group, len(c.Kernel.Groups[group].Tasks))
		}
	}
}

func isOurs(group string) bool { return strings.HasPrefix(group, groupPrefix) }

func (c *check) unavailable(resource string) bool {
	return slices.ContainsFunc(c.Status.GetUnavailableResources(), func(r *qosv1alpha1.UnavailableResource) bool {
		return r.GetName() == resource
	})
}

// schemata compares groups with the expected schemata of their classes. A draining class keeps its values.
func (c *check) schemata() {
	for _, class := range c.offered[c.Expect.resctrl()].GetClasses() {
		group, there := c.Kernel.Groups[groupPrefix+class.GetName()]
		if !there || class.GetDraining() {
			continue
		}
		has := schemataLines(group.Schemata)
		for name, want := range schemataLines(c.Expect.Schemata[class.GetName()]) {
			if has[name] != want {
				c.wrong("resctrl group %s%s has %s:%s, but its class has %s", groupPrefix, class.GetName(), name, has[name], want)
			}
		}
	}
}

// schemataLines maps each schema to its values, without the kernel's padding.
func schemataLines(text string) map[string]string {
	lines := map[string]string{}
	for line := range strings.Lines(text) {
		name, values, found := strings.Cut(strings.TrimSpace(line), ":")
		if !found {
			continue
		}
		parts := strings.Split(values, ";")
		for i, part := range parts {
			id, value, _ := strings.Cut(part, "=")
			value = strings.TrimLeft(strings.TrimSpace(value), "0")
			parts[i] = strings.TrimSpace(id) + "=" + value
		}
		lines[strings.TrimSpace(name)] = strings.Join(parts, ";")
	}

	return lines
}

// classes compares the reported class of every container and pod with its class in the kernel.
func (c *check) classes() {
	runs := map[string]bool{}
	for _, ctr := range c.Live.Containers {
		runs[ctr.ID] = ctr.Started
	}

	for _, pod := range c.Live.Pods {
		runs[pod.ID] = true
	}

	groups := c.groupsOfThreads()
	for _, h := range c.holders {
		if !runs[h.id] {
			continue
		}
		has := map[string]*qosv1alpha1.Assignment{}
		for _, a := range h.classes {
			has[a.GetName()] = a
		}
		for _, resource := range slices.Sorted(maps.Keys(c.offered)) {
			if c.podScope[resource] != (h.container == "") {
				continue
			}
			assigned, reported := has[resource]
			if !reported && !c.gone(resource) {
				c.wrong("%s: no class of %s is reported", h, resource)
				continue
			}
			c.placed(h, resource, assigned, groups)
		}
	}
}

// groupsOfThreads returns the group of each thread.
func (c *check) groupsOfThreads() map[int]string {
	groups := map[int]string{}
	for name, group := range c.Kernel.Groups {
		for _, thread := range group.Tasks {
			groups[thread] = name
		}
	}
	return groups
}

func (c *check) placed(h holder, resource string, assigned *qosv1alpha1.Assignment, groups map[int]string) {
	class := assigned.GetClass()
	if targets, fake := c.Kernel.Classes[resource]; fake {
		if targets[h.id] != class {
			c.wrong("%s: reported in %s, but is in %s", h, classText(resource, class), classText(resource, targets[h.id]))
		}
		return
	}
	if resource == c.Expect.resctrl() && c.Kernel.Groups != nil {
		c.inGroup(h, resource, class, groups)
	}
	if limits, known := c.Expect.Limits[resource]; known && !c.drains(resource, class) {
		c.limited(h, resource, assigned, limits[class])
	}
}

// gone reports whether a resource is no longer configured. The plugin still lists such a resource while containers or pods
// have one of its classes.
func (c *check) gone(resource string) bool {
	return !slices.ContainsFunc(c.offered[resource].GetClasses(), func(info *qosv1alpha1.QOSResourceClassInfo) bool {
		return !info.GetDraining()
	})
}

// drains reports whether a class is not configured any more. Its holders keep its values.
func (c *check) drains(resource, class string) bool {
	return slices.ContainsFunc(c.offered[resource].GetClasses(), func(info *qosv1alpha1.QOSResourceClassInfo) bool {
		return info.GetName() == class && info.GetDraining()
	})
}

func classText(resource, class string) string {
	if class == "" {
		return "the system default of " + resource
	}
	return fmt.Sprintf("class %q of %s", class, resource)
}

// inGroup checks that every thread is in the class's group. For the system default, it checks that no thread is in a
// group of the plugin.
func (c *check) inGroup(h holder, resource, class string, groups map[int]string) {
	threads := c.Kernel.Cgroups[h.id].Threads
	if len(threads) == 0 {
		c.wrong("%s runs, but has no threads in its cgroup", h)
		return
	}

	var outside []string
	for _, thread := range threads {
		group, known := groups[thread]
		if right := known && (group == groupPrefix+class || class == "" && !isOurs(group)); !right {
			outside = append(outside, fmt.Sprintf("%d in %s", thread, groupText(group, known)))
		}
	}

	if len(outside) > 0 {
		c.wrong("%s: reported in %s, but %d of %d threads are in other groups: %s", h, classText(resource, class), len(outside), len(threads),
			strings.Join(outside[:min(len(outside), 3)], ", "))
	}
}

func groupText(group string, known bool) string {
	switch {
	case !known:
		return "no group"
	case group == rootGroup:
		return "the root group"
	}
	return group
}

// limited checks that the cgroup has the values of the class. The cgroup may have other values only on disks of volumes, and
// on disks for which the plugin reports limits of another program.
func (c *check) limited(h holder, resource string, assigned *qosv1alpha1.Assignment, want map[string]string) {
	class := assigned.GetClass()
	cgroup, there := c.Kernel.Cgroups[h.id]
	if !there {
		c.wrong("%s runs, but has no cgroup", h)
		return
	}

	wanted, has := limitsOf(want), limitsOf(cgroup.Files)
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		if has[key] != wanted[key] {
			c.wrong("%s: reported in %s with %s = %s, but has %q", h, classText(resource, class), key, wanted[key], has[key])
		}
	}

	for _, key := range slices.Sorted(maps.Keys(has)) {
		_, known := wanted[key]
		device := strings.Fields(key)[1]
		ofVolume := h.container == "" && c.hasVolumeOn(h.pod, device)
		if !known && !ofVolume && !strings.Contains(assigned.GetForeign(), device+" ") {
			c.wrong("%s: reported in %s, but has %s = %s, which the class does not set", h, classText(resource, class), key, has[key])
		}
	}
}

// limitsOf returns the values of a cgroup's files by file, device and kind, without the kernel's defaults: no limit, and the
// weight of 100.
func limitsOf(files map[string]string) map[string]string {
	limits := map[string]string{}
	set := func(value string, key ...string) {
		if value != "max" && (value != "100" || key[1] != "default") {
			limits[strings.Join(key, " ")] = value
		}
	}

	for file, text := range files {
		for line := range strings.Lines(text) {
			fields := strings.Fields(line)
			switch {
			case len(fields) == 0:
			case len(fields) == 1: // a weight without exceptions, in cgroup v1
				set(fields[0], file, "default")
			case strings.Contains(line, "="):
				for _, field := range fields[1:] {
					kind, value, _ := strings.Cut(field, "=")
					set(value, file, fields[0], kind)
				}
			default:
				set(fields[1], file, fields[0])
			}
		}
	}

	return limits
}
