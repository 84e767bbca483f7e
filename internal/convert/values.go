// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"regexp"
	"strings"
)

// valueKey matches the keys of annotations with which pods give values to other plugins: memory-qos and memory-policy
// of containers/nri-plugins, and ulimit-adjuster of containerd/nri. The first group names what the values set, e.g.
// "memory.high".
func valueKey() *regexp.Regexp {
	return regexp.MustCompile(`^([\w.]+)\.(?:memory-qos\.nri\.io|memory-policy\.nri\.io|noderesource\.dev|nri\.containerd\.io)(?:/|$)`)
}

// scoreKey matches keys that name the OOM score. There is no common key for it.
func scoreKey() *regexp.Regexp { return regexp.MustCompile(`(?i)oom[-_.]?score[-_.]?adj`) }

// propertyFor returns the property of a class that has the effect of an annotation with values. It returns "" for other annotations.
func propertyFor(key string) string {
	if scoreKey().MatchString(key) {
		return "oomScoreAdj"
	}
	parts := valueKey().FindStringSubmatch(key)
	if parts == nil {
		return ""
	}
	properties := map[string]string{
		"memory.min": "memory.min", "memory.low": "memory.low", "memory.high": "memory.high", "memory.swap.max": "memory.swapMax",
		"memory.oom.group": "memory.oomGroup", "cpu.max.burst": "cpu.burst", "pids.max": "pids.max", "policy": "memoryPolicy", "ulimits": "rlimits",
	}
	property, known := properties[parts[1]]
	if !known && strings.Contains(key, ".memory-qos.nri.io") && parts[1] != "class" {
		return none
	}
	return property
}

// none means that no class has the effect of an annotation.
const none = "-"

// koordinatorProperty does for the annotations of Koordinator what propertyFor does for others
// (apis/slo/v1alpha1/pod.go and apis/extension).
func koordinatorProperty(key string) string {
	name, isTheirs := strings.CutPrefix(key, "koordinator.sh/")
	switch {
	case !isTheirs:
	case name == "memoryQOS":
		return "memory"
	case name == "cpuBurst":
		return "cpu.burst"
	case name == "blkioQOS":
		return "blockio"
	case name == "cpuQOS", name == "cgroup-override":
		return none
	}
	return ""
}

// noteValues notes an annotation with values, which stays. Users of this project choose classes, and administrators choose the values.
func (f *file) noteValues(key string) {
	property := propertyFor(key)
	if property == "" && f.run.Koordinator {
		property = koordinatorProperty(key)
	}
	switch property {
	case "":
	case none:
		f.note("annotation %s has no equivalent, and stays; keep the program that reads it", key)
	default:
		f.note("annotation %s stays, because it has values, and pods choose classes here; write the values into a class with %s, and request the class",
			key, property)
	}
}
