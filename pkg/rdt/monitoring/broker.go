// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"context"
	"path"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// shareCounters assigns the counters of memory bandwidth to the groups of this program, if the kernel lets programs assign them. It
// keeps no state, so it continues after a restart. `running` has the running containers in the order of their creation.
func (cs *Containers) shareCounters(ctx context.Context, m *Machine, running []classes.InClass) {
	if len(m.Offered) == 0 && !m.Selection.Enabled() || !m.Selection.monitorsBandwidth() {
		return // class files configure nothing that needs counters
	}
	if !m.mayAssignCounters() {
		return
	}
	users, changes, err := cs.plannedCounters(m, running, cs.rotation.next(cs.now(), m.Selection.Rotate))
	if err != nil {
		cs.log.Debug("cannot read which groups have counters; retrying", "error", err)
		return
	}

	if len(changes) > 0 {
		cs.assign(ctx, m, users, changes)
	}
	cs.recordCounters(users)
}

// mayAssignCounters returns false if the CPU or the kernel cannot assign counters. Each group then always has its
// counters.
func (m *Machine) mayAssignCounters() bool {
	assigned, err := m.Assignments(resctrl.Root)
	return err != nil || assigned != nil
}

// recordCounters records which containers have counters now. It leaves out those whose monitoring has ended meanwhile.
func (cs *Containers) recordCounters(users []user) {
	cs.monitors.counting.RLock()
	defer cs.monitors.counting.RUnlock()
	for _, u := range users {
		if u.container != nil && cs.monitors.exists(u.container.id) {
			cs.rotation.record(u.container.id, u.has, cs.now())
			cs.noteCounter(u.container.id, u.has.Lacks(resctrl.MBMTotal))
		}
	}
}

// plannedCounters reads which groups have counters, and plans how they are shared. Groups can be measured meanwhile.
func (cs *Containers) plannedCounters(m *Machine, running []classes.InClass, anew bool) ([]user, []change, error) {
	cs.monitors.counting.RLock()
	defer cs.monitors.counting.RUnlock()
	users, err := cs.users(m, running)
	if err != nil {
		return nil, nil, err
	}
	free, err := m.FreeCounters()
	return users, planCounters(users, free, anew), err
}

// assign carries out planned changes. A change fails if its group was removed or moved since it was planned, or if no
// counter is free any more.
func (cs *Containers) assign(ctx context.Context, m *Machine, users []user, changes []change) {
	cs.monitors.counting.Lock()
	defer cs.monitors.counting.Unlock()
	cs.countBefore(ctx, m, users, changes)
	for _, c := range changes {
		u := users[c.user]
		if err := m.Assign(u.group, c.counter, c.assigned); err != nil {
			cs.log.Debug("cannot assign a counter; retrying", "error", err)
			continue
		}
		u.has[c.counter] = c.assigned
		cs.counts.reassigned(u.control, u.part(), SeriesOf(c.counter), c.assigned)
	}
}

// part returns the name of the directory of a monitoring group. It is empty for a control group.
func (u user) part() string {
	if u.container == nil {
		return ""
	}
	return path.Base(u.group)
}

// users returns the groups of this program: the control groups of classes, those of configured classes first, then the
// root group, and then the monitoring groups of containers.
func (cs *Containers) users(m *Machine, running []classes.InClass) (users []user, err error) {
	controls, err := m.Groups()
	if err != nil {
		return nil, err
	}
	rank := func(control string) int {
		switch {
		case control == resctrl.Root:
			return 2
		case slices.Contains(m.Offered, groups.ClassOf(control)):
			return 0
		}
		return 1
	}
	slices.SortStableFunc(controls, func(a, b string) int { return rank(a) - rank(b) })
	for _, control := range controls {
		if control == resctrl.Root || groups.IsManaged(control) {
			users = append(users, user{group: control, control: control})
		}
	}
	for _, c := range running {
		if control, exists := cs.monitors.of(c.ID); exists {
			u := user{group: monitorPath(control, c.ID), control: control, container: &candidate{id: c.ID, class: c.Class, pod: c.PodUID}}
			if m.Selection.Rotate > 0 {
				u.last = cs.rotation.turnsOf(c.ID)
			}
			users = append(users, u)
		}
	}

	for i := range users {
		if users[i].has, err = m.Assignments(users[i].group); err != nil {
			return nil, err
		}
	}
	return users, nil
}

// countBefore reads each control group in which a group is about to lose counters, so that what these counters have
// counted is not lost.
func (cs *Containers) countBefore(ctx context.Context, m *Machine, users []user, changes []change) {
	counted := map[string]bool{}
	for _, c := range changes {
		control := users[c.user].control
		if c.assigned || counted[control] {
			continue
		}
		counted[control] = true
		if _, err := cs.measureClass(ctx, m, control); err != nil {
			cs.log.Debug("cannot read the counters of a class before they are assigned to other groups", "group", control, "error", err)
		}
	}
}
