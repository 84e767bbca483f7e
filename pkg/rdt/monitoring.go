// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// These are the reasons why a container is not monitored.
var (
	errNoRMID  = errors.New("all RMIDs for containers are in use")
	errLimbo   = errors.New("the RMIDs of removed groups are not free yet")
	errForeign = errors.New("another program has put the container into a resctrl group")
)

var _ classes.Monitor = (*Backend)(nil)

// monitors has the monitoring groups of this program. Each has the threads of one container, and is in the control group of the
// container's class. Its name is GroupPrefix with the container's ID.
type monitors struct {
	// counting is held for writing while a group is created, moved or removed, and for reading while groups are
	// measured. The counters of a control group include those of its monitoring groups, so no group may change during a
	// measurement.
	counting sync.RWMutex

	mu sync.Mutex // guards the fields below, and is never held during I/O
	// groups has the control group of each monitoring group, by container ID.
	groups map[string]string
	// missing has the reason for each container that should be monitored and is not, by container ID.
	missing map[string]error
	// foreign is the number of monitoring groups of other programs.
	foreign int
}

// monitorName returns the name of a container's monitoring group. ok is false if no directory can have the name.
func monitorName(id string) (name string, ok bool) {
	return GroupPrefix + id, id != "" && !strings.ContainsAny(id, "/\n") && len(GroupPrefix+id) <= maxFileName
}

// monitorPath returns the path of a container's monitoring group below resctrl's mount point.
func monitorPath(control, id string) string { return path.Join(control, "mon_groups", GroupPrefix+id) }

func (m *monitors) of(id string) (control string, exists bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	control, exists = m.groups[id]
	return control, exists
}

func (m *monitors) exists(id string) bool {
	_, exists := m.of(id)
	return exists
}

// differs reports whether the monitoring of a container must change. The parameter to is the name of the container's
// control group. A selected container needs a monitoring group in it. Other containers need no monitoring group.
func (m *monitors) differs(id string, selected bool, to string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	control, exists := m.groups[id]
	_, missing := m.missing[id]
	return exists != selected || exists && control != to || missing
}

func (m *monitors) set(id, control string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.groups[id] = control
	delete(m.missing, id)
}

// drop forgets the monitoring group of a container. If the container should be monitored and is not, the parameter why
// is the reason. Otherwise why is nil.
func (m *monitors) drop(id string, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.groups, id)
	delete(m.missing, id)
	if why != nil {
		m.missing[id] = why
	}
}

// free returns the number of RMIDs that are available for the monitoring group of a container. It keeps one RMID for
// each control group that the CPU can have. If the container does not wait for an RMID yet, free also keeps one RMID for
// each container that already waits.
func (m *monitors) free(info Info, id string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	free := info.RMIDs - info.CLOSIDs - m.foreign - len(m.groups)
	if m.missing[id] != nil {
		return free
	}
	for _, why := range m.missing {
		if errors.Is(why, errNoRMID) || errors.Is(why, errLimbo) {
			free--
		}
	}
	return free
}

// Monitors implements classes.Monitor.
func (b *Backend) Monitors(class string) bool {
	now := b.live.Load()
	return now.config != nil && now.config.monitored.has(class)
}

// Monitor implements classes.Monitor. If the container's monitoring group is in the control group of another class,
// Monitor replaces it.
func (b *Backend) Monitor(_ context.Context, container classes.Holder, class string) {
	selected, to := b.Monitors(class), GroupOf(class)
	if !b.monitors.differs(container.ID, selected, to) {
		return
	}

	m, err := b.setMonitored(container, selected, to)
	// The mutex counting is not held while the threads are moved, because a container can have many threads. The move
	// does not change the sum that the kernel shows for the class.
	if err == nil && m != nil {
		err = b.fill(m.tree, container, monitorPath(to, container.ID))
	}
	if err != nil {
		b.withoutMonitoring(container.ID, to, err)
		b.log.Debug("cannot monitor a container; retrying", "container", container.String(), "error", err)
	}
}

// setMonitored creates the monitoring group of a container if the container is selected, and otherwise removes the
// group. The result m is nil if no group was created.
func (b *Backend) setMonitored(container classes.Holder, selected bool, to string) (m *machine, err error) {
	b.monitors.counting.Lock()
	defer b.monitors.counting.Unlock()
	m = b.live.Load().machine
	if !b.monitors.differs(container.ID, selected, to) { // another caller was faster
		return nil, nil
	}
	if !selected || b.monitors.exists(container.ID) {
		b.unmonitor(container.ID)
	}
	if !selected {
		b.counts.forget(container.ID)
	}
	if !selected || m == nil || m.info.RMIDs == 0 {
		return nil, nil
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
		b.monitors.drop(id, why)
	}
}

