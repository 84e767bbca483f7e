// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"maps"
	"strings"
	"sync"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
)

// counts has the total usage of each control group and of each container. The kernel shows only the sum of a control group's own counters and
// the counters of its monitoring groups. This sum lacks the counters that the kernel cannot read now (mon_event_count in
// fs/resctrl/monitor.c), and it decreases when a monitoring group is moved or removed. Therefore, counts adds up the growth of each
// counter. A counter that cannot be read adds nothing until it is read again.
type counts struct {
	mu sync.Mutex // guards the fields below, and is never held during I/O
	// controls has the control groups by name. A group gets a new element when it is created again, or when resctrl is
	// mounted again.
	controls map[string]*controlCount
	// containers has the totals of each container, by the name of its monitoring group: the sum of the growth of all counters
	// since the monitoring began or this program started. A container keeps its totals when its group is created again or
	// moved, and while it waits for an RMID, so the totals never decrease. The method `forget` removes the totals.
	containers map[string]classes.Reading
}

// controlCount has the totals and the last values of the counters of a control group and its monitoring groups.
type controlCount struct {
	// total has the sum of the growth of all counters so far. It is kept when the group is created again.
	total classes.Reading
	// own records the counters of the group itself. They count only threads outside of the monitoring groups.
	own *groupCount
	// parts has the monitoring groups, including those of other programs, by directory name.
	parts map[string]*groupCount
}

// groupCount has the last values of the counters of one group. If the backend has created the group, counters of caches began at 0, and
// their first values count as growth. Otherwise the first values do not count as growth, because the kernel may have counted long
// before the first reading.
type groupCount struct {
	last    classes.Reading
	created bool
}

// createdCount returns the record of a group that the backend has created. `first` has the counters that did not begin at 0.
func createdCount(first classes.Reading) *groupCount {
	return &groupCount{last: first, created: true}
}

// foundCount returns the record of a group that another program or a former run has created.
func foundCount() *groupCount { return &groupCount{last: classes.Reading{}} }

// grow records a value, and returns its growth. A value that has decreased has no growth: the kernel has begun to count anew.
func (g *groupCount) grow(series classes.Series, value float64) float64 {
	if g.unclear(series, value) {
		return 0
	}
	last, known := g.last[series]
	g.last[series] = value
	if !known && (!g.created || series.Measure == energy || series.Measure == activity) {
		return 0
	}
	return max(0, value-last)
}

// unclear reports whether a value is a 0 whose meaning is unknown. On Arm, a counter that is not ready reads 0, and later continues
// from its old value. A counter that the kernel has reset also reads 0. So that no byte counts twice, such a 0 is treated like a
// counter that cannot be read, unless the last value was 0, or the backend has created the group. If the kernel has reset the
// counter after all, the growth up to the next reading that is not 0 is lost. If that reading is above the old value, only a part
// of the growth is lost, which is as large as the old value.
func (g *groupCount) unclear(series classes.Series, value float64) bool {
	last, known := g.last[series]
	return series.Cumulative() && value == 0 && (last > 0 || !known && !g.created)
}

// of returns the record of a control group. Callers get the record before they read the counters, and pass the record
// to `add` afterwards.
func (c *counts) of(control string) *controlCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.get(control)
}

func (c *counts) get(control string) *controlCount {
	group := c.controls[control]
	if group == nil {
		group = &controlCount{total: classes.Reading{}, own: foundCount(), parts: map[string]*groupCount{}}
		c.controls[control] = group
	}
	return group
}

// created records that the backend has created a control group, and the first values of counters that do not begin at 0.
func (c *counts) created(control string, first classes.Reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.controls[control] = &controlCount{total: c.get(control).total, own: createdCount(first), parts: map[string]*groupCount{}}
}

// mounted records that resctrl was mounted, and forgets the last values of all counters, because the kernel counts anew.
func (c *counts) mounted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, group := range c.controls {
		c.controls[name] = &controlCount{total: group.total, own: foundCount(), parts: map[string]*groupCount{}}
	}
}

// createdPart records that the backend has created a monitoring group, and the first values of counters that do not begin at 0.
func (c *counts) createdPart(control, name string, first classes.Reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.get(control).parts[name] = createdCount(first)
}

// removePart records the last values of a monitoring group, and that the group was removed.
func (c *counts) removePart(control, name string, last classes.Reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	group := c.get(control)
	c.addPart(group, name, last)
	delete(group.parts, name)
}

// forget removes the totals of a container.
func (c *counts) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.containers, groups.Prefix+id)
}

