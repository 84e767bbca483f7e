// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// task is a thread. If its group is nil, it is in the root group.
type task struct {
	group *group
	// ended is true for a zombie, whose parent has not waited for it.
	ended bool
}

// AddTask starts a thread in a group. `group` is the path of the group below the mount point, e.g. "g" or "g/mon_groups/m", or "" for the
// root group.
func (f *FS) AddTask(tid int, group string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.live == nil {
		f.tasks[tid] = &task{}
		return
	}
	g, _, err := f.find(strings.TrimSuffix(MountPoint+"/"+group, "/"))
	if err != nil {
		panic(err)
	}
	f.tasks[tid] = &task{group: g}
}

// Fork starts a thread in the group of its parent.
func (f *FS) Fork(parent, child int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.tasks[parent]; p != nil {
		f.tasks[child] = &task{group: p.group}
	}
}

// Exit ends a thread.
func (f *FS) Exit(tid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.tasks, tid)
}

// End turns a thread into a zombie. The zombie stays in its group until Exit.
func (f *FS) End(tid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tasks[tid].ended = true
}

// GroupOf returns the control group of a thread; "" is the root.
func (f *FS) GroupOf(tid int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := f.tasks[tid]; t != nil && t.group != nil {
		return t.group.control().name
	}
	return ""
}

func (f *FS) groupOf(t *task) *group {
	if t.group == nil {
		return f.live.root
	}
	return t.group
}

// tasksOf returns the text of a group's file "tasks". For a control group, it includes the tasks of its monitoring
// groups.
func (f *FS) tasksOf(g *group) string {
	var text strings.Builder
	for _, tid := range slices.Sorted(maps.Keys(f.tasks)) {
		in := f.groupOf(f.tasks[tid])
		if in == g || in.parent == g {
			fmt.Fprintln(&text, tid)
		}
	}
	return text.String()
}

func (f *FS) write(g *group, file, data string) error {
	switch file {
	case "schemata":
		return f.live.writeSchemata(g, data)
	case "mode":
		return f.writeMode(g, data)
	case "tasks":
		return f.writeTasks(g, data)
	case "cpus":
		return f.writeCPUs(g, data)
	case "mbm_L3_assignments":
		return f.writeAssignments(g, data)
	}

	if strings.HasSuffix(file, "/io_alloc") || strings.HasSuffix(file, "/io_alloc_cbm") {
		return f.writeIOAlloc(file, data)
	}
	if _, ok := f.info()[strings.TrimPrefix(file, "info/")]; !ok && strings.HasPrefix(file, "info/") {
		return syscall.ENOENT
	}

	return syscall.EACCES
}

// writeTasks simulates rdtgroup_tasks_write.
func (f *FS) writeTasks(g *group, data string) error {
	f.live.status = ""
	for data != "" && data[0] != '\n' {
		var text string
		text, data, _ = strings.Cut(data, ",")
		text = strings.TrimSpace(text)
		tid, err := strconv.ParseInt(text, 0, 32)
		switch {
		case err != nil:
			f.live.reportf("Task list parsing error pid %s", text)
			return syscall.EINVAL
		case tid < 0:
			f.live.reportf("Invalid pid %d", tid)
			return syscall.EINVAL
		}
		if err := f.moveTask(int(tid), g); err != nil {
			f.live.reportf("Error while processing task %d", tid)
			return err
		}
	}

	return nil
}

func (f *FS) moveTask(tid int, g *group) error {
	t := f.tasks[tid]
	if t == nil {
		f.live.reportf("No task %d", tid)
		return syscall.ESRCH
	}
	if g.parent != nil && f.groupOf(t).control() != g.parent {
		f.live.reportf("Can't move task to different control group")
		return syscall.EINVAL
	}
	t.group = g
	return nil
}

// writeCPUs simulates rdtgroup_cpus_write for control groups. Each CPU is always in exactly one control group.
func (f *FS) writeCPUs(g *group, data string) error {
	m := f.live
	mask, err := strconv.ParseUint(strings.TrimSpace(data), 16, 64)
	switch {
	case err != nil:
		m.reportf("Bad CPU list/mask")
		return syscall.EINVAL
	case mask >= 1<<f.spec.CPUs:
		m.reportf("Bad CPU list/mask")
		return syscall.EOVERFLOW
	case g == m.root && g.cpus&^mask != 0:
		m.reportf("Can't drop CPUs from default group")
		return syscall.EINVAL
	}

	m.root.cpus |= g.cpus &^ mask
	for _, other := range m.control() {
		other.cpus &^= mask
	}

	g.cpus = mask
	return nil
}

func (f *FS) readProc(elements []string) (string, error) {
	switch strings.Join(elements, "/") {
	case "self/mountinfo", "1/mountinfo":
		return f.mountinfo(), nil
	case "filesystems":
		if f.spec.NoKernel || f.spec.L2 == nil && f.spec.L3 == nil && f.spec.MB == nil && f.spec.RMIDs == 0 {
			return "nodev\tsysfs\n", nil
		}
		return "nodev\tsysfs\nnodev\tresctrl\n", nil
	case "cpuinfo":
		return "processor\t: 0\nflags\t\t: fpu" + f.flags() + "\n", nil
	}

	tid, err := strconv.Atoi(elements[0])
	t := f.tasks[tid]
	if err != nil || t == nil || len(elements) != 2 {
		return "", syscall.ENOENT
	}

	switch {
	case elements[1] == "stat" && t.ended:
		return fmt.Sprintf("%d (task :) S) Z 1\n", tid), nil
	case elements[1] == "stat":
		return fmt.Sprintf("%d (task) S 1\n", tid), nil
	case elements[1] == "cpu_resctrl_groups" && !f.spec.NoTaskFile:
		return f.taskGroups(t), nil
	}

	return "", syscall.ENOENT
}

func (f *FS) flags() string {
	flags := ""
	for flag, has := range map[string]bool{" cat_l2": f.spec.L2 != nil, " cat_l3": f.spec.L3 != nil, " mba": f.spec.MB != nil} {
		if has {
			flags += flag
		}
	}
	return flags
}

func (f *FS) mountinfo() string {
	text := "24 1 0:22 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw\n"
	if f.live == nil {
		return text
	}
	access, options := "rw", f.live.options
	if f.spec.ReadOnly {
		access = "ro"
	}
	if options != "" {
		options = "," + options
	}
	return text + fmt.Sprintf("29 24 0:25 / %s %s,relatime shared:8 - resctrl resctrl %s\n", MountPoint, access, access+options)
}

// taskGroups simulates proc_resctrl_show.
func (f *FS) taskGroups(t *task) string {
	if f.live == nil {
		return "res:\nmon:\n"
	}
	g := f.groupOf(t)
	control, mon := "/", ""
	if c := g.control(); c != f.live.root {
		control = c.name
	}
	if g.parent != nil {
		mon = g.name
	}
	return "res:" + control + "\nmon:" + mon + "\n"
}
