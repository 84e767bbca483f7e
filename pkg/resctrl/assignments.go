// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
)

// Assignments has, for each event of memory bandwidth and each cache, whether a hardware counter counts the event for a group.
type Assignments map[Counter]bool

// Lacks reports whether an event has no counter in some cache.
func (a Assignments) Lacks(event Event) bool {
	for counter, assigned := range a {
		if counter.Event == event && !assigned {
			return true
		}
	}
	return false
}

// Assignments reads which counters of memory bandwidth a group has. A group has none if there are more groups than counters, or
// after a change of info/L3_MON/mbm_assign_mode. The result is nil if each group has counters of its own, because the CPU or the
// kernel cannot assign counters, or the mode is not mbm_event.
func (t Tree) Assignments(group string) (Assignments, error) {
	data, err := t.host.ReadFile(t.path(group, "mbm_L3_assignments"))
	switch {
	case err == nil:
		return ParseAssignments(data), nil
	case NotExist(err), errors.Is(err, syscall.EINVAL): // EINVAL in the mode default
		return nil, nil
	}
	return nil, fmt.Errorf("%s: %w", Describe(group), err)
}

// ParseAssignments reads a file mbm_L3_assignments. Its lines are like "mbm_total_bytes:0=e;1=_" (mbm_L3_assignments_show in
// fs/resctrl/monitor.c). It skips events and cache IDs that this package does not know.
func ParseAssignments(data []byte) Assignments {
	found := Assignments{}
	for line := range strings.Lines(string(data)) {
		name, domains, _ := strings.Cut(strings.TrimSpace(line), ":")
		if event := Event(name); event == MBMTotal || event == MBMLocal {
			for cache, state := range byCache(domains) {
				found[Counter{event, cache}] = state != "_"
			}
		}
	}
	return found
}

// FreeCounters returns, by cache, how many counters of memory bandwidth no group has. If the result lacks a cache, this
// number is unknown.
func (t Tree) FreeCounters() (map[int]int, error) {
	data, err := t.host.ReadFile(t.path("info", monitoringInfo, "available_mbm_cntrs"))
	if err != nil {
		return nil, fmt.Errorf("read the number of free counters: %w", err)
	}

	free := map[int]int{}
	for cache, text := range byCache(strings.TrimSpace(string(data))) {
		if n, err := strconv.Atoi(text); err == nil {
			free[cache] = n
		}
	}
	return free, nil
}

// byCache reads a text like "0=e;1=_". It leaves out parts that do not have this form.
func byCache(text string) map[int]string {
	found := map[int]string{}
	for entry := range strings.SplitSeq(text, ";") {
		name, value, ok := strings.Cut(entry, "=")
		if cache, err := strconv.Atoi(strings.TrimSpace(name)); ok && err == nil {
			found[cache] = strings.TrimSpace(value)
		}
	}
	return found
}

// Assign gives a group a counter of memory bandwidth in one cache, or takes it away. A new counter begins at 0. The error wraps ENOSPC if
// no counter is free.
func (t Tree) Assign(group string, counter Counter, assigned bool) error {
	state := "_"
	if assigned {
		state = "e"
	}
	text := fmt.Sprintf("%s:%d=%s\n", counter.Event, counter.Domain, state)
	if err := t.host.WriteFile(t.path(group, "mbm_L3_assignments"), []byte(text)); err != nil {
		return fmt.Errorf("write %q to mbm_L3_assignments of %s: %w", strings.TrimSpace(text), Describe(group), t.explain(err, ""))
	}
	return nil
}
