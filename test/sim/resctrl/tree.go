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

// find returns the group whose directory contains a path, and the elements of the path relative to this directory.
func (f *FS) find(name string) (*group, []string, error) {
	elements, ok := f.below(name)
	if !ok || f.live == nil {
		return nil, nil, syscall.ENOENT
	}

	g := f.live.root
	if len(elements) > 0 && f.live.groups[elements[0]] != nil {
		g, elements = f.live.groups[elements[0]], elements[1:]
	}

	if len(elements) > 1 && elements[0] == "mon_groups" {
		mon := g.mons[elements[1]]
		if mon == nil {
			return nil, nil, syscall.ENOENT
		}
		g, elements = mon, elements[2:]
	}

	return g, elements, nil
}

// lookup returns the group that a file belongs to, and the file's path below the group.
func (f *FS) lookup(name string) (*group, string, error) {
	g, elements, err := f.find(name)
	if err != nil {
		return nil, "", err
	}

	file := strings.Join(elements, "/")
	switch {
	case file == "" || file == "mon_groups" || g == f.live.root && file == "info":
		return nil, "", syscall.EISDIR
	case g == f.live.root && strings.HasPrefix(file, "info/"), slices.Contains(f.files(g), file):
		return g, file, nil
	case strings.HasPrefix(file, "mon_data/") && slices.Contains(f.counters(), file):
		return g, file, nil
	}

	if _, err := f.list(name); err == nil {
		return nil, "", syscall.EISDIR
	}

	return nil, "", syscall.ENOENT
}

// files returns the files in a group's directory, without directories.
func (f *FS) files(g *group) []string {
	var files []string
	if f.spec.Counters > 0 {
		files = append(files, "mbm_L3_assignments")
	}
	if g.parent != nil {
		return append(files, "cpus", "cpus_list", "tasks")
	}
	return append(files, "cpus", "cpus_list", "mode", "schemata", "size", "tasks")
}

func (f *FS) read(name string) (string, error) {
	if strings.HasPrefix(name, "/proc/") {
		return f.readProc(strings.Split(strings.TrimPrefix(name, "/proc/"), "/"))
	}

	g, file, err := f.lookup(name)
	if err != nil {
		return "", err
	}

	switch file {
	case "schemata":
		return f.live.show(f.spec, g.closid), nil
	case "size":
		return f.live.size(f.spec, g.closid), nil
	case "mode":
		if g.exclusive {
			return "exclusive\n", nil
		}
		return "shareable\n", nil
	case "tasks":
		return f.tasksOf(g), nil
	case "mbm_L3_assignments":
		return f.assignments(g), nil
	case "cpus":
		return fmt.Sprintf("%x\n", g.cpus), nil
	case "cpus_list":
		return cpuList(g.cpus) + "\n", nil
	}

	if strings.HasPrefix(file, "mon_data/") {
		return f.count(g, file) + "\n", nil
	}

	text, ok := f.info()[strings.TrimPrefix(file, "info/")]
	if !ok {
		if _, err := f.list(name); err == nil {
			return "", syscall.EISDIR
		}
		if strings.HasPrefix(file, "info/last_cmd_status/") {
			return "", syscall.ENOTDIR
		}
		return "", syscall.ENOENT
	}

	return text, nil
}

// info returns the files below info/.
func (f *FS) info() map[string]string {
	files := f.live.info(f.spec)
	maps.Copy(files, f.counterInfo())
	return files
}

func (m *mounted) info(spec Spec) map[string]string {
	files := map[string]string{"last_cmd_status": m.status}
	if m.status == "" {
		files["last_cmd_status"] = "ok\n"
	}

	for _, s := range m.schemas {
		files[s.name+"/num_closids"] = fmt.Sprintln(s.closids)
		if s.memory != nil {
			files["MB/min_bandwidth"] = fmt.Sprintln(s.memory.Min)
			files["MB/bandwidth_gran"] = fmt.Sprintln(s.memory.Granularity)
			files["MB/delay_linear"] = fmt.Sprintln(map[Vendor]int{Intel: 1, Arm: 1}[spec.Vendor])
			continue
		}
		files[s.name+"/cbm_mask"] = fmt.Sprintf("%x\n", s.full())
		files[s.name+"/min_cbm_bits"] = fmt.Sprintln(s.cache.MinBits)
		files[s.name+"/shareable_bits"] = fmt.Sprintf("%x\n", s.cache.Shareable)
		maps.Copy(files, m.ioAllocFiles(spec, s))
		if !spec.NoSparseFile {
			files[s.name+"/sparse_masks"] = fmt.Sprintln(map[bool]int{true: 1}[s.cache.sparse(spec.Vendor)])
		}
	}

	if spec.TelemetryRMIDs > 0 { // intel_aet_get_events in arch/x86/kernel/cpu/resctrl/intel_aet.c
		files["PERF_PKG_MON/num_rmids"] = fmt.Sprintln(spec.TelemetryRMIDs)
		files["PERF_PKG_MON/mon_features"] = strings.Join(telemetryEvents(), "\n") + "\n"
	}
	files["L3_MON/num_rmids"] = fmt.Sprintln(m.allRMIDs)
	files["L3_MON/mon_features"] = "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n"
	return files
}

func (f *FS) list(name string) ([]string, error) {
	g, elements, err := f.find(name)
	if err != nil {
		return nil, err
	}

	switch inside := strings.Join(elements, "/"); {
	case inside == "" && g.parent != nil:
		return append(f.files(g), "mon_data"), nil
	case inside == "":
		names := append(f.files(g), "mon_data", "mon_groups")
		if g == f.live.root {
			names = append(names, "info")
			names = slices.AppendSeq(names, maps.Keys(f.live.groups))
		}
		return names, nil
	case inside == "mon_groups" && g.parent == nil:
		return slices.Collect(maps.Keys(g.mons)), nil
	case elements[0] == "mon_data":
		return f.listCounters(inside)
	case g == f.live.root && elements[0] == "info":
		return f.listInfo(inside)
	case slices.Contains(f.files(g), inside):
		return nil, syscall.ENOTDIR
	}

	return nil, syscall.ENOENT
}

func (f *FS) listInfo(dir string) ([]string, error) {
	seen := map[string]bool{}
	for file := range f.info() {
		rest, ok := strings.CutPrefix("info/"+file, dir+"/")
		if ok {
			entry, _, _ := strings.Cut(rest, "/")
			seen[entry] = true
		}
		if "info/"+file == dir {
			return nil, syscall.ENOTDIR
		}
	}

	if len(seen) == 0 {
		return nil, syscall.ENOENT
	}

	return slices.Collect(maps.Keys(seen)), nil
}

func cpuList(mask uint64) string {
	var parts []string
	for cpu := 0; cpu < 64; cpu++ {
		if mask>>cpu&1 == 0 {
			continue
		}
		last := cpu
		for last+1 < 64 && mask>>(last+1)&1 == 1 {
			last++
		}
		if last == cpu {
			parts = append(parts, strconv.Itoa(cpu))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", cpu, last))
		}
		cpu = last
	}

	return strings.Join(parts, ",")
}
