// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// These are the usual mount points of the kernel's filesystems.
const (
	resctrlRoot = "/sys/fs/resctrl"
	cgroupRoot  = "/sys/fs/cgroup"
)

// FS reads the files of a machine by the host's paths. hostfs.Root and the simulated machine implement it.
type FS interface {
	ReadFile(path string) ([]byte, error)
	ReadDir(path string) ([]string, error)
}

// KernelOf reads the kernel's state of the live pods and containers.
func KernelOf(host FS, live Live) (Kernel, error) {
	tree, err := findTree(host)
	if err != nil {
		return Kernel{}, err
	}

	before, err := tree.cgroups(host, live)
	if err != nil {
		return Kernel{}, err
	}

	groups, err := readGroups(host)
	if err != nil {
		return Kernel{}, err
	}

	// Threads start and end at any time. A thread counts only if it existed before the groups were read, and still
	// exists.
	after, err := tree.cgroups(host, live)
	if err != nil {
		return Kernel{}, err
	}

	for id, cgroup := range after {
		cgroup.Threads = slices.DeleteFunc(cgroup.Threads, func(thread int) bool {
			return !slices.Contains(before[id].Threads, thread)
		})
		after[id] = cgroup
	}

	return Kernel{Groups: groups, Cgroups: after}, nil
}

// tree is the cgroup hierarchy with the io controller, called blkio in version 1.
type tree struct {
	root string
	// threads is the name of the file that lists the threads of a cgroup.
	threads string
	files   []string
}

func findTree(host FS) (tree, error) {
	if _, err := host.ReadFile(path.Join(cgroupRoot, "blkio", "cgroup.procs")); err == nil {
		return tree{root: path.Join(cgroupRoot, "blkio"), threads: "tasks", files: []string{
			"blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device", "blkio.throttle.read_iops_device",
			"blkio.throttle.write_iops_device", "blkio.bfq.weight", "blkio.bfq.weight_device",
		}}, nil
	}
	for _, root := range []string{cgroupRoot, path.Join(cgroupRoot, "unified")} {
		if _, err := host.ReadFile(path.Join(root, "cgroup.controllers")); err == nil {
			return tree{root: root, threads: "cgroup.threads", files: []string{"io.max", "io.weight", "io.bfq.weight", "io.latency"}}, nil
		}
	}
	return tree{}, fmt.Errorf("no cgroup hierarchy below %s", cgroupRoot)
}

// cgroups returns the cgroups of live pods and containers. It leaves out cgroups that are removed meanwhile.
func (t tree) cgroups(host FS, live Live) (map[string]Cgroup, error) {
	dirs := map[string]string{}
	for _, pod := range live.Pods {
		dirs[pod.ID] = pod.Cgroup
	}

	for _, ctr := range live.Containers {
		dirs[ctr.ID] = ctr.Cgroup
	}

	cgroups := map[string]Cgroup{}
	for id, dir := range dirs {
		cgroup, err := t.read(host, path.Join(t.root, dir))
		if err != nil && !isGone(err) {
			return nil, err
		}
		if err == nil {
			cgroups[id] = cgroup
		}
	}

	return cgroups, nil
}

func (t tree) read(host FS, dir string) (Cgroup, error) {
	threads, err := t.threadsBelow(host, dir)
	if err != nil {
		return Cgroup{}, err
	}

	cgroup := Cgroup{Threads: threads, Files: map[string]string{}}
	for _, file := range t.files {
		data, err := host.ReadFile(path.Join(dir, file))
		if err != nil && !isGone(err) {
			return Cgroup{}, err
		}
		if err == nil {
			cgroup.Files[file] = string(data)
		}
	}

	return cgroup, nil
}

