// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"cmp"
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// monitors has the containers that are or should be monitored. A monitoring group of this program has the threads of one
// container, and is in the control group of the container's class. Its name is groups.Prefix with the container's ID.
type monitors struct {
	// counting is held for writing while a group is created, moved or removed, and for reading while groups are
	// measured. The counters of a control group include those of its monitoring groups, so no group may change during a
	// measurement.
	counting sync.RWMutex

	mu sync.Mutex // guards states, and is never held during I/O
	// states has the containers by ID.
	states map[string]state

	// foreign is the number of monitoring groups of other programs.
	foreign atomic.Int64
	// reserved is the number of RMIDs that containers leave to control groups.
	reserved atomic.Int64
}

// state is the state of a container that is or should be monitored.
type state struct {
	// control is the control group in which the container has its monitoring group, or should have it.
	control string
	// missing is the reason why the container has no monitoring group. If it is errNoCounter, the container has a monitoring
	// group, but no counter of memory bandwidth. It is nil if nothing is missing.
	missing error
	// found is true if a former run has created the monitoring group, and may not have moved all threads to it.
	found bool
}

// hasGroup reports whether the container has a monitoring group.
func (s state) hasGroup() bool { return s.missing == nil || errors.Is(s.missing, errNoCounter) }

// waits reports whether the container has no monitoring group only because no RMID is free.
func (s state) waits() bool {
	return errors.Is(s.missing, errNoRMID) || errors.Is(s.missing, errLimbo) || errors.Is(s.missing, errNoClassRMID)
}

// state returns the state of a container. `known` is false if it is neither monitored nor should be, or if the backend has not tried
// to monitor it yet.
func (m *monitors) state(id string) (s state, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known = m.states[id]
	return s, known
}

// of returns the control group in which a container has a monitoring group.
func (m *monitors) of(id string) (control string, exists bool) {
	s, known := m.state(id)
	return s.control, known && s.hasGroup()
}

func (m *monitors) exists(id string) bool {
	_, exists := m.of(id)
	return exists
}

// all returns the states of all containers.
func (m *monitors) all() map[string]state {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.states)
}

// number returns how many containers have a state of which is(id, state) is true.
func (m *monitors) number(is func(id string, s state) bool) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, s := range m.states {
		if is(id, s) {
			n++
		}
	}
	return n
}

// differs reports whether the monitoring of a container must change. The parameter `to` is the name of the container's
// control group. A selected container needs a monitoring group in this group. Other containers need no monitoring group.
func (m *monitors) differs(id string, selected bool, to string) bool {
	s, known := m.state(id)
	if !selected {
		return known
	}
	return !known || !s.hasGroup() || s.control != to
}

// set records that a container has a monitoring group. If a group without a counter was moved, the state still reports that the
// counter is missing.
func (m *monitors) set(id, control string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.states[id]
	if !s.hasGroup() {
		s.missing = nil
	}
	s.control = control
	m.states[id] = s
}

// setComplete records that the monitoring group of a container has the container's threads.
func (m *monitors) setComplete(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, known := m.states[id]; known {
		s.found = false
		m.states[id] = s
	}
}

// setUncounted records whether a container with a monitoring group lacks a counter of memory bandwidth.
func (m *monitors) setUncounted(id string, uncounted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known := m.states[id]
	if !known || !s.hasGroup() {
		return
	}
	s.missing = nil
	if uncounted {
		s.missing = errNoCounter
	}
	m.states[id] = s
}

// drop forgets a container.
func (m *monitors) drop(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.states, id)
}

// miss records that a container should be monitored and has no monitoring group.
func (m *monitors) miss(id, control string, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.states[id] = state{control: control, missing: why}
}

// wait records that a container waits for an RMID, if it has no monitoring group and no other reason is recorded. If
// the whole machine has no free RMID, it replaces the reason that only the container's class has none.
func (m *monitors) wait(id, control string, free int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known := m.states[id]
	if known && s.hasGroup() {
		return
	}
	why := cmp.Or(s.missing, errNoRMID)
	if free <= 0 && errors.Is(why, errNoClassRMID) {
		why = errNoRMID
	}
	m.states[id] = state{control: control, missing: why}
}

// full reports whether containers of a control group wait although other classes could get RMIDs: on Arm, each class has RMIDs of its own.
func (m *monitors) full(control string) bool {
	return m.number(func(_ string, s state) bool { return s.control == control && errors.Is(s.missing, errNoClassRMID) }) > 0
}

// freeOfClass returns how many of the RMIDs of its class are not in use by containers. The kernel may not have freed
// all of them yet.
func (m *monitors) freeOfClass(info resctrl.Info, control string) int {
	return info.RMIDsOfClass() - 1 - m.number(func(_ string, s state) bool { return s.control == control && s.hasGroup() })
}

// reserve sets how many RMIDs containers leave to control groups. `controls` is the number of control groups that exist or are about to
// exist. If the CPU has enough RMIDs, reserve keeps one for each control group that the CPU can have, so that more classes can be
// configured later, even if the kernel needs minutes to free RMIDs.
func (m *monitors) reserve(info resctrl.Info, controls int) {
	if info.RMIDs > info.CLOSIDs {
		controls = info.CLOSIDs
	}
	m.reserved.Store(int64(controls))
}

// free returns the number of RMIDs that are available for the monitoring groups of containers. The result is negative if other
// programs use some of the reserved RMIDs.
func (m *monitors) free(info resctrl.Info) int { return m.besides(info, int(m.reserved.Load())) }

// besides returns how many RMIDs are left besides those of a number of control groups, and of all monitoring groups.
func (m *monitors) besides(info resctrl.Info, controls int) int {
	return info.RMIDs - controls - int(m.foreign.Load()) - m.number(func(_ string, s state) bool { return s.hasGroup() })
}

// waiting returns the number of containers that wait for an RMID of any class. The parameter `except` is the ID of a container that is not
// counted.
func (m *monitors) waiting(except string) int {
	return m.number(func(id string, s state) bool {
		return id != except && s.waits() && !errors.Is(s.missing, errNoClassRMID)
	})
}

// containers returns the readings of the monitored containers in a control group, by container ID. `parts` has the
// readings of all monitoring groups in this control group, by name.
func (m *monitors) containers(control string, parts map[string]classes.Reading) map[string]classes.Reading {
	found := map[string]classes.Reading{}
	for name, reading := range parts {
		id, ours := strings.CutPrefix(name, groups.Prefix)
		if at, exists := m.of(id); ours && exists && at == control {
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
	for id, s := range m.states {
		if s.control == control && s.missing != nil {
			found[id] = whyMissing(s.missing)
		}
	}
	return found
}

// replace records which monitoring groups exist. `found` has their control groups, by container ID.
func (m *monitors) replace(found map[string]string, foreign int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.states, func(id string, s state) bool {
		_, exists := found[id]
		return s.hasGroup() && !exists
	})
	for id, control := range found {
		s, known := m.states[id]
		if !known || !s.hasGroup() {
			s = state{found: true}
		}
		s.control = control
		m.states[id] = s
	}
	m.foreign.Store(int64(foreign))
}
