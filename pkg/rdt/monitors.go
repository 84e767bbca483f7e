// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// These are the reasons why a container is not monitored.
var (
	errNoRMID        = errors.New("all RMIDs for containers are in use")
	errLimbo         = errors.New("the RMIDs of removed groups are not free yet")
	errForeign       = errors.New("another program has put the container into a resctrl group")
	errCannotMonitor = errors.New("the CPU or the kernel cannot monitor caches (info/L3_MON)")
)

// reason is an error and its name, which is the value of a label in metrics.
type reason struct {
	err  error
	name string
}

// reasons returns all reasons. The last one stands for all other errors.
func reasons() []reason {
	return []reason{
		{errNoRMID, "NoFreeRMID"}, {errLimbo, "RMIDsNotFreeYet"}, {errForeign, "ForeignGroup"}, {errCannotMonitor, "CannotMonitor"}, {nil, "Error"},
	}
}

// whyMissing returns the reason to which an error belongs.
func whyMissing(err error) reason {
	all := reasons()
	return all[slices.IndexFunc(all, func(r reason) bool { return r.err == nil || errors.Is(err, r.err) })]
}

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
	// missing has the containers that should be monitored and are not, by container ID.
	missing map[string]absence
	// foreign is the number of monitoring groups of other programs.
	foreign int
}

// absence describes a missing monitoring group. control is its control group, and why is the reason why it is missing.
type absence struct {
	control string
	why     error
}

// waits reports whether the container has no monitoring group only because no RMID is free.
func (a absence) waits() bool { return errors.Is(a.why, errNoRMID) || errors.Is(a.why, errLimbo) }

func newMonitors() monitors {
	return monitors{groups: map[string]string{}, missing: map[string]absence{}}
}

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

// drop forgets the monitoring group of a container.
func (m *monitors) drop(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.groups, id)
	delete(m.missing, id)
}

// miss records that a container should be monitored and has no monitoring group.
func (m *monitors) miss(id string, a absence) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.groups, id)
	m.missing[id] = a
}

// wait records that a container waits for an RMID, if it has no monitoring group and no other reason is recorded.
func (m *monitors) wait(id, control string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, exists := m.groups[id]; exists {
		return
	}
	m.missing[id] = absence{control, cmp.Or(m.missing[id].why, errNoRMID)}
}

// absence returns why a container that should be monitored has no monitoring group. missing is false if the container has a
// monitoring group, or if the backend has not tried to create the group yet.
func (m *monitors) absence(id string) (a absence, missing bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, missing = m.missing[id]
	return a, missing
}

// free returns the number of RMIDs that are available for the monitoring groups of containers. It keeps one RMID for
// each control group that the CPU can have. The result is negative if other programs use some of these kept RMIDs.
func (m *monitors) free(info resctrl.Info) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return info.RMIDs - info.CLOSIDs - m.foreign - len(m.groups)
}

// waiting returns the number of containers that wait for an RMID. The parameter except is the ID of a container that is not counted.
func (m *monitors) waiting(except string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, a := range m.missing {
		if id != except && a.waits() {
			n++
		}
	}
	return n
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
}

// counts returns how many containers are monitored and how many are not, by class. It includes the selected classes without
// containers.
func (m *monitors) counts(config *Config) map[string]classes.Monitored {
	found := map[string]classes.Monitored{}
	add := func(class string, containers int, missing string) {
		counted, has := found[class]
		if !has {
			counted.Missing = map[string]int{}
			for _, r := range reasons() {
				counted.Missing[r.name] = 0
			}
		}
		counted.Containers += containers
		if missing != "" {
			counted.Missing[missing]++
		}
		found[class] = counted
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	for _, class := range config.monitoredClasses() {
		add(class, 0, "")
	}
	for _, control := range m.groups {
		add(classOf(control), 1, "")
	}
	for _, a := range m.missing {
		add(classOf(a.control), 0, whyMissing(a.why).name)
	}
	return found
}

// status reports how many containers are monitored, and why selected containers are not monitored.
func (m *monitors) status(config *Config, info resctrl.Info) (map[string]classes.Monitored, []classes.Condition) {
	if config == nil || !config.monitored.enabled() {
		return nil, nil
	}
	counts := m.counts(config)
	if info.RMIDs == 0 {
		return counts, []classes.Condition{{Type: ConditionMonitored, Reason: "CannotMonitor", Message: errCannotMonitor.Error()}}
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	condition := classes.Condition{Type: ConditionMonitored, Healthy: true, Reason: "Monitored"}
	condition.Message = fmt.Sprintf("containers monitored: %d%s", len(m.groups), byClass(counts))
	if len(m.missing) > 0 {
		condition.Healthy, condition.Reason = false, "NotAllMonitored"
		condition.Message += fmt.Sprintf("; not monitored: %d (%s); of the %d RMIDs of this machine, %d are reserved for classes, and other programs use %d; "+
			"the rest is shared evenly between classes, and between the pods of a class",
			len(m.missing), missingReasons(m.missing), info.RMIDs, info.CLOSIDs, m.foreign)
	}
	return counts, []classes.Condition{condition}
}

// byClass returns how many containers of each class are monitored, as text in parentheses. It leaves out classes without
// containers.
func byClass(counts map[string]classes.Monitored) string {
	var texts []string
	for _, class := range slices.Sorted(maps.Keys(counts)) {
		all := counts[class].Containers
		for _, missing := range counts[class].Missing {
			all += missing
		}
		if all > 0 {
			texts = append(texts, fmt.Sprintf("%s: %d of %d", cmp.Or(class, rootClass), counts[class].Containers, all))
		}
	}
	if len(texts) == 0 {
		return ""
	}
	return " (" + strings.Join(texts, ", ") + ")"
}

// missingReasons returns how many containers are not monitored for each reason.
func missingReasons(missing map[string]absence) string {
	counts := map[string]int{}
	for _, a := range missing {
		text := a.why
		if r := whyMissing(a.why); r.err != nil {
			text = r.err // without details that differ between containers
		} else if errors.Is(a.why, resctrl.ErrEnded) {
			text = resctrl.ErrEnded
		}
		counts[strings.ReplaceAll(text.Error(), "\n", "; ")]++
	}

	var texts []string
	for _, text := range slices.Sorted(maps.Keys(counts)) {
		texts = append(texts, fmt.Sprintf("%s: %d", text, counts[text]))
	}
	return strings.Join(texts, "; ")
}
