// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"path"
	"slices"
	"strings"
	"syscall"
)

// mkdir simulates rdtgroup_mkdir.
func (f *FS) mkdir(name string) error {
	if f.spec.ReadOnly {
		return syscall.EROFS
	}

	if _, err := f.list(name); err == nil || err == syscall.ENOTDIR {
		return syscall.EEXIST
	}

	parent, base := path.Split(name)
	parent = path.Clean(parent)
	g, inside, err := f.find(parent)
	if err != nil {
		return err
	}

	if _, err := f.list(parent); err != nil {
		return err
	}

	switch {
	case strings.Contains(base, "\n"):
		return syscall.EINVAL
	case g == f.live.root && len(inside) == 0:
		if err := f.live.makeControl(f.spec, base); err != nil {
			return err
		}
		f.assign(f.live.groups[base])
		return nil
	case g.parent == nil && len(inside) == 1 && inside[0] == "mon_groups" && base != "mon_groups":
		if err := f.live.makeMonitor(g, base); err != nil {
			return err
		}
		f.assign(g.mons[base])
		return nil
	}

	return syscall.EPERM
}

// makeControl makes a control group. As in the kernel, makeControl does not clear info/last_cmd_status, but appends its
// error message to the messages of earlier operations.
func (m *mounted) makeControl(spec Spec, name string) error {
	closid := slices.Index(m.closids, false)
	if closid < 0 {
		m.reportf("Out of CLOSIDs")
		return syscall.ENOSPC
	}

	if err := m.allocateRMID(); err != nil {
		return err
	}

	for _, s := range m.schemas {
		s.reset(closid)
		if s.cache == nil {
			continue
		}
		for _, id := range s.domains {
			value, err := m.initial(s, id, closid)
			if err != nil {
				m.freeRMID(spec)
				m.reportf("Failed to initialize allocations")
				return err
			}
			s.values[closid][id] = value
		}
	}

	m.closids[closid] = true
	m.groups[name] = &group{name: name, closid: closid, mons: map[string]*group{}}
	return nil
}

// allocateRMID simulates alloc_rmid.
func (m *mounted) allocateRMID() error {
	switch {
	case m.rmids > 0:
		m.rmids--
		return nil
	case m.limbo > 0:
		m.reportf("Out of RMIDs")
		return syscall.EBUSY
	}
	m.reportf("Out of RMIDs")
	return syscall.ENOSPC
}

func (m *mounted) freeRMID(spec Spec) {
	if spec.Limbo {
		m.limbo++
	} else {
		m.rmids++
	}
}

// makeMonitor makes a monitoring group. On Arm, an RMID is a CLOSID with one of its PMGs, so each control group has as
// many RMIDs as there are PMGs (resctrl_find_free_rmid in fs/resctrl/monitor.c).
func (m *mounted) makeMonitor(parent *group, name string) error {
	if m.pmgs > 0 && 1+len(parent.mons) >= m.pmgs {
		m.reportf("Out of RMIDs")
		return syscall.ENOSPC
	}
	if err := m.allocateRMID(); err != nil {
		return err
	}
	parent.mons[name] = &group{name: name, parent: parent, closid: parent.closid}
	return nil
}

// remove simulates unlink(2) for files, and rdtgroup_rmdir for directories.
func (f *FS) remove(name string) error {
	if f.spec.ReadOnly {
		return syscall.EROFS
	}

	if _, err := f.list(name); err == syscall.ENOTDIR {
		return syscall.EPERM
	} else if err != nil {
		return err
	}

	g, inside, _ := f.find(name)
	switch {
	case len(inside) > 0, g == f.live.root:
		return syscall.EPERM
	case g.parent != nil:
		f.move(g, g.parent)
		delete(g.parent.mons, g.name)
		f.live.freeRMID(f.spec)
	default:
		f.move(g, f.live.root)
		for _, mon := range g.mons {
			f.move(mon, f.live.root)
			f.live.freeRMID(f.spec)
		}
		f.live.root.cpus |= g.cpus
		f.live.closids[g.closid] = false
		f.live.freeRMID(f.spec)
		delete(f.live.groups, g.name)
	}

	return nil
}

// move moves all tasks of one group to another.
func (f *FS) move(from, to *group) {
	for _, t := range f.tasks {
		if t.group == from {
			t.group = to
		}
	}
}

// rename simulates rdtgroup_rename.
func (f *FS) rename(from, to string) error {
	if _, err := f.list(from); err == syscall.ENOENT {
		return err
	}

	if _, err := f.list(to); err != syscall.ENOENT {
		return syscall.EEXIST
	}

	source, inside, err := f.find(from)
	if err != nil {
		return err
	}

	parent, rest, err := f.find(path.Dir(to))
	if err != nil {
		return err
	}

	f.live.status = ""
	switch {
	case source.parent == nil || len(inside) > 0:
		f.live.reportf("Source must be a MON group")
		return syscall.EPERM
	case parent.parent != nil || strings.Join(rest, "/") != "mon_groups":
		f.live.reportf("Destination must be a mon_groups subdirectory")
		return syscall.EPERM
	case source.cpus != 0 && source.parent != parent:
		f.live.reportf("Cannot move a MON group that monitors CPUs")
		return syscall.EPERM
	}

	if f.spec.Vendor == Arm && source.parent != parent {
		f.move(source, source.parent) // seen on Linux 7.3: the rename succeeds, and the threads keep their PARTID
	}
	delete(source.parent.mons, source.name)
	source.name, source.parent, source.closid = path.Base(to), parent, parent.closid
	parent.mons[source.name] = source
	return nil
}

// writeMode simulates rdtgroup_mode_write.
func (f *FS) writeMode(g *group, data string) error {
	if !strings.HasSuffix(data, "\n") {
		return syscall.EINVAL
	}

	m := f.live
	m.status = ""
	switch strings.TrimSuffix(data, "\n") {
	case "shareable":
		g.exclusive = false
	case "exclusive":
		return m.makeExclusive(g)
	case "pseudo-locksetup":
		if slices.ContainsFunc(m.schemas, func(s *schema) bool { return s.peer != nil }) {
			m.reportf("CDP enabled")
		} else {
			m.reportf("Pseudo-locking not supported")
		}
		return syscall.EINVAL
	default:
		m.reportf("Unknown or unsupported mode")
		return syscall.EINVAL
	}

	return nil
}

func (m *mounted) makeExclusive(g *group) error {
	if g.exclusive {
		return nil
	}

	caches := 0
	for _, s := range m.schemas {
		if s.cache == nil {
			continue
		}
		caches++
		for _, id := range s.domains {
			if m.overlaps(s, id, s.values[g.closid][id], g.closid, false) {
				m.reportf("Schemata overlaps")
				return syscall.EINVAL
			}
		}
	}

	if caches == 0 {
		m.reportf("Cannot be exclusive without CAT/CDP")
		return syscall.EINVAL
	}

	g.exclusive = true
	return nil
}
