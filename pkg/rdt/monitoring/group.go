// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// maxPasses is the maximum number of passes in which the threads of a container are moved to its monitoring group.
const maxPasses = 50

// monitorName returns the name of a container's monitoring group. `ok` is false if no directory can have the name.
func monitorName(id string) (name string, ok bool) {
	return groups.Prefix + id, id != "" && !strings.ContainsAny(id, "/\n") && len(groups.Prefix+id) <= groups.MaxName
}

// monitorPath returns the path of a container's monitoring group below resctrl's mount point.
func monitorPath(control, id string) string {
	return resctrl.MonitoringGroup(control, groups.Prefix+id)
}

// mayMonitor returns the reason why a container cannot be monitored even if an RMID is free, or nil if there is no such reason.
func (m *Machine) mayMonitor(container classes.Holder, control string) error {
	name, ok := monitorName(container.ID)
	group, monitoring, err := m.GroupsOfTask(container.PID)
	switch {
	case m.Info.RMIDs == 0:
		return errCannotMonitor
	case !ok:
		return fmt.Errorf("container ID %q cannot be a directory name", container.ID)
	case err != nil:
		return fmt.Errorf("process %d: %w", container.PID, err)
	case group != control, monitoring != "" && monitoring != name:
		return fmt.Errorf("%w: %s", errForeign, path.Join(group, "mon_groups", monitoring))
	}
	return nil
}

// createMonitor makes the monitoring group of a container. If the kernel reports that no RMID is free, the error has
// the reason: EBUSY if it has not freed those of removed groups yet, and ENOSPC if all are in use. If the machine has
// free RMIDs in the case of ENOSPC, they belong to other classes.
func (cs *Containers) createMonitor(m *Machine, container classes.Holder, control string) error {
	err := m.Create(monitorPath(control, container.ID))
	switch {
	case err == nil:
		cs.counts.createdPart(control, groups.Prefix+container.ID, firstReading(m.Tree, m.Selection, monitorPath(control, container.ID)))
	case errors.Is(err, fs.ErrExist):
		return nil
	case errors.Is(err, syscall.EBUSY):
		return fmt.Errorf("%w: %w", errLimbo, err)
	case errors.Is(err, syscall.ENOSPC) && cs.monitors.free(m.Info) > 0: // resctrl_find_free_rmid in fs/resctrl/monitor.c
		return fmt.Errorf("%w: %w", errNoClassRMID, err)
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: %w", errNoRMID, err)
	}
	return err
}

// fill moves the threads of a container to its monitoring group, and repeats this until there is no new thread. `inside` has threads
// that the group has already. Threads of other control groups stay in their groups, because the kernel refuses to move them.
func (cs *Containers) fill(t resctrl.Tree, container classes.Holder, group string, inside []int) error {
	tried := map[int]bool{}
	for _, tid := range inside {
		tried[tid] = true
	}
	for range maxPasses {
		tids, err := cs.threads(container)
		if err != nil {
			return err
		}

		fresh := slices.DeleteFunc(tids, func(tid int) bool { return tried[tid] })
		for _, tid := range fresh {
			tried[tid] = true
			if err := t.MoveTask(tid, group); err != nil && !errors.Is(err, resctrl.ErrEnded) && !errors.Is(err, syscall.EINVAL) {
				return err
			}
		}
		if len(fresh) == 0 {
			return nil
		}
	}
	return nil // the container keeps creating threads, which begin in the group because their parents are in it
}

// complete moves the remaining threads of a container to a monitoring group that a former run has created. That run may have ended
// before it had moved them all.
func (cs *Containers) complete(container classes.Holder, control string) {
	m := cs.machine.Load()
	if s, _ := cs.monitors.state(container.ID); m == nil || !s.found {
		return
	}

	group := monitorPath(control, container.ID)
	err := m.mayMonitor(container, control)
	if err == nil {
		var inside []int
		inside, err = m.Tasks(group)
		err = errors.Join(err, cs.fill(m.Tree, container, group, inside))
	}
	if err != nil {
		cs.log.Debug("cannot move the threads of a container to its monitoring group; retrying", "container", container.String(), "error", err)
		return
	}
	cs.monitors.setComplete(container.ID)
}

// unmonitor removes the monitoring group of a container. The kernel then moves the container's threads to the control
// group. The caller holds cs.monitors.counting for writing.
func (cs *Containers) unmonitor(id string) {
	control, exists := cs.monitors.of(id)
	if m := cs.machine.Load(); exists && m != nil {
		last, _ := m.measure(monitorPath(control, id))
		err := m.Remove(monitorPath(control, id))
		if err != nil && !resctrl.NotExist(err) {
			cs.log.Debug("cannot remove a monitoring group; retrying", "group", monitorPath(control, id), "error", err)
			return
		}
		cs.counts.removePart(control, groups.Prefix+id, last)
		cs.rotation.pause(id, cs.now())
	}
	cs.monitors.drop(id)
}

// Follow moves the monitoring group of a container, with its threads, to another control group by a rename of its directory.
// The result is false if the container has no monitoring group, if the group is already there, or if the kernel does not move the
// threads. Kernels before Linux 6.5 refuse that. On Arm, Linux 7.3 returns no error, and leaves the threads where they are.
func (cs *Containers) Follow(id, to string) (moved bool) {
	m := cs.machine.Load()
	if m == nil || !cs.monitors.exists(id) {
		return false
	}
	cs.monitors.counting.Lock()
	defer cs.monitors.counting.Unlock()
	from, exists := cs.monitors.of(id)
	if !exists || from == to {
		return false
	}
	before, _ := m.Tasks(monitorPath(from, id))
	if err := m.Rename(monitorPath(from, id), monitorPath(to, id)); err != nil {
		cs.log.Debug("cannot move a monitoring group; moving its threads instead", "group", monitorPath(from, id), "error", err)
		return false
	}

	now, _ := m.measure(monitorPath(to, id))
	cs.monitors.set(id, to)
	cs.counts.movePart(from, to, groups.Prefix+id, now)
	if after, err := m.Tasks(monitorPath(to, id)); err == nil && len(before) > 0 && len(after) == 0 {
		cs.log.Debug("the kernel has moved a monitoring group without its threads; moving them instead", "group", monitorPath(from, id))
		cs.unmonitor(id)
		return false
	}
	return true
}