func (b *Backend) createMonitor(m *machine, container classes.Holder, control string) error {
	name, ok := monitorName(container.ID)
	group, monitoring, err := m.groupsOfTask(container.PID)
	switch {
	case !ok:
		return fmt.Errorf("container ID %q cannot be a directory name", container.ID)
	case err != nil:
		return fmt.Errorf("process %d: %w", container.PID, err)
	case group != control, monitoring != "" && monitoring != name:
		return fmt.Errorf("%w: %s", errForeign, path.Join(group, "mon_groups", monitoring))
	case b.monitors.free(m.info, container.ID) <= 0:
		return errNoRMID
	}

	err = m.do(Op{Kind: Create, Group: monitorPath(control, container.ID)})
	switch {
	case err == nil:
		b.counts.createdPart(control, name)
	case errors.Is(err, fs.ErrExist):
		return nil
	}
	return orNoRMID(err)
}

// orNoRMID adds errLimbo or errNoRMID to a kernel error that means that no RMID is free. It returns other errors unchanged.
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
func (b *Backend) fill(t tree, container classes.Holder, group string) error {
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
			if err := t.moveTask(tid, group); err != nil && !errors.Is(err, errEnded) && !errors.Is(err, syscall.EINVAL) {
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
		last, _ := m.measure(monitorPath(control, id))
		err := m.host.Remove(m.path(monitorPath(control, id)))
		if err != nil && !notExist(err) {
			b.log.Debug("cannot remove a monitoring group; retrying", "group", monitorPath(control, id), "error", err)
			return
		}
		b.counts.removePart(control, GroupPrefix+id, last)
	}
	b.monitors.drop(id, nil)
}

// follow moves the monitoring group of a container, with its threads, to another control group by a rename of its directory.
// The result is false if there is no group, or if the kernel refuses the move, as kernels before Linux 6.5 do.
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
	if err := m.host.Rename(m.path(monitorPath(from, id)), m.path(monitorPath(to, id))); err != nil {
		b.log.Debug("cannot move a monitoring group; moving its threads instead", "group", monitorPath(from, id), "error", m.explain(err, ""))
		return false
	}

	now, _ := m.measure(monitorPath(to, id))
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

// Unmonitor implements classes.Monitor.
func (b *Backend) Unmonitor(id string) {
	b.monitors.counting.Lock()
	defer b.monitors.counting.Unlock()
	b.unmonitor(id)
	b.counts.forget(id)
}

// containers returns the readings of the monitored containers in a control group, by container ID. parts has the
// readings of all monitoring groups in this control group, by name.
func (m *monitors) containers(control string, parts map[string]classes.Reading) map[string]classes.Reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := map[string]classes.Reading{}
	for name, reading := range parts {
		id, ours := strings.CutPrefix(name, GroupPrefix)
		if at, exists := m.groups[id]; ours && exists && at == control {
			found[id] = reading
		}
	}
	return found
}

func (m *monitors) ids() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Concat(slices.Collect(maps.Keys(m.groups)), slices.Collect(maps.Keys(m.missing)))
}

// findMonitors records the existing monitoring groups of this program, e.g. from a former run, and the number of other
// programs' groups. A group in a control group of another program counts as that program's group, whatever its name is.
func (b *Backend) findMonitors(m *machine) {
	b.monitors.counting.Lock()
	defer b.monitors.counting.Unlock()
	controls, err := m.groupNames()
	groups, foreign := map[string]string{}, 0
	for _, control := range controls {
		names, listErr := m.host.ReadDir(m.path(control, "mon_groups"))
		if listErr != nil && !notExist(listErr) {
			err = errors.Join(err, listErr)
		}
		for _, name := range names {
			if id, ours := strings.CutPrefix(name, GroupPrefix); ours && id != "" && (control == rootGroup || isManaged(control)) {
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

func (m *monitors) replace(groups map[string]string, foreign int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.groups, m.foreign = groups, foreign
}

// conditions reports how many containers are monitored, and the reasons why selected containers are not monitored.
func (m *monitors) conditions(config *Config, info Info) []classes.Condition {
	if config == nil || !config.monitored.enabled() {
		return nil
	}
	condition := classes.Condition{Type: ConditionMonitored, Reason: "CannotMonitor", Message: "the CPU or the kernel cannot monitor caches (info/L3_MON)"}
	if info.RMIDs == 0 {
		return []classes.Condition{condition}
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	condition.Healthy, condition.Reason = true, "Monitored"
	condition.Message = "containers monitored: " + strconv.Itoa(len(m.groups))
	if len(m.missing) > 0 {
		reasons := map[string]int{}
		for _, err := range m.missing {
			reasons[missingReason(err)]++
		}
		var texts []string
		for _, reason := range slices.Sorted(maps.Keys(reasons)) {
			texts = append(texts, fmt.Sprintf("%s: %d", reason, reasons[reason]))
		}
		condition.Healthy, condition.Reason = false, "NotAllMonitored"
		condition.Message += fmt.Sprintf("; not monitored: %d (%s); of the %d RMIDs of this machine, %d are reserved for classes, and other programs use %d",
			len(m.missing), strings.Join(texts, "; "), info.RMIDs, info.CLOSIDs, m.foreign)
	}
	return []classes.Condition{condition}
}

// missingReason returns why a container is not monitored, without details that differ between containers.
func missingReason(err error) string {
	for _, reason := range []error{errNoRMID, errLimbo, errForeign, errEnded} {
		if errors.Is(err, reason) {
			return reason.Error()
		}
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}
