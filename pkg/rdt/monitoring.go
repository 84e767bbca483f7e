// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

var _ classes.Monitor = (*Backend)(nil)

// mostEnded is the maximum number of monitoring groups that one call of MonitorAll removes to give their RMIDs to other
// containers. The kernel may need minutes to free the RMID of a removed group. Until then, the other container can get only
// an RMID that is reserved for classes.
const mostEnded = 4

// monitorName returns the name of a container's monitoring group. ok is false if no directory can have the name.
func monitorName(id string) (name string, ok bool) {
	return GroupPrefix + id, id != "" && !strings.ContainsAny(id, "/\n") && len(GroupPrefix+id) <= maxFileName
}

// monitorPath returns the path of a container's monitoring group below resctrl's mount point.
func monitorPath(control, id string) string { return resctrl.MonitoringGroup(control, GroupPrefix+id) }

// Monitors implements classes.Monitor.
func (b *Backend) Monitors(class string) bool {
	now := b.live.Load()
	return now.config != nil && now.config.monitored.has(class)
}

// Monitor implements classes.Monitor. If the container's monitoring group is in the control group of another class,
// Monitor replaces it. If containers wait for RMIDs, Monitor leaves the free RMIDs to them.
func (b *Backend) Monitor(_ context.Context, container classes.Holder, class string) {
	b.monitor(classes.InClass{Holder: container, Class: class}, false)
}

// MonitorAll implements classes.Monitor.
func (b *Backend) MonitorAll(ctx context.Context, running []classes.InClass) {
	m := b.live.Load().machine
	if m == nil {
		return
	}

	containers := map[string]classes.InClass{}
	var candidates []candidate
	for _, c := range running {
		lacks := m.info.RMIDs > 0 && b.lacksRMID(c)
		if !lacks && ctx.Err() == nil {
			b.monitor(c, false)
		}
		if exists := b.monitors.exists(c.ID); lacks || exists {
			containers[c.ID] = c
			candidates = append(candidates, candidate{c.ID, c.Class, c.PodUID, exists})
		}
	}

	for _, turn := range shareRMIDs(candidates, b.monitors.free(m.info), mostEnded) {
		if ctx.Err() == nil {
			b.take(m, turn, containers[turn.begin])
		}
	}
	for id, c := range containers {
		b.monitors.wait(id, GroupOf(c.Class))
	}
}

// lacksRMID reports whether a container should be monitored, but has no monitoring group. If the backend could not create the
// group for a reason other than a lack of RMIDs, lacksRMID returns false.
func (b *Backend) lacksRMID(c classes.InClass) bool {
	a, missing := b.monitors.absence(c.ID)
	return b.Monitors(c.Class) && !b.monitors.exists(c.ID) && (!missing || a.waits())
}

// take carries out the turn t, which gives an RMID to the container in the parameter to. If this container cannot be monitored,
// no other container loses its RMID.
func (b *Backend) take(m *machine, t turn, to classes.InClass) {
	if err := m.mayMonitor(to.Holder, GroupOf(to.Class)); err != nil {
		b.withoutMonitoring(to.ID, GroupOf(to.Class), err)
		return
	}

	if control, exists := b.monitors.of(t.end); exists {
		b.withoutMonitoring(t.end, control, errNoRMID)
		b.log.Debug("a container is not monitored any more, because its class or pod has more than its share of RMIDs",
			"id", t.end, "instead", to.String())
	}
	b.monitor(to, true)
}

// monitor creates, replaces or removes the monitoring group of a container. If granted is false, monitor leaves a free RMID
// to each other container that waits for an RMID.
func (b *Backend) monitor(c classes.InClass, granted bool) {
	selected, to := b.Monitors(c.Class), GroupOf(c.Class)
	if !b.monitors.differs(c.ID, selected, to) {
		return
	}

	m, err := b.setMonitored(c.Holder, selected, to, granted)
	// The mutex counting is not held while the threads are moved, because a container can have many threads. The move
	// does not change the sum that the kernel shows for the class.
	if err == nil && m != nil {
		err = b.fill(m.Tree, c.Holder, monitorPath(to, c.ID))
	}
	if err != nil {
		b.withoutMonitoring(c.ID, to, err)
		b.log.Debug("cannot monitor a container; retrying", "container", c.String(), "error", err)
	}
}

// setMonitored creates the monitoring group of a container if the container is selected, and otherwise removes the
// group. The result m is nil if no group was created.
func (b *Backend) setMonitored(container classes.Holder, selected bool, to string, granted bool) (m *machine, err error) {
	b.monitors.counting.Lock()
	defer b.monitors.counting.Unlock()
	m = b.live.Load().machine
	if !b.monitors.differs(container.ID, selected, to) { // another caller was faster
		return nil, nil
	}
	replaces := b.monitors.exists(container.ID)
	if !selected || replaces {
		b.unmonitor(container.ID)
	}
	if !selected {
		b.counts.forget(container.ID)
	}
	if !selected || m == nil {
		return nil, nil
	}

	if err := m.mayMonitor(container, to); err != nil {
		return nil, err
	}
	if free := b.monitors.free(m.info); !replaces && (free <= 0 || !granted && free <= b.monitors.waiting(container.ID)) {
		return nil, errNoRMID
	}
	if err := b.createMonitor(m, container, to); err != nil {
		return nil, err
	}
	b.monitors.set(container.ID, to)
	return m, nil
}

