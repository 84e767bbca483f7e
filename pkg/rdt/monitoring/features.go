// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// Feature is something that class files can select to be monitored.
type Feature struct {
	Name   string
	Events []resctrl.Event
	// OnRequest is true if the feature is monitored only if class files select it.
	OnRequest bool
}

// Features returns all features.
func Features() []Feature {
	return []Feature{
		{"cacheOccupancy", []resctrl.Event{resctrl.LLCOccupancy}, false},
		{"memoryBandwidth", []resctrl.Event{resctrl.MBMTotal, resctrl.MBMLocal}, false},
		{"energy", []resctrl.Event{resctrl.CoreEnergy, resctrl.CoreActivity}, true},
	}
}

// features returns the selected features.
func (s Selection) features() []Feature {
	return slices.DeleteFunc(Features(), func(f Feature) bool {
		if s.Features == nil {
			return f.OnRequest
		}
		return !slices.Contains(s.Features, f.Name)
	})
}

// Events returns the events of the selected features.
func (s Selection) Events() (events []resctrl.Event) {
	for _, f := range s.features() {
		events = append(events, f.Events...)
	}
	return events
}

// Lacks returns the features that class files select, and for which a machine counts no events.
func (s Selection) Lacks(info resctrl.Info) (lacks []Feature) {
	for _, f := range s.features() {
		counted := slices.ContainsFunc(f.Events, func(event resctrl.Event) bool { return slices.Contains(info.Counts, event) })
		if !counted && s.Features != nil {
			lacks = append(lacks, f)
		}
	}
	return lacks
}

// monitorsBandwidth reports whether memory bandwidth is monitored. If it is, missing counters are reported.
func (s Selection) monitorsBandwidth() bool { return slices.Contains(s.Events(), resctrl.MBMTotal) }

// uses reports whether a selected feature has its events in a directory below info/.
func (s Selection) uses(directory string) bool {
	return slices.ContainsFunc(s.Events(), func(event resctrl.Event) bool { return event.Feature() == directory })
}
