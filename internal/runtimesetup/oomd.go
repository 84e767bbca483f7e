// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimesetup

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// unitDirs returns the directories of systemd's units. A file in one of them replaces the files of the same name in
// the directories after it (systemd.unit(5)).
func unitDirs() []string {
	return []string{
		"/etc/systemd/system.control", "/run/systemd/system.control", "/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system",
	}
}

// killRules reports the rules that let systemd-oomd kill processes of pods or of the node's programs. It kills whole
// cgroups because of their memory pressure or their use of swap, and ignores OOM scores and memory.oom.group.
func (i *inspection) killRules() {
	bySlice := map[string][]string{}
	for _, pattern := range []string{"*.slice", "*slice.d/*.conf"} { // drop-ins come after the unit, in the order of their names
		found := map[string]string{}
		for _, dir := range unitDirs() {
			matches, _ := i.Files.Glob(dir + "/" + pattern)
			for _, file := range matches {
				name := strings.TrimPrefix(file, dir+"/")
				found[name] = cmp.Or(found[name], file)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(found)) {
			slice, _, _ := strings.Cut(name, "/")
			slice = strings.TrimSuffix(slice, ".d")
			bySlice[slice] = append(bySlice[slice], found[name])
		}
	}
	for _, slice := range slices.Sorted(maps.Keys(bySlice)) {
		i.killRulesOf(slice, bySlice[slice])
	}
}

// killRulesOf reports the rules of a slice. If its files assign a setting several times, the last assignment counts.
func (i *inspection) killRulesOf(slice string, files []string) {
	harm := harmOfKills(slice)
	if harm == "" {
		return
	}

	for _, key := range []string{"ManagedOOMMemoryPressure", "ManagedOOMSwap"} {
		kills := ""
		for _, file := range files {
			data, _ := i.Files.ReadFile(file)
			for line := range strings.Lines(string(data)) {
				if name, value, _ := strings.Cut(line, "="); strings.TrimSpace(name) == key {
					kills = ""
					if strings.TrimSpace(value) == "kill" {
						kills = file
					}
				}
			}
		}
		if kills != "" {
			i.report(Warning, "systemd-oomd, if it runs, kills %s (%s=kill of %s in %s): it ignores "+
				"OOM scores and classes, and its kills look like crashes; to let the kernel choose, remove the rule", harm, key, slice, kills)
		}
	}
}

// harmOfKills returns what systemd-oomd can kill in a slice, or "" if the slice contains no pods and no programs of
// the node.
func harmOfKills(slice string) string {
	switch {
	case slice == "-.slice" || slice == "slice": // slice.d is for all slices
		return "containers and programs of the node"
	case slice == "system.slice":
		return "programs of the node, such as the journal and the container runtime"
	case slice == "kubepods.slice" || strings.HasPrefix(slice, "kubepods-"):
		return "containers"
	}
	return ""
}