// withoutMonitoring removes the monitoring group that a container has in a control group, and records why the
// container is not monitored.
func (b *Backend) withoutMonitoring(id, control string, why error) {
	b.monitors.counting.Lock()
	defer b.monitors.counting.Unlock()
	if at, exists := b.monitors.of(id); exists && at == control {
		b.unmonitor(id)
	}
	if !b.monitors.exists(id) {
		b.monitors.miss(id, absence{control, why})
	}
}

// mayMonitor returns the reason why a container cannot be monitored even if an RMID is free, or nil if there is no such reason.
func (m *machine) mayMonitor(container classes.Holder, control string) error {
	name, ok := monitorName(container.ID)
	group, monitoring, err := m.GroupsOfTask(container.PID)
	switch {
	case m.info.RMIDs == 0:
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

func (b *Backend) createMonitor(m *machine, container classes.Holder, control string) error {
	err := m.Create(monitorPath(control, container.ID))
	switch {
	case err == nil:
		b.counts.createdPart(control, GroupPrefix+container.ID)
	case errors.Is(err, fs.ErrExist):
		return nil
	}
	return orNoRMID(err)
}

// orNoRMID adds errLimbo to EBUSY, and errNoRMID to ENOSPC. With these two errors, the kernel reports that no RMID is free.
// orNoRMID returns other errors unchanged.
func orNoRMID(err error) error {
	switch {
	case errors.Is(err, syscall.EBUSY):
		return fmt.Errorf("%w: %w", errLimbo, err)
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: %w", errNoRMID, err)
	}
	return err
}

// fill moves the threads of a container to its monitoring group, and repeats this until there is no new thread. Threads
// of other control groups stay in their groups, because the kernel refuses to move them.
func (b *Backend) fill(t resctrl.Tree, container classes.Holder, group string) error {
	tried := map[int]bool{}
	list := b.newMove(t, container, "").list
	for range maxPasses {
		tids, err := list()
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

// unmonitor removes the monitoring group of a container. The kernel then moves the container's threads to the control
// group. The caller holds b.monitors.counting for writing.
func (b *Backend) unmonitor(id string) {
	control, exists := b.monitors.of(id)
	if m := b.live.Load().machine; exists && m != nil {
		last, _ := measure(m.Tree, monitorPath(control, id))
		err := m.Remove(monitorPath(control, id))
		if err != nil && !resctrl.NotExist(err) {
			b.log.Debug("cannot remove a monitoring group; retrying", "group", monitorPath(control, id), "error", err)
			return
		}
		b.counts.removePart(control, GroupPrefix+id, last)
	}
	b.monitors.drop(id)
}

// follow moves the monitoring group of a container, with its threads, to another control group by a rename of its directory.
// The result is false if the container has no monitoring group, if the group is already there, or if the kernel refuses the
// move, as kernels before Linux 6.5 do.
func (b *Backend) follow(m *machine, id, to string) (moved bool) {
	if !b.monitors.exists(id) {
		return false
	}
	b.monitors.counting.Lock()
	defer b.monitors.counting.Unlock()
	from, exists := b.monitors.of(id)
	if !exists || from == to {
		return false
	}
	if err := m.Rename(monitorPath(from, id), monitorPath(to, id)); err != nil {
		b.log.Debug("cannot move a monitoring group; moving its threads instead", "group", monitorPath(from, id), "error", err)
		return false
	}

	now, _ := measure(m.Tree, monitorPath(to, id))
	b.monitors.set(id, to)
	b.counts.movePart(from, to, GroupPrefix+id, now)
	return true
}

// Monitored implements classes.Monitor.
func (b *Backend) Monitored() []string {
	ids := append(b.monitors.ids(), b.counts.ids()...)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Tracks implements classes.Monitor.
func (b *Backend) Tracks(id string) bool { return b.monitors.has(id) || b.counts.has(id) }

// Unmonitor implements classes.Monitor.
func (b *Backend) Unmonitor(id string) {
	b.monitors.counting.Lock()
	defer b.monitors.counting.Unlock()
	b.unmonitor(id)
	b.counts.forget(id)
}

// findMonitors records the existing monitoring groups of this program, e.g. from a former run, and the number of other
// programs' groups. A group in a control group of another program counts as that program's group, whatever its name is.
func (b *Backend) findMonitors(m *machine) {
	b.monitors.counting.Lock()
	defer b.monitors.counting.Unlock()
	controls, err := m.Groups()
	groups, foreign := map[string]string{}, 0
	for _, control := range controls {
		names, listErr := m.MonitoringGroups(control)
		err = errors.Join(err, listErr)
		for _, name := range names {
			if id, ours := strings.CutPrefix(name, GroupPrefix); ours && id != "" && (control == resctrl.Root || isManaged(control)) {
				groups[id] = control
			} else {
				foreign++
			}
		}
	}

	if err != nil {
		b.log.Debug("cannot list the monitoring groups; retrying", "error", err)
		return
	}
	b.monitors.replace(groups, foreign)
}