// has reports whether a container has totals.
func (c *counts) has(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.containers[groups.Prefix+id] != nil
}

// ids returns the IDs of the containers that have totals.
func (c *counts) ids() (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.containers {
		ids = append(ids, strings.TrimPrefix(name, groups.Prefix))
	}
	return ids
}

// used returns the reading of a container's monitoring group, with the totals of the container in place of the counters.
func (c *counts) used(id string, reading classes.Reading) classes.Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	totals, used := c.totalsOf(groups.Prefix+id), maps.Clone(reading)
	for series := range used {
		if series.Cumulative() {
			used[series] = totals[series]
		}
	}
	return used
}

// totalsOf returns the totals of the container to which a monitoring group belongs. For a monitoring group of another program,
// it returns a new, empty Reading.
func (c *counts) totalsOf(name string) classes.Reading {
	if !strings.HasPrefix(name, groups.Prefix) {
		return classes.Reading{}
	}
	if c.containers[name] == nil {
		c.containers[name] = classes.Reading{}
	}
	return c.containers[name]
}

// reassigned records that a group got a hardware counter, which begins at 0, or lost it. `name` is the directory name of a
// monitoring group, and empty for the control group itself. The caller has read the group before.
func (c *counts) reassigned(control, name string, series classes.Series, assigned bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	group := c.get(control)
	counted := group.own
	if name != "" {
		if group.parts[name] == nil {
			group.parts[name] = foundCount()
		}
		counted = group.parts[name]
	}
	delete(counted.last, series)
	if assigned {
		counted.last[series] = 0
	}
}

// movePart records that a monitoring group was moved to another control group, and the group's values at the time of
// the move. Growth after the move counts for the new control group.
func (c *counts) movePart(from, to, name string, now classes.Reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	group := c.get(from)
	c.addPart(group, name, now)
	c.get(to).parts[name] = group.parts[name]
	delete(group.parts, name)
}

// add records the readings of a control group and its monitoring groups. It returns the values to report for the
// control group:
//
//   - for each counter in `shown`: its total in group.total
//   - for each value in `shown` that is not a counter: this value, unless the value of a monitoring group is missing
//
// `shown` is the reading of the control group. `parts` has the readings of all its monitoring groups, which the caller
// must read after the control group. `group` is the record that c.of returned before the readings. If this record was
// replaced since then, add returns nil.
func (c *counts) add(control string, group *controlCount, shown classes.Reading, parts map[string]classes.Reading) classes.Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.controls[control] != group {
		return nil
	}

	maps.DeleteFunc(group.parts, func(name string, _ *groupCount) bool { _, exists := parts[name]; return !exists })
	for name, reading := range parts {
		c.addPart(group, name, reading)
	}
	used := classes.Reading{}
	for series, value := range shown {
		if series.Cumulative() {
			group.addOwn(series, value)
			used[series] = group.total[series]
		} else if group.complete(series, parts) {
			used[series] = value
		}
	}
	return used
}

// addPart records a reading of a monitoring group in a control group. If a counter has decreased, addPart forgets the control group's
// own last values, because the kernel may have reset all counters of the cache, e.g. after a write to mbm_total_bytes_config.
func (c *counts) addPart(group *controlCount, name string, reading classes.Reading) {
	part, container := group.parts[name], c.totalsOf(name)
	if part == nil {
		part = foundCount()
		group.parts[name] = part
	}
	for series, value := range reading {
		reset := series.Cumulative() && value < part.last[series] && !part.unclear(series, value)
		if by := part.grow(series, value); series.Cumulative() {
			group.total[series] += by
			container[series] += by
		}
		if reset {
			group.own = foundCount()
		}
	}
}

// addOwn records the sum that the kernel shows for a control group. The group's own value is the difference between this
// sum and the values of the monitoring groups. The difference is too low if the kernel cannot read a counter now, or if a
// monitoring group has counted after the sum was read. So addOwn ignores a difference that is not above the last difference.
func (g *controlCount) addOwn(series classes.Series, sum float64) {
	own := sum
	for _, part := range g.parts {
		own -= part.last[series]
	}
	if len(g.parts) > 0 && own <= g.own.last[series] {
		return
	}
	g.total[series] += g.own.grow(series, own)
}

// complete reports whether `parts` has a value of the series for each monitoring group whose last reading had one.
func (g *controlCount) complete(series classes.Series, parts map[string]classes.Reading) bool {
	for name, part := range g.parts {
		_, had := part.last[series]
		if _, has := parts[name][series]; had && !has {
			return false
		}
	}
	return true
}
