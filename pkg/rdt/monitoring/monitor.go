// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// mostEnded is the maximum number of monitoring groups that one call of MonitorAll removes to give their RMIDs to other
// containers. The kernel may need minutes to free the RMID of a removed group. Until then, the other container can get only
// an RMID that is reserved for classes.
const mostEnded = 4

// Monitors implements classes.Monitor.
func (cs *Containers) Monitors(class string) bool {
	m := cs.machine.Load()
	return m != nil && m.Selection.Has(class)
}

// Monitor implements classes.Monitor. If the container's monitoring group is in the control group of another class,
// Monitor replaces it. If containers wait for RMIDs, Monitor leaves the free RMIDs to them.
func (cs *Containers) Monitor(_ context.Context, container classes.Holder, class string) {
	cs.monitor(classes.InClass{Holder: container, Class: class}, false)
}

// MonitorAll implements classes.Monitor.
func (cs *Containers) MonitorAll(ctx context.Context, running []classes.InClass) {
	m := cs.machine.Load()
	if m == nil {
		return
	}

	containers := map[string]classes.InClass{}
	var candidates []candidate
	for _, c := range running {
		lacks := m.Info.RMIDs > 0 && cs.lacksRMID(c)
		if !lacks && ctx.Err() == nil {
			cs.monitor(c, false)
		}
		if exists := cs.monitors.exists(c.ID); lacks || exists {
			containers[c.ID] = c
			candidates = append(candidates, candidate{c.ID, c.Class, c.PodUID, exists})
		}
	}

	for _, turn := range cs.share(m, candidates) {
		if ctx.Err() == nil {
			cs.take(m, turn, containers[turn.begin])
		}
	}
	free := cs.monitors.free(m.Info)
	for id, c := range containers {
		cs.monitors.wait(id, groups.Of(c.Class), free)
	}
	cs.shareCounters(ctx, m, running)
}

// share returns the changes that share the RMIDs. On Arm, each class has RMIDs of its own. A class in which they are
// all in use shares them between its pods, and takes no part in sharing the RMIDs that any class can have.
func (cs *Containers) share(m *Machine, candidates []candidate) (turns []turn) {
	free, alone := cs.monitors.free(m.Info), map[string][]candidate{}
	all := slices.DeleteFunc(candidates, func(c candidate) bool {
		full := free > 0 && cs.monitors.full(groups.Of(c.class))
		if full {
			alone[c.class] = append(alone[c.class], c)
		}
		return full
	})
	turns = shareRMIDs(all, free, mostEnded)
	for _, class := range slices.Sorted(maps.Keys(alone)) {
		turns = append(turns, shareRMIDs(alone[class], cs.monitors.freeOfClass(m.Info, groups.Of(class)), mostEnded)...)
	}
	return turns
}

// lacksRMID reports whether a container should be monitored, but has no monitoring group. If the backend could not create the
// group for a reason other than a lack of RMIDs, lacksRMID returns false.
func (cs *Containers) lacksRMID(c classes.InClass) bool {
	s, known := cs.monitors.state(c.ID)
	return cs.Monitors(c.Class) && (!known || s.waits())
}

// take carries out the turn `t`, which gives an RMID to the container in the parameter `to`. If this container cannot be monitored,
// no other container loses its RMID.
func (cs *Containers) take(m *Machine, t turn, to classes.InClass) {
	if err := m.mayMonitor(to.Holder, groups.Of(to.Class)); err != nil {
		cs.withoutMonitoring(to.ID, groups.Of(to.Class), err)
		return
	}

	if control, exists := cs.monitors.of(t.end); exists {
		why := errNoRMID
		if cs.monitors.full(control) {
			why = errNoClassRMID
		}
		cs.withoutMonitoring(t.end, control, why)
		cs.log.Debug("a container is not monitored any more, because its class or pod has more than its share of RMIDs",
			"id", t.end, "instead", to.String())
	}
	cs.monitor(to, true)
}

// monitor creates, replaces or removes the monitoring group of a container. If `granted` is false, monitor leaves a free RMID
// to each other container that waits for an RMID.
func (cs *Containers) monitor(c classes.InClass, granted bool) {
	selected, to := cs.Monitors(c.Class), groups.Of(c.Class)
	if !cs.monitors.differs(c.ID, selected, to) {
		cs.complete(c.Holder, to)
		return
	}

	m, err := cs.setMonitored(c.Holder, selected, to, granted)
	// The mutex `counting` is not held while the threads are moved, because a container can have many threads. The move
	// does not change the sum that the kernel shows for the class.
	if err == nil && m != nil {
		err = cs.fill(m.Tree, c.Holder, monitorPath(to, c.ID), nil)
	}
	if err != nil {
		cs.withoutMonitoring(c.ID, to, err)
		cs.log.Debug("cannot monitor a container; retrying", "container", c.String(), "error", err)
	}
}