func (t tree) threadsBelow(host FS, dir string) ([]int, error) {
	threads, err := readThreads(host, path.Join(dir, t.threads))
	if err != nil {
		return nil, err
	}

	names, err := host.ReadDir(dir)
	if err != nil {
		return nil, err
	}

	for _, name := range names {
		below, err := t.threadsBelow(host, path.Join(dir, name)) // for a file, this fails as for a removed cgroup
		if err != nil && !isGone(err) {
			return nil, err
		}
		threads = append(threads, below...)
	}

	return threads, nil
}

func readThreads(host FS, file string) ([]int, error) {
	data, err := host.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var threads []int
	for _, field := range strings.Fields(string(data)) {
		thread, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		threads = append(threads, thread)
	}
	return threads, nil
}

// isGone reports whether the error means that a file or directory does not exist.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENODEV)
}

// readGroups reads resctrl's control groups. It returns nil while resctrl is not mounted.
func readGroups(host FS) (map[string]Group, error) {
	names, err := groupNames(host)
	if err != nil || names == nil {
		return nil, err
	}

	groups := map[string]Group{}
	for _, name := range names {
		schemata, err := host.ReadFile(path.Join(resctrlRoot, name, "schemata"))
		if isGone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		threads, err := readThreads(host, path.Join(resctrlRoot, name, "tasks"))
		if err != nil && !isGone(err) {
			return nil, err
		}
		monitors, err := readMonitors(host, path.Join(resctrlRoot, name, "mon_groups"))
		if err != nil {
			return nil, err
		}
		groups[name] = Group{Schemata: string(schemata), Tasks: threads, Monitors: monitors}
	}

	return groups, nil
}

// readMonitors reads the monitoring groups in a directory. It leaves out groups that are removed meanwhile.
func readMonitors(host FS, dir string) (map[string][]int, error) {
	names, err := host.ReadDir(dir)
	if err != nil && !isGone(err) {
		return nil, err
	}

	monitors := map[string][]int{}
	for _, name := range names {
		threads, err := readThreads(host, path.Join(dir, name, "tasks"))
		if err != nil && !isGone(err) {
			return nil, err
		}
		if err == nil {
			monitors[name] = threads
		}
	}

	return monitors, nil
}

// groupNames returns the directories of resctrl that can be control groups, the root first, or nil if resctrl is not
// mounted.
func groupNames(host FS) ([]string, error) {
	if _, err := host.ReadFile(path.Join(resctrlRoot, "schemata")); err != nil {
		if isGone(err) {
			return nil, nil
		}
		return nil, err
	}

	names, err := host.ReadDir(resctrlRoot)
	if err != nil {
		return nil, err
	}

	names = slices.DeleteFunc(names, func(name string) bool {
		return slices.Contains([]string{"info", "mon_groups", "mon_data", "cpus", "cpus_list", "mode", "schemata", "size", "tasks"}, name)
	})

	return append([]string{rootGroup}, names...), nil
}

// ForeignOf reads the parts of resctrl that the plugin does not own: the root group without its tasks, and all foreign
// groups with their tasks and monitoring groups. It also reads the named files, e.g. of foreign cgroups.
func ForeignOf(host FS, more ...string) (map[string]string, error) {
	names, err := groupNames(host)
	if err != nil {
		return nil, err
	}

	foreign := map[string]string{}
	for _, name := range names {
		if isOurs(name) {
			continue
		}
		dir := path.Join(resctrlRoot, name)
		more = append(more, path.Join(dir, "schemata"), path.Join(dir, "mode"), path.Join(dir, "cpus"))
		if name == rootGroup {
			continue
		}
		more = append(more, path.Join(dir, "tasks"))
		monitors, err := host.ReadDir(path.Join(dir, "mon_groups"))
		if err != nil && !isGone(err) {
			return nil, err
		}
		for _, monitor := range monitors {
			more = append(more, path.Join(dir, "mon_groups", monitor, "tasks"))
		}
	}

	for _, file := range more {
		data, err := host.ReadFile(file)
		if err != nil && !isGone(err) {
			return nil, err
		}
		if err == nil {
			foreign[file] = string(data)
		}
	}

	return foreign, nil
}
