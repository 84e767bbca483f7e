// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package monitoring counts what RDT classes and their containers use of caches and memory bandwidth. It makes a resctrl
// monitoring group for each selected container, and shares the CPU's RMIDs if they are too few.
//
// Locks are taken in this order: the lock of the rdt.Backend that uses the package, monitors.counting, monitors.mu. Only
// counting may be held during I/O. Nothing else is locked while counts.mu is held.
package monitoring

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// Selection selects containers by their classes, which may include the system default.
type Selection struct {
	All     bool
	Classes []string
	// Rotate is the time for which a container keeps a counter of memory bandwidth if there are too few. Then another
	// container gets the counter. It is 0 if counters stay.
	Rotate time.Duration
	// Features has the names of the monitored features. If it is nil, all features that are not OnRequest are
	// monitored.
	Features []string
}

// Enabled reports whether a class is selected.
func (s Selection) Enabled() bool { return s.All || len(s.Classes) > 0 }

// Has reports whether the containers of a class are selected.
func (s Selection) Has(class string) bool { return s.All || slices.Contains(s.Classes, class) }

// Machine is the resctrl filesystem of an applied configuration, and what the configuration selects.
type Machine struct {
	resctrl.Tree
	Info      resctrl.Info
	Selection Selection
	// Offered has the configured classes, without the system default.
	Offered []string
}

// selected returns the selected classes that are configured, and the system default if it is selected.
func (m *Machine) selected() []string {
	if !m.Selection.All {
		return m.Selection.Classes
	}
	return append(slices.Clone(m.Offered), classes.SystemDefault)
}

// Containers has the monitoring groups of containers, and the totals of classes and containers. It implements the methods
// of classes.Monitor and classes.ClassMeter that classes.Backend lacks. It may be used by several goroutines at once.
type Containers struct {
	threads func(classes.Holder) ([]int, error)
	now     func() time.Time
	log     *slog.Logger

	// machine is nil before the first call of Use.
	machine  atomic.Pointer[Machine]
	monitors monitors
	counts   counts
	rotation rotation
}

// New returns Containers without groups. The function `threads` lists the threads of a container.
func New(threads func(classes.Holder) ([]int, error), now func() time.Time, log *slog.Logger) *Containers {
	return &Containers{
		threads:  threads,
		now:      now,
		log:      log,
		monitors: monitors{states: map[string]state{}},
		counts:   counts{controls: map[string]*controlCount{}, containers: map[string]classes.Reading{}},
		rotation: rotation{turns: map[string]*turns{}},
	}
}

// Use replaces the machine, and finds the monitoring groups in it. If nothing is selected, it removes them.
func (cs *Containers) Use(m Machine) {
	cs.machine.Store(&m)
	cs.Find()
	if m.Selection.Enabled() {
		return
	}
	for _, id := range cs.Monitored() {
		cs.Unmonitor(id)
	}
}

// Created records that a control group was created in a machine with a selection.
func (cs *Containers) Created(t resctrl.Tree, selection Selection, control string) {
	cs.counts.created(control, firstReading(t, selection, control))
}

// Mounted records that resctrl was mounted, so the kernel counts anew.
func (cs *Containers) Mounted() { cs.counts.mounted() }

// Status reports how many containers are monitored, by class, and why selected containers are not monitored. The results
// are nil if no class is selected.
func (cs *Containers) Status() (map[string]classes.Monitored, []classes.Condition) {
	m := cs.machine.Load()
	if m == nil || !m.Selection.Enabled() {
		return nil, nil
	}
	return cs.monitors.status(m)
}
