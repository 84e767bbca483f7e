// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// monitors has the monitoring groups of this program. Each has the threads of one container, and is in the control group of the
// container's class. Its name is groups.Prefix with the container's ID.
type monitors struct {
	// counting is held for writing while a group is created, moved or removed, and for reading while groups are
	// measured. The counters of a control group include those of its monitoring groups, so no group may change during a
	// measurement.
	counting sync.RWMutex

	mu sync.Mutex // guards the fields below, and is never held during I/O
	// groups has the control group of each monitoring group, by container ID.
	groups map[string]string
	// uncounted has the containers that have a monitoring group, but no counter of memory bandwidth.
	uncounted map[string]bool
	// missing has the containers that should be monitored and are not, by container ID.
	missing map[string]absence
	// foreign is the number of monitoring groups of other programs.
	foreign int
	// reserved is the number of RMIDs that containers leave to control groups.
	reserved int
}

// absence describes a missing monitoring group. `control` is its control group, and `why` is the reason why it is
// missing.
type absence struct {
	control string
	why     error
}

// waits reports whether the container has no monitoring group only because no RMID is free.
func (a absence) waits() bool {
	return errors.Is(a.why, errNoRMID) || errors.Is(a.why, errLimbo) || errors.Is(a.why, errNoClassRMID)
}

func (m *monitors) of(id string) (control string, exists bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	control, exists = m.groups[id]
	return control, exists
}

// all returns the control groups of all monitoring groups, by container ID.
func (m *monitors) all() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.groups)
}

func (m *monitors) exists(id string) bool {
	_, exists := m.of(id)
	return exists
}

// differs reports whether the monitoring of a container must change. The parameter `to` is the name of the container's
// control group. A selected container needs a monitoring group in this group. Other containers need no monitoring group.
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

// count records whether a container with a monitoring group has a counter of memory bandwidth.
func (m *monitors) count(id string, unassigned bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, exists := m.groups[id]; exists && unassigned {
		m.uncounted[id] = true
	} else {
		delete(m.uncounted, id)
	}
}

func (m *monitors) lacksCounter(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.uncounted[id]
}

// drop forgets the monitoring group of a container.
func (m *monitors) drop(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.groups, id)
	delete(m.missing, id)
	delete(m.uncounted, id)
}

// miss records that a container should be monitored and has no monitoring group.
func (m *monitors) miss(id string, a absence) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.groups, id)
	delete(m.uncounted, id)
	m.missing[id] = a
}

// wait records that a container waits for an RMID, if it has no monitoring group and no other reason is recorded. If
// the whole machine has no free RMID, it replaces the reason that only the container's class has none.
func (m *monitors) wait(id, control string, free int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, exists := m.groups[id]; exists {
		return
	}
	why := cmp.Or(m.missing[id].why, errNoRMID)
	if free <= 0 && errors.Is(why, errNoClassRMID) {
		why = errNoRMID
	}
	m.missing[id] = absence{control, why}
}

// full reports whether containers of a control group wait although other classes could get RMIDs: on Arm, each class has RMIDs of its own.
func (m *monitors) full(control string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.missing {
		if a.control == control && errors.Is(a.why, errNoClassRMID) {
			return true
		}
	}
	return false
}

// freeOfClass returns how many of the RMIDs of its class are not in use by containers. The kernel may not have freed
// all of them yet.
func (m *monitors) freeOfClass(info resctrl.Info, control string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	free := info.RMIDsOfClass() - 1
	for _, at := range m.groups {
		if at == control {
			free--
		}
	}
	return free
}

// absence returns why a container that should be monitored has no monitoring group. `missing` is false if the container has a
// monitoring group, or if the backend has not tried to create the group yet.
func (m *monitors) absence(id string) (a absence, missing bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, missing = m.missing[id]
	return a, missing
}

// reserve sets how many RMIDs containers leave to control groups. `controls` is the number of control groups that exist or are about to
// exist. If the CPU has enough RMIDs, reserve keeps one for each control group that the CPU can have, so that more classes can be
// configured later, even if the kernel needs minutes to free RMIDs.
func (m *monitors) reserve(info resctrl.Info, controls int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reserved = info.CLOSIDs
	if info.RMIDs <= info.CLOSIDs {
		m.reserved = controls
	}
}

// free returns the number of RMIDs that are available for the monitoring groups of containers. The result is negative if other
// programs use some of the reserved RMIDs.
func (m *monitors) free(info resctrl.Info) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return info.RMIDs - m.reserved - m.foreign - len(m.groups)
}

// lacking returns how many RMIDs a number of control groups lacks.
func (m *monitors) lacking(info resctrl.Info, controls int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return controls + m.foreign + len(m.groups) - info.RMIDs
}

// waiting returns the number of containers that wait for an RMID of any class. The parameter `except` is the ID of a container that is not
// counted.
func (m *monitors) waiting(except string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, a := range m.missing {
		if id != except && a.waits() && !errors.Is(a.why, errNoClassRMID) {
			n++
		}
	}
	return n
}

// containers returns the readings of the monitored containers in a control group, by container ID. `parts` has the
// readings of all monitoring groups in this control group, by name.
func (m *monitors) containers(control string, parts map[string]classes.Reading) map[string]classes.Reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := map[string]classes.Reading{}
	for name, reading := range parts {
		id, ours := strings.CutPrefix(name, groups.Prefix)
		if at, exists := m.groups[id]; ours && exists && at == control {
			found[id] = reading
		}
	}
	return found
}

// unmonitored returns why containers of a control group are not monitored, by ID.
func (m *monitors) unmonitored(control string) map[string]reason {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := map[string]reason{}
	for id, a := range m.missing {
		if a.control == control {
			found[id] = whyMissing(a.why)
		}
	}
	for id := range m.uncounted {
		if m.groups[id] == control {
			found[id] = whyMissing(errNoCounter)
		}
	}
	return found
}

// has reports whether a container has a monitoring group, or should have one.
func (m *monitors) has(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, exists := m.groups[id]
	_, missing := m.missing[id]
	return exists || missing
}

func (m *monitors) ids() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Concat(slices.Collect(maps.Keys(m.groups)), slices.Collect(maps.Keys(m.missing)))
}

func (m *monitors) replace(groups map[string]string, foreign int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.groups, m.foreign = groups, foreign
	maps.DeleteFunc(m.uncounted, func(id string, _ bool) bool { _, exists := groups[id]; return !exists })
}
