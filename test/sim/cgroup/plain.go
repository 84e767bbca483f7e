// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// plainFile is a file of cgroup v2 with one value, which does not depend on devices.
type plainFile struct {
	controller, initial string
	// parse returns the text that the file shows after a write.
	parse func(g *group, text string) (string, error)
}

func plainFiles() map[string]plainFile {
	return map[string]plainFile{
		"memory.min":       {"memory", "0", parsePages},
		"memory.low":       {"memory", "0", parsePages},
		"memory.high":      {"memory", "max", parsePages},
		"memory.max":       {"memory", "max", parsePages},
		"memory.swap.max":  {"memory", "max", parsePages},
		"memory.oom.group": {"memory", "0", parseBool},
		"cpu.max":          {"cpu", "max 100000", parseQuota},
		"cpu.max.burst":    {"cpu", "0", parseBurst},
		"cpu.idle":         {"cpu", "0", parseIdle},
		"cpu.weight":       {"cpu", "100", parseWeight},
		"pids.max":         {"pids", "max", parsePIDs},
	}
}

func (g *group) addPlainFiles(files map[string]*node) {
	for name, f := range plainFiles() {
		if g.parent == nil || !slices.Contains(g.controllers(), f.controller) || slices.Contains(g.tree.machine.without, name) {
			continue
		}
		files[name] = &node{
			read: func() []byte { return []byte(g.plain(name) + "\n") },
			write: func(text string) error {
				value, err := f.parse(g, strings.TrimSpace(text))
				if err == nil {
					g.values[name] = value
				}
				return err
			},
		}
	}
}

func (g *group) plain(name string) string {
	if value, ok := g.values[name]; ok {
		return value
	}
	return plainFiles()[name].initial
}

// parsePages simulates page_counter_memparse of mm/page_counter.c, without the suffixes of sizes.
func parsePages(_ *group, text string) (string, error) {
	if text == "max" {
		return text, nil
	}
	bytes, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return "", syscall.EINVAL
	}
	return strconv.FormatUint(bytes-bytes%uint64(os.Getpagesize()), 10), nil //nolint:gosec // a page size is positive
}

func parseBool(_ *group, text string) (string, error) {
	if text != "0" && text != "1" {
		return "", syscall.EINVAL
	}
	return text, nil
}

func parsePIDs(_ *group, text string) (string, error) {
	number, err := strconv.ParseInt(text, 10, 64)
	if text != "max" && (err != nil || number < 0) {
		return "", syscall.EINVAL
	}
	return text, nil
}

// quota returns the microseconds that a text of cpu.max allows in each period.
func quota(text string) int64 {
	word, _, _ := strings.Cut(text, " ")
	number, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		return math.MaxInt64
	}
	return number
}

// parseQuota simulates cpu_max_write of kernel/sched/core.c. The quota must not be less than the burst.
func parseQuota(g *group, text string) (string, error) {
	burst, _ := strconv.ParseInt(g.plain("cpu.max.burst"), 10, 64)
	if quota(text) < burst || quota(text) <= 0 {
		return "", syscall.EINVAL
	}
	return text, nil
}

// parseBurst simulates cpu_burst_write_u64 of kernel/sched/core.c.
func parseBurst(g *group, text string) (string, error) {
	burst, err := strconv.ParseInt(text, 10, 64)
	if err != nil || burst < 0 || burst > quota(g.plain("cpu.max")) {
		return "", syscall.EINVAL
	}
	return text, nil
}

// parseIdle simulates sched_group_set_idle of kernel/sched/fair.c. A cgroup gets the least weight when it becomes
// idle, and the default weight when it is no longer idle.
func parseIdle(g *group, text string) (string, error) {
	text, err := parseBool(g, text)
	if err != nil || text == g.plain("cpu.idle") {
		return text, err
	}
	g.values["cpu.weight"] = "1"
	if text == "0" {
		delete(g.values, "cpu.weight")
	}
	return text, nil
}

// parseWeight simulates cpu_weight_write_u64 of kernel/sched/core.c.
func parseWeight(g *group, text string) (string, error) {
	weight, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return "", syscall.EINVAL
	case weight < 1 || weight > 10_000:
		return "", syscall.ERANGE
	case g.plain("cpu.idle") == "1":
		return "", syscall.EINVAL
	}
	return text, nil
}
