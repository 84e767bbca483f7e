// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"maps"
	"slices"
)

// values are what the files of a cgroup say, or shall say, of devices. As a state, a device that is not there has no limit and
// the cgroup's weight. As a change, a device that is not there stays as it is, and one with zeros is cleared.
type values struct {
	rates map[device]rates
	// weights by the file that has them.
	weights map[weightFile]weights
}

// weights are one file's, in its own units.
type weights struct {
	// base is that of devices without one of their own; 0 in a change: as it is.
	base uint64
	// devices are exceptions; 0 in a change: none any more.
	devices map[device]uint64
}

func newValues() values {
	return values{rates: map[device]rates{}, weights: map[weightFile]weights{}}
}

func (v values) isEmpty() bool { return len(v.rates) == 0 && len(v.weights) == 0 }

// sortedDevices makes what is written, and so what is tested and logged, the same each time.
func sortedDevices[V any](byDevice map[device]V) []device {
	return slices.SortedFunc(maps.Keys(byDevice), compareDevices)
}

func (v values) sortedFiles() []weightFile { return slices.Sorted(maps.Keys(v.weights)) }

// changeTo is the change that leads from the class with v to the class with the other values, whatever else is set.
func (v values) changeTo(to values) values {
	change := newValues()
	for dev := range v.rates {
		change.rates[dev] = unlimited()
	}
	maps.Copy(change.rates, to.rates)
	for file, before := range v.weights {
		change.weights[file] = before.cleared(file)
	}
	for file, after := range to.weights {
		change.weights[file] = change.weights[file].overriddenBy(after)
	}
	return change
}

func (w weights) cleared(file weightFile) weights {
	initial := weights{devices: map[device]uint64{}}
	if w.base != 0 {
		initial.base = file.initial()
	}
	for dev := range w.devices {
		initial.devices[dev] = 0
	}
	return initial
}

func (w weights) overriddenBy(other weights) weights {
	merged := weights{base: w.base, devices: map[device]uint64{}}
	if other.base != 0 {
		merged.base = other.base
	}
	maps.Copy(merged.devices, w.devices)
	maps.Copy(merged.devices, other.devices)
	return merged
}

// remaining is the part of a change that a state has not got yet.
func (v values) remaining(state values) values {
	rest := newValues()
	for dev, want := range v.rates {
		if state.rates[dev] != want {
			rest.rates[dev] = want
		}
	}
	for file, want := range v.weights {
		rest.setWeights(file, want.remaining(state.weights[file]))
	}
	return rest
}

// remaining has all of the devices when the base is to be written, since bfq takes a new base for theirs too.
func (w weights) remaining(state weights) weights {
	rest := weights{devices: map[device]uint64{}}
	if w.base != 0 && w.base != state.base {
		rest.base = w.base
	}
	for dev, want := range w.devices {
		if state.devices[dev] != want || rest.base != 0 && want != 0 {
			rest.devices[dev] = want
		}
	}
	return rest
}

// undo is the change that brings back what a state had where v changes it.
func (v values) undo(state values) values {
	back := newValues()
	for dev := range v.rates {
		back.rates[dev] = state.rates[dev]
	}
	for file, changed := range v.weights {
		back.weights[file] = changed.undo(state.weights[file])
	}
	return back
}

func (w weights) undo(state weights) weights {
	before := weights{devices: map[device]uint64{}}
	for dev := range w.devices {
		before.devices[dev] = state.devices[dev]
	}
	if w.base != 0 {
		before.base = state.base
		maps.Copy(before.devices, state.devices) // a new base took theirs too
	}
	return before
}

// merge returns the union of both, the other's values winning.
func (v values) merge(other values) values {
	merged := newValues()
	maps.Copy(merged.rates, v.rates)
	maps.Copy(merged.rates, other.rates)
	maps.Copy(merged.weights, v.weights)
	for file, w := range other.weights {
		merged.weights[file] = merged.weights[file].overriddenBy(w)
	}
	return merged
}

// split parts a state into what others name, and the rest.
func (v values) split(named values) (in, rest values) {
	in, rest = newValues(), newValues()
	for dev, limits := range v.rates {
		part := rest
		if _, is := named.rates[dev]; is {
			part = in
		}
		part.rates[dev] = limits
	}
	for file, w := range v.weights {
		one, other := w.split(named.weights[file])
		in.setWeights(file, one)
		rest.setWeights(file, other)
	}
	return in, rest
}

func (v values) setWeights(file weightFile, w weights) {
	if w.base != 0 || len(w.devices) > 0 {
		v.weights[file] = w
	}
}

func (w weights) split(named weights) (in, rest weights) {
	in, rest = weights{devices: map[device]uint64{}}, weights{devices: map[device]uint64{}}
	if named.base != 0 {
		in.base = w.base
	} else {
		rest.base = w.base
	}
	for dev, weight := range w.devices {
		part := rest
		if _, is := named.devices[dev]; is {
			part = in
		}
		part.devices[dev] = weight
	}
	return in, rest
}

// clearsOnly says whether a change takes away and sets nothing.
func (v values) clearsOnly() bool {
	for _, limits := range v.rates {
		if limits != unlimited() {
			return false
		}
	}
	for file, w := range v.weights {
		if w.base != 0 && w.base != file.initial() {
			return false
		}
		for _, weight := range w.devices {
			if weight != 0 {
				return false
			}
		}
	}
	return true
}
