// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"maps"
	"path"
	"slices"
	"strings"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// monitors checks that each monitoring group of the plugin belongs to a running container, is in the control group of
// the container's class, and has only threads of the container. Each running container that is to be monitored must have a group,
// unless RMIDs are exhausted and the plugin reports that it could not monitor all containers. Before class files are applied, the
// plugin removes no group.
func (c *check) monitors() {
	if c.Status.GetConfig().GetGeneration() == 0 || c.unavailable(c.Expect.resctrl()) {
		return
	}

	cgroups := map[string]Cgroup{}
	for _, ctr := range c.Live.Containers {
		if ctr.Started {
			cgroups[ctr.ID] = c.Kernel.Cgroups[ctr.ID]
		}
	}

	for _, group := range slices.Sorted(maps.Keys(c.Kernel.Groups)) {
		for _, name := range slices.Sorted(maps.Keys(c.Kernel.Groups[group].Monitors)) {
			id, ours := strings.CutPrefix(name, groupPrefix)
			if !ours || group != rootGroup && !isOurs(group) {
				continue
			}
			cgroup, runs := cgroups[id]
			threads := c.Kernel.Groups[group].Monitors[name]
			stranger := slices.IndexFunc(threads, func(thread int) bool { return !slices.Contains(cgroup.Threads, thread) })
			switch {
			case !runs:
				c.wrong("monitoring group %s in group %q belongs to no running container", name, group)
			case stranger >= 0:
				c.wrong("monitoring group %s in group %q has thread %d, which does not belong to the container", name, group, threads[stranger])
			}
		}
	}

	for _, h := range c.holders {
		if _, runs := cgroups[h.id]; runs && h.container != "" {
			c.monitored(h)
		}
	}
}

// monitored checks that a container has one monitoring group if it is to be monitored, and otherwise none.
func (c *check) monitored(h holder) {
	var in []string
	for _, group := range slices.Sorted(maps.Keys(c.Kernel.Groups)) {
		if _, there := c.Kernel.Groups[group].Monitors[groupPrefix+h.id]; there {
			in = append(in, group)
		}
	}

	class, known := classOf(h, c.Expect.resctrl())
	if !known || c.Expect.Monitored == nil || c.Kernel.Groups == nil {
		return
	}

	want := groupPrefix + class
	if class == "" {
		want = rootGroup
	}

	selected := c.Expect.Monitored(class)
	switch {
	case !selected && len(in) > 0:
		c.wrong("%s has a monitoring group in %q, although its class is not monitored", h, in)
	case selected && len(in) == 0 && !c.unmonitored():
		c.wrong("%s has no monitoring group", h)
	case selected && len(in) > 0 && !slices.Equal(in, []string{want}):
		c.wrong("%s has monitoring groups in %q, want one in %q", h, in, want)
	}
}

// classOf returns the class of a resource in which a holder is reported. A container in a group of another program has no
// known class.
func classOf(h holder, resource string) (class string, known bool) {
	i := slices.IndexFunc(h.classes, func(a *qosv1alpha1.Assignment) bool { return a.GetName() == resource })
	if i < 0 || h.classes[i].GetForeign() != "" {
		return "", false
	}
	return h.classes[i].GetClass(), true
}

// unmonitored returns true if the plugin reports that it could not monitor all containers, and if RMIDs are exhausted.
func (c *check) unmonitored() bool { return !c.AllMonitored() && c.exhausted() }

// AllMonitored returns false if the plugin reports that it could not monitor all containers.
func (w World) AllMonitored() bool {
	resctrl := w.Expect.resctrl()
	for _, r := range w.Status.GetResources().GetContainerQosResources() {
		for _, condition := range r.GetConditions() {
			if r.GetName() == resctrl && condition.GetType() == "ContainersMonitored" {
				return condition.GetHealthy()
			}
		}
	}
	return true
}

// exhausted returns true if monitoring groups use all available RMIDs, or if the number of available RMIDs is unknown.
func (c *check) exhausted() bool {
	used := 0
	for _, group := range c.Kernel.Groups {
		used += len(group.Monitors)
	}
	return used >= c.Expect.RMIDs
}

// OwnMonitors returns the paths of all monitoring groups with the plugin's prefix, below the mount point of resctrl. It
// includes those in control groups of other programs.
func (k Kernel) OwnMonitors() []string {
	var found []string
	for group, content := range k.Groups {
		for name := range content.Monitors {
			if strings.HasPrefix(name, groupPrefix) {
				found = append(found, path.Join(group, "mon_groups", name))
			}
		}
	}
	slices.Sort(found)
	return found
}