// setMonitored creates the monitoring group of a container if the container is selected, and otherwise removes the
// group. The result `m` is nil if no group was created.
func (cs *Containers) setMonitored(container classes.Holder, selected bool, to string, granted bool) (m *Machine, err error) {
	cs.monitors.counting.Lock()
	defer cs.monitors.counting.Unlock()
	m = cs.machine.Load()
	if !cs.monitors.differs(container.ID, selected, to) { // another caller was faster
		return nil, nil
	}
	replaces := cs.monitors.exists(container.ID)
	if !selected || replaces {
		cs.unmonitor(container.ID)
	}
	if !selected {
		cs.counts.forget(container.ID)
		cs.rotation.forget(container.ID)
	}
	if !selected || m == nil {
		return nil, nil
	}

	if err := m.mayMonitor(container, to); err != nil {
		return nil, err
	}
	if free := cs.monitors.free(m.Info); !replaces && (free <= 0 || !granted && free <= cs.monitors.waiting(container.ID)) {
		return nil, errNoRMID
	}
	if !replaces && !granted && cs.monitors.full(to) {
		return nil, errNoClassRMID
	}
	if err := cs.createMonitor(m, container, to); err != nil {
		return nil, err
	}
	cs.monitors.set(container.ID, to)
	cs.lookForCounter(m, container.ID, to)
	return m, nil
}

// MakeRoom ends the monitoring of as many containers as needed to leave RMIDs to a number of control groups, because classes are more
// important than the monitoring of containers.
func (cs *Containers) MakeRoom(info resctrl.Info, controls int) {
	cs.monitors.reserve(info, controls)
	states := cs.monitors.all()
	maps.DeleteFunc(states, func(_ string, s state) bool { return !s.hasGroup() })
	ids, free := slices.Sorted(maps.Keys(states)), cs.monitors.besides(info, controls)
	for _, id := range ids[max(0, len(ids)+min(0, free)):] {
		cs.withoutMonitoring(id, states[id].control, errNoRMID)
	}
}

// withoutMonitoring removes the monitoring group that a container has in a control group, and records why the
// container is not monitored.
func (cs *Containers) withoutMonitoring(id, control string, why error) {
	cs.monitors.counting.Lock()
	defer cs.monitors.counting.Unlock()
	if at, exists := cs.monitors.of(id); exists && at == control {
		cs.unmonitor(id)
	}
	if !cs.monitors.exists(id) {
		cs.monitors.miss(id, control, why)
	}
}

// lookForCounter records whether a monitored container has a counter of memory bandwidth.
func (cs *Containers) lookForCounter(m *Machine, id, control string) {
	assigned, err := m.Assignments(monitorPath(control, id))
	if err != nil {
		cs.log.Debug("cannot read whether a container has a counter; retrying", "id", id, "error", err)
		return
	}
	cs.noteCounter(id, assigned.Lacks(resctrl.MBMTotal))
}

// Monitored implements classes.Monitor.
func (cs *Containers) Monitored() []string {
	ids := slices.AppendSeq(cs.counts.ids(), maps.Keys(cs.monitors.all()))
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Tracks implements classes.Monitor.
func (cs *Containers) Tracks(id string) bool {
	_, known := cs.monitors.state(id)
	return known || cs.counts.has(id)
}

// Unmonitor implements classes.Monitor.
func (cs *Containers) Unmonitor(id string) {
	cs.monitors.counting.Lock()
	defer cs.monitors.counting.Unlock()
	cs.unmonitor(id)
	cs.counts.forget(id)
	cs.rotation.forget(id)
}

// Find records the existing monitoring groups of this program, e.g. from a former run, and the number of other
// programs' groups. A group in a control group of another program counts as that program's group, whatever its name is.
func (cs *Containers) Find() {
	m := cs.machine.Load()
	if m == nil {
		return
	}

	cs.monitors.counting.Lock()
	defer cs.monitors.counting.Unlock()
	controls, err := m.Groups()
	found, foreign := map[string]string{}, 0
	for _, control := range controls {
		names, listErr := m.MonitoringGroups(control)
		err = errors.Join(err, listErr)
		for _, name := range names {
			if id, ours := strings.CutPrefix(name, groups.Prefix); ours && id != "" && (control == resctrl.Root || groups.IsManaged(control)) {
				found[id] = control
			} else {
				foreign++
			}
		}
	}

	if err != nil {
		cs.log.Debug("cannot list the monitoring groups; retrying", "error", err)
		return
	}
	cs.monitors.replace(found, foreign)
	controls = slices.DeleteFunc(controls, func(name string) bool { return !m.Exists(name) }) // others are files of newer kernels
	cs.monitors.reserve(m.Info, max(len(controls), 1+len(m.Offered)))
	assignable := m.mayAssignCounters()
	for id, control := range found {
		if assignable {
			cs.lookForCounter(m, id, control)
		} else {
			cs.noteCounter(id, false)
		}
	}
}
