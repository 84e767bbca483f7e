// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimesetup

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// killRules reports the rules with which systemd-oomd kills in the slices of pods, or in those with the programs of the node. It kills whole
// cgroups by their pressure or swap, and regards neither OOM scores nor memory.oom.group.
func killRules(files Files) (findings []Finding) {
	for _, dir := range []string{
		"/etc/systemd/system", "/etc/systemd/system.control", "/run/systemd/system", "/run/systemd/system.control", "/usr/lib/systemd/system",
	} {
		units, _ := files.Glob(dir + "/*.slice")
		dropIns, _ := files.Glob(dir + "/*slice.d/*.conf")
		for _, file := range slices.Concat(units, dropIns) {
			slice := path.Base(strings.TrimSuffix(path.Dir(file), ".d"))
			if slices.Contains(units, file) {
				slice = path.Base(file)
			}
			if data, err := files.ReadFile(file); err == nil {
				findings = append(findings, killRulesIn(string(data), slice, file)...)
			}
		}
	}
	return findings
}

func killRulesIn(unit, slice, file string) (findings []Finding) {
	harm := ""
	switch {
	case slice == "-.slice" || slice == "slice": // slice.d is for all slices
		harm = "containers and programs of the node"
	case slice == "system.slice":
		harm = "programs of the node, such as the journal and the container runtime"
	case slice == "kubepods.slice" || strings.HasPrefix(slice, "kubepods-"):
		harm = "containers"
	default:
		return nil
	}
	for line := range strings.Lines(unit) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if (key == "ManagedOOMMemoryPressure" || key == "ManagedOOMSwap") && value == "kill" {
			findings = append(findings, Finding{Warning, fmt.Sprintf("systemd-oomd kills %s (%s=kill of %s in %s): it regards neither OOM scores "+
				"nor classes, and its kills look like crashes; remove the rule if the kernel is to choose", harm, key, slice, file)})
		}
	}
	return findings
}
