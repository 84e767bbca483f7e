// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// OpKind is the kind of an Op.
type OpKind string

const (
	// Create makes a group without tasks. The kernel gives the new group all cache that is not exclusive to other groups.
	Create OpKind = "create"
	// Write sets some schemata of a group.
	Write OpKind = "write"
	// Remove removes a group. The kernel moves the tasks of the group to the root group.
	Remove OpKind = "remove"
	// SetDevices sets the masks of device traffic. If Schemata is nil, it disables io_alloc.
	SetDevices OpKind = "set device traffic"
)

// Op is one change of resctrl. It takes one system call, or two for SetDevices.
type Op struct {
	Kind  OpKind
	Group string
	// Schemata are the values that Write and SetDevices set.
	Schemata resctrl.Schemata
}

// Plan returns the operations that change groups from their current schemata to the wanted ones. It creates missing
// groups, and does not change groups that are not in `wanted`.
//
// At every moment of the change,
//
//   - a group has only cache bits of its old or its new mask,
//   - a group has at most the larger of its old and its new bandwidth,
//   - two groups share cache bits only if they share some before or after the change.
//
// There are two exceptions. A new group has the kernel's defaults until its first write, but it has no tasks yet. If
// groups swap masks that are too small to be divided, the groups share bits until each of them has its new mask.
func Plan(current, wanted map[string]resctrl.Schemata, info resctrl.Info) []Op {
	var ops []Op
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if _, ok := current[name]; !ok {
			ops = append(ops, Op{Kind: Create, Group: name})
		}
	}

	cells := cellsOf(current, wanted, info)
	for _, phase := range []func(*cell){(*cell).shrink, (*cell).move} {
		for _, c := range cells {
			phase(c)
		}
		ops = append(ops, merge(cells)...)
	}
	return ops
}

// cell is a resource that groups share: either one cache, with its code and data parts, or the memory bandwidth of one
// domain. A unit is the value of one group in one schema of the cell. A change in one cell never waits for another cell.
type cell struct {
	// level is the level of the cache. If it is empty, the values of the units are bandwidths. Otherwise they are cache masks.
	level string
	id    int
	cache resctrl.CacheInfo
	units []*unit
	// steps are the planned changes that are not part of an Op yet.
	steps []step
}

type step struct {
	group  string
	domain resctrl.Domain
	value  uint64
}

type unit struct {
	group                string
	domain               resctrl.Domain
	old, current, wanted uint64
	// created is true if the unit belongs to a new group that is not written yet. Such a unit uses nothing of the cell.
	created bool
	// apart has those units of other groups that share no bit with this unit before the change, and none after the
	// change.
	apart []*unit
}

// cellsOf returns the cells in sorted order. The units of each cell are sorted by group and schema.
func cellsOf(current, wanted map[string]resctrl.Schemata, info resctrl.Info) []*cell {
	type key struct {
		level string
		id    int
	}
	cells := map[key]*cell{}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		before, exists := current[name]
		for _, domain := range wanted[name].Domains() {
			at := key{domain.Schema.Level(), domain.ID}
			if cells[at] == nil {
				cells[at] = &cell{level: at.level, id: at.id, cache: info.Caches[domain.Schema]}
			}

			u := &unit{group: name, domain: domain, old: before[domain], wanted: wanted[name][domain], created: !exists}
			if unlimited := info.Bandwidth != nil && domain.Schema == resctrl.MB && u.wanted == info.Bandwidth.Max; unlimited && !exists {
				u.old, u.created = u.wanted, false // a new group has no limit (rdtgroup_init_mba in fs/resctrl/rdtgroup.c)
			}
			u.current = u.old
			cells[at].units = append(cells[at].units, u)
		}
	}

	for at, c := range cells {
		for _, u := range c.units {
			for _, other := range c.units {
				if at.level != "" && u.group != other.group && u.old&other.old == 0 && u.wanted&other.wanted == 0 {
					u.apart = append(u.apart, other)
				}
			}
		}
	}
	return slices.SortedFunc(maps.Values(cells), func(a, b *cell) int {
		return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(a.id, b.id))
	})
}

func (c *cell) set(u *unit, value uint64) {
	u.current = value
	c.steps = append(c.steps, step{u.group, u.domain, value})
}

// shrink removes from each cache mask the bits that the wanted mask lacks, if the remaining mask is legal. It lowers
// bandwidth values to the wanted values. It skips new groups.
func (c *cell) shrink() {
	for _, u := range c.units {
		less := min(u.old, u.wanted)
		if c.level != "" {
			less = u.old & u.wanted
		}
		if !u.created && less != u.old && (c.level == "" || c.cache.Check(less) == nil) {
			c.set(u, less)
		}
	}
}

