// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"cmp"
	"maps"
	"slices"
)

// OpKind is what an Op does.
type OpKind string

const (
	// Create makes a group. The kernel gives it everything that is not exclusive to others, but it has no tasks.
	Create OpKind = "create"
	// Write sets schemata of a group.
	Write OpKind = "write"
	// Remove removes a group. The kernel moves tasks that it has to the root group.
	Remove OpKind = "remove"
)

// Op is one change of resctrl: one system call.
type Op struct {
	Kind  OpKind
	Group string
	// Schemata are what Write writes: only what changes.
	Schemata Schemata
}

// Plan says how groups get from their current schemata to those wanted; a wanted group that is not current is created.
// Current groups that are not wanted stay as they are.
//
// At every moment a group that was there before has, of every cache, bits that it had before or gets, and no others,
// and as much bandwidth as before or after, or less. Two groups that have no bit of a cache in common before, nor
// after, never have one in between. Two cases are beyond the kernel's interface: a new group has the kernel's defaults
// until its first write, while nobody uses it; and when groups swap masks that are too small to be divided, the first of
// them to move shares the other's bits until that has moved, too.
func Plan(current, wanted map[string]Schemata, info Info) []Op {
	var ops []Op
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if _, ok := current[name]; !ok {
			ops = append(ops, Op{Kind: Create, Group: name})
		}
	}
	cells := cellsOf(current, wanted, info)
	for _, phase := range []func(*cell){(*cell).shrink, (*cell).move} {
		for _, c := range cells {
			c.steps = nil
			phase(c)
		}
		ops = append(ops, merge(cells)...)
	}
	return ops
}

// step sets one value.
type step struct {
	group  string
	schema Schema
	value  uint64
}

// cell is one thing that groups share: a cache, with its code and data halves, or the memory bandwidth of one domain.
// What happens in one cell does not matter to the others.
type cell struct {
	id    int
	units []*unit
	cache CacheInfo
	// masks says that values are sets of bits, and not amounts.
	masks bool
	steps []step
}

// unit is one value of a cell, on its way from old to wanted.
type unit struct {
	group  string
	schema Schema
	// created units are of new groups: nothing of the cell is in use by them before.
	created              bool
	old, current, wanted uint64
	// apart are those of other groups that it has nothing in common with, before and after.
	apart []*unit
}

type cellKey struct {
	level string
	id    int
}

func cellsOf(current, wanted map[string]Schemata, info Info) []*cell {
	byKey := map[cellKey]*cell{}
	for name, schemata := range wanted {
		before, exists := current[name]
		for schema, domains := range schemata {
			for id, value := range domains {
				key := cellKey{schema.Level(), id}
				if byKey[key] == nil {
					byKey[key] = &cell{id: id, cache: info.Caches[schema], masks: key.level != ""}
				}
				old := before[schema][id]
				u := &unit{group: name, schema: schema, created: !exists, old: old, current: old, wanted: value}
				byKey[key].units = append(byKey[key].units, u)
			}
		}
	}
	cells := make([]*cell, 0, len(byKey))
	keys := slices.SortedFunc(maps.Keys(byKey), func(a, b cellKey) int {
		return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(a.id, b.id))
	})
	for _, key := range keys {
		byKey[key].prepare()
		cells = append(cells, byKey[key])
	}
	return cells
}

func (c *cell) prepare() {
	slices.SortFunc(c.units, func(a, b *unit) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.schema, b.schema))
	})
	if !c.masks {
		return
	}
	for _, u := range c.units {
		for _, other := range c.units {
			if u.group != other.group && u.old&other.old == 0 && u.wanted&other.wanted == 0 {
				u.apart = append(u.apart, other)
			}
		}
	}
}

func (c *cell) set(u *unit, value uint64) {
	u.current = value
	c.steps = append(c.steps, step{u.group, u.schema, value})
}

// shrink takes from each unit what it must not have in the end, as far as the CPU takes what is left.
func (c *cell) shrink() {
	for _, u := range c.units {
		if u.created {
			continue
		}
		less := min(u.old, u.wanted)
		if c.masks {
			less = u.old & u.wanted
		}
		if less != u.old && (!c.masks || c.cache.legal(less) == nil) {
			c.set(u, less)
		}
	}
}

// move brings all units to where they should be, as soon as their place is free.
func (c *cell) move() {
	for {
		pending := slices.DeleteFunc(slices.Clone(c.units), func(u *unit) bool { return u.current == u.wanted && !u.created })
		if len(pending) == 0 {
			return
		}
		if !c.settle(pending) && !c.enter(pending) && !c.makeRoom(pending) {
			c.set(pending[0], pending[0].wanted)
			pending[0].created = false
		}
	}
}

func (u *unit) blocked() uint64 {
	bits := uint64(0)
	for _, other := range u.apart {
		bits |= other.current
	}
	return bits
}

// settle gives the units what they should have whose place is free.
func (c *cell) settle(pending []*unit) bool {
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

// astray units have something that they should not have in the end.
func (u *unit) astray() bool { return u.current&^u.wanted != 0 }

// enter moves one unit into the part of its place that is free, so that it leaves that of others.
func (c *cell) enter(pending []*unit) bool {
	for _, u := range pending {
		if part := c.largestPart(u.wanted &^ u.blocked()); u.astray() && part != 0 {
			c.set(u, part)
			return true
		}
	}
	return false
}

// makeRoom shrinks one unit that is in the way to the least, where that lets another one enter.
func (c *cell) makeRoom(pending []*unit) bool {
	for _, u := range pending {
		if !u.astray() {
			continue
		}
		for _, part := range c.leastParts(u.current) {
			before := u.current
			u.current = part
			helps := slices.ContainsFunc(pending, func(other *unit) bool {
				return other != u && other.astray() && c.largestPart(other.wanted&^other.blocked()) != 0
			})
			u.current = before
			if helps {
				c.set(u, part)
				return true
			}
		}
	}
	return false
}

// merge joins the steps of all cells into as few writes as keep each cell's own order.
func merge(cells []*cell) []Op {
	var ops []Op
	for {
		group, found := "", false
		for _, c := range cells {
			if len(c.steps) > 0 {
				group, found = c.steps[0].group, true
				break
			}
		}
		if !found {
			return ops
		}
		schemata := Schemata{}
		for _, c := range cells {
			for len(c.steps) > 0 && c.steps[0].group == group {
				s := c.steps[0]
				if _, twice := schemata[s.schema][c.id]; twice {
					break
				}
				schemata.set(s.schema, c.id, s.value)
				c.steps = c.steps[1:]
			}
		}
		ops = append(ops, Op{Kind: Write, Group: group, Schemata: schemata})
	}
}
