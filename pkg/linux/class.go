// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// class has the properties of a class, in a stable order.
type class []property

// property is one value that a class sets.
type property struct {
	// name is the path of the property in the class, e.g. "rlimits.nofile".
	name    string
	setting classes.Setting
	value   value
}

// value computes what a class sets for a container.
type value interface {
	// text returns the text of a setting. `sets` is false if the class does not set it for this container.
	text(spec classes.Spec) (text string, sets bool, err error)
}

// adjustment returns what the runtime must set for a container of the class.
func (c class) adjustment(spec classes.Spec) (classes.Adjustment, error) {
	adjustment := classes.Adjustment{}
	for _, p := range c {
		text, sets, err := p.value.text(spec)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		if sets {
			adjustment[p.setting] = text
		}
	}
	return adjustment, nil
}

// fixed is a value that is the same for all containers.
type fixed string

func (f fixed) text(classes.Spec) (string, bool, error) { return string(f), true, nil }

// addedScore is an OOM score relative to the one that the kubelet has computed. It is limited to the scores from
// `least` to 1000.
type addedScore struct{ add, least int64 }

const maxScore = 1000

func (a addedScore) text(spec classes.Spec) (string, bool, error) {
	setting := classes.Setting{Name: classes.SettingOOMScoreAdj}
	own, known := spec.Settings[setting]
	if had, recorded := spec.Originals[setting]; recorded {
		own, known = had, true
	}
	score, err := strconv.ParseInt(own, 10, 64)
	if !known || err != nil {
		return "", false, fmt.Errorf("the class adds %+d to the container's own value, and the runtime does not report that value; "+
			"write a number into the class, or create the pod again", a.add)
	}
	return strconv.FormatInt(max(a.least, min(score+a.add, maxScore)), 10), true, nil
}

// ofLimit is a share of the container's memory limit, in per cent.
type ofLimit struct {
	percent int64
	// least is the minimum in bytes. A smaller share is raised to it.
	least int64
	// skip is true if containers without a limit get no value. Otherwise they are refused.
	skip bool
}

func (o ofLimit) text(spec classes.Spec) (string, bool, error) {
	switch {
	case spec.MemoryLimit > 0:
		share := spec.MemoryLimit/100*o.percent + spec.MemoryLimit%100*o.percent/100
		return strconv.FormatInt(wholePages(max(o.least, share)), 10), true, nil
	case o.skip:
		return "", false, nil
	}
	return "", false, fmt.Errorf("the class has %d%% of the memory limit, and the container has no limit; "+
		"set resources.limits.memory in the pod, or withoutLimit: skip in the class", o.percent)
}

// wholePages rounds down to whole pages as the kernel does, so that the value reads back unchanged. It rounds less than
// a page up to one page.
func wholePages(bytes int64) int64 {
	page := int64(os.Getpagesize())
	if bytes > 0 && bytes < page {
		return page
	}
	return bytes - bytes%page
}

// burst is the CPU time that a container can save up and use above its quota: a share of the quota in per cent, or microseconds. The
// kernel refuses a burst above the quota.
type burst struct {
	percent, micros int64
	skip            bool
}

func (b burst) text(spec classes.Spec) (string, bool, error) {
	switch {
	case spec.CPUQuota > 0 && b.percent > 0:
		return strconv.FormatInt(spec.CPUQuota*b.percent/100, 10), true, nil
	case spec.CPUQuota > 0:
		return strconv.FormatInt(min(b.micros, spec.CPUQuota), 10), true, nil
	case b.skip:
		return "", false, nil
	}
	return "", false, fmt.Errorf("a burst is time above the CPU limit, and the container has no limit; " +
		"set resources.limits.cpu in the pod, or withoutLimit: skip in the class")
}

// cgroupFile is a file of cgroup v2 that a class can set.
type cgroupFile struct {
	// `name` is the name of the property. `file` is the name of the file.
	name, file string
	// initial is the value in a new cgroup.
	initial string
	// `controller` is the controller that has the file. `needs` describes the kernels that have the file.
	controller, needs string
}

const (
	burstFile  = "cpu.max.burst"
	idleFile   = "cpu.idle"
	weightFile = "cpu.weight"
)

func cgroupFiles() [8]cgroupFile {
	return [...]cgroupFile{
		{"memory.min", "memory.min", "0", "memory", "Linux 4.18 or later"},
		{"memory.low", "memory.low", "0", "memory", "Linux 4.5 or later"},
		{"memory.high", "memory.high", "max", "memory", "Linux 4.5 or later"},
		{"memory.swapMax", "memory.swap.max", "max", "memory", "a kernel with CONFIG_SWAP, up to Linux 6.0 also with swapaccount=1"},
		{"memory.oomGroup", "memory.oom.group", "0", "memory", "Linux 4.19 or later"},
		{"cpu.burst", burstFile, "0", "cpu", "Linux 5.14 or later with CONFIG_CFS_BANDWIDTH"},
		{"cpu.idle", idleFile, "0", "cpu", "Linux 5.15 or later with CONFIG_FAIR_GROUP_SCHED"},
		{"pids.max", "pids.max", "max", "pids", "Linux 4.5 or later"},
	}
}

// fileOf returns the file of a setting.
func fileOf(setting classes.Setting) cgroupFile {
	for _, f := range cgroupFiles() {
		if setting.Name == classes.SettingUnified && f.file == setting.Key {
			return f
		}
	}
	return cgroupFile{}
}

// original returns the value of a cgroup v2 file that a container had before its class.
func original(spec classes.Spec, setting classes.Setting) string {
	if had, recorded := spec.Originals[setting]; recorded {
		return had
	}
	return fileOf(setting).initial
}

// words returns the text of a setting with several fields. The arguments are the name and the value of each field, in
// turn. words leaves out the fields whose value is empty or 0.
func words(fields ...string) string {
	var text []string
	for i := 0; i+1 < len(fields); i += 2 {
		if value := fields[i+1]; value != "" && value != "0" {
			text = append(text, fields[i]+"="+value)
		}
	}
	return strings.Join(text, " ")
}

// wordOf returns the value of a field in a text that `words` has made, or "" if the text does not have the field.
func wordOf(text, field string) string {
	for word := range strings.FieldsSeq(text) {
		if value, is := strings.CutPrefix(word, field+"="); is {
			return value
		}
	}
	return ""
}