// move sets each unit to its wanted value as soon as no other unit uses the wanted bits. If units block each other,
// move first gives some of them smaller or other masks. If this does not help, it sets a wanted value that overlaps another
// unit.
func (c *cell) move() {
	for {
		pending := slices.DeleteFunc(slices.Clone(c.units), func(u *unit) bool { return u.current == u.wanted && !u.created })
		if len(pending) == 0 {
			return
		}

		if !c.finish(pending) && !c.enter(pending) && !c.makeRoom(pending) {
			c.set(pending[0], pending[0].wanted)
			pending[0].created = false
		}
	}
}

// blocked returns the bits that the unit must not use yet, because units in u.apart still have them.
func (u *unit) blocked() uint64 {
	bits := uint64(0)
	for _, other := range u.apart {
		bits |= other.current
	}
	return bits
}

func (u *unit) misplaced() bool { return u.current&^u.wanted != 0 }

// finish gives each pending unit its wanted value if the bits are free. It reports whether it changed any unit.
func (c *cell) finish(pending []*unit) bool {
	done := false
	for _, u := range pending {
		if u.wanted&u.blocked() == 0 {
			c.set(u, u.wanted)
			u.created = false
			done = true
		}
	}
	return done
}

// enter moves one misplaced unit, which uses bits that it does not want, into the free part of its wanted bits. Other
// units can then use the bits that this unit leaves.
func (c *cell) enter(pending []*unit) bool {
	for _, u := range pending {
		if part := largestPart(c.cache, u.wanted&^u.blocked()); u.misplaced() && part != 0 {
			c.set(u, part)
			return true
		}
	}
	return false
}

// makeRoom shrinks one misplaced unit to the minimum size, if `enter` can then move another unit.
func (c *cell) makeRoom(pending []*unit) bool {
	for _, u := range pending {
		if !u.misplaced() {
			continue
		}

		before := u.current
		for _, part := range smallestParts(c.cache, before) {
			u.current = part
			if slices.ContainsFunc(pending, func(other *unit) bool {
				return other != u && other.misplaced() && largestPart(c.cache, other.wanted&^other.blocked()) != 0
			}) {
				c.set(u, part)
				return true
			}
		}
		u.current = before
	}
	return false
}

// merge combines the steps of all cells into few writes. It does not change the order of the steps within a cell.
func merge(cells []*cell) []Op {
	var ops []Op
	for {
		next := slices.IndexFunc(cells, func(c *cell) bool { return len(c.steps) > 0 })
		if next < 0 {
			return ops
		}

		group, schemata := cells[next].steps[0].group, resctrl.Schemata{}
		for _, c := range cells {
			for len(c.steps) > 0 && c.steps[0].group == group {
				s := c.steps[0]
				if _, twice := schemata[s.domain]; twice {
					break
				}
				schemata[s.domain] = s.value
				c.steps = c.steps[1:]
			}
		}
		ops = append(ops, Op{Kind: Write, Group: group, Schemata: schemata})
	}
}

// runs returns the runs of ones in a mask, the lowest run first.
func runs(mask uint64) []uint64 {
	var found []uint64
	for mask != 0 {
		run := mask &^ (mask + mask&-mask)
		found = append(found, run)
		mask &^= run
	}
	return found
}

// largestPart returns the largest legal mask that has only bits of `mask`. It returns 0 if there is no such mask.
func largestPart(c resctrl.CacheInfo, mask uint64) uint64 {
	if mask != 0 && c.Check(mask) == nil {
		return mask
	}

	largest := uint64(0)
	for _, run := range runs(mask) {
		if c.Check(run) == nil && bits.OnesCount64(run) > bits.OnesCount64(largest) {
			largest = run
		}
	}
	return largest
}

// smallestParts returns the shortest legal masks at the low and the high end of each run of ones in `mask`. It never
// returns `mask` itself.
func smallestParts(c resctrl.CacheInfo, mask uint64) []uint64 {
	var parts []uint64
	least := c.LeastBits()
	for _, run := range runs(mask) {
		low, high := uint64(bits.TrailingZeros64(run)), uint64(bits.Len64(run))
		if high-low >= least && run != mask || high-low > least {
			parts = append(parts, (1<<least-1)<<low, (1<<least-1)<<(high-least))
		}
	}
	return parts
}
