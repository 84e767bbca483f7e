// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"path"
	"strings"
	"time"
)

// transfers counts the I/O of a cgroup on a disk.
type transfers struct{ readBytes, writtenBytes, reads, writes uint64 }

func (t transfers) plus(other transfers) transfers {
	return transfers{t.readBytes + other.readBytes, t.writtenBytes + other.writtenBytes, t.reads + other.reads, t.writes + other.writes}
}

// Transfer simulates a read and a write of the processes in a cgroup. The arguments are numbers of bytes.
func (m *Machine) Transfer(cgroup, disk string, read, written uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.disks {
		for _, t := range m.trees {
			if n := m.nodes[path.Join(t.point, cgroup)]; n != nil && d.name == disk {
				n.group.transfer(d, transfers{read, written, min(read, 1), min(written, 1)})
			}
		}
	}
}

// TransferAtLimits simulates that each cgroup without children transfers as much as its limits allow in the time
// `during`. A cgroup without a limit in bytes transfers nothing. With cgroup v2, this is also true of a cgroup with a
// limited ancestor.
func (m *Machine) TransferAtLimits(during time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.nodes {
		if n.group == nil || n.group.hasChild() {
			continue
		}
		for _, d := range m.disks {
			limits := n.group.rates[d]
			for parent := n.group.parent; parent != nil && n.group.tree.version == 2; parent = parent.parent {
				if parent.rates[d] != (rates{}) {
					limits = rates{} // the simulation does not divide the parent's limits between its children
				}
			}
			allowed := func(limit uint64) uint64 { return uint64(float64(limit) * during.Seconds()) }
			if read, written := allowed(limits[0]), allowed(limits[1]); read+written > 0 {
				n.group.transfer(d, transfers{readBytes: read, writtenBytes: written})
			}
		}
	}
}

func (g *group) hasChild() (has bool) {
	g.forEachChild(func(*group) { has = true })
	return has
}

// transfer adds I/O to a cgroup and, in cgroup v2, to its ancestors. In cgroup v2, the counters of the ancestors
// therefore still include the I/O of a cgroup after its removal (__blkcg_rstat_flush in block/blk-cgroup.c).
func (g *group) transfer(d *disk, added transfers) {
	g.transfers[d] = g.transfers[d].plus(added)
	if g.tree.version == 2 && g.parent != nil {
		g.parent.transfer(d, added)
	}
}

func (g *group) ioStatText() []byte {
	var text strings.Builder
	for _, d := range g.tree.machine.disks {
		if t := g.transfers[d]; t != (transfers{}) {
			fmt.Fprintf(&text, "%s rbytes=%d wbytes=%d rios=%d wios=%d dbytes=0 dios=0\n", d.number(), t.readBytes, t.writtenBytes, t.reads, t.writes)
		}
	}
	return []byte(text.String())
}

// recursive adds up the I/O of a cgroup of cgroup v1 and of the cgroups that are below it now. The sum does not include
// the I/O of cgroups that were removed (blkg_rwstat_recursive_sum in block/blk-cgroup-rwstat.c).
func (g *group) recursive(d *disk) transfers {
	sum := g.transfers[d]
	g.forEachChild(func(child *group) { sum = sum.plus(child.recursive(d)) })
	return sum
}

// serviceText returns the content of a cgroup v1 file that counts I/O. Its parameter is a function that selects the counters.
func (g *group) serviceText(of func(transfers) (read, write uint64)) []byte {
	var text strings.Builder
	var total uint64
	for _, d := range g.tree.machine.disks {
		if read, write := of(g.recursive(d)); read+write > 0 {
			fmt.Fprintf(&text, "%[1]s Read %[2]d\n%[1]s Write %[3]d\n%[1]s Total %[4]d\n", d.number(), read, write, read+write)
			total += read + write
		}
	}
	fmt.Fprintf(&text, "Total %d\n", total)
	return []byte(text.String())
}

func (t transfers) bytes() (read, write uint64)      { return t.readBytes, t.writtenBytes }
func (t transfers) operations() (read, write uint64) { return t.reads, t.writes }
