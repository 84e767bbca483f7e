// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"cmp"
	"maps"
	"slices"
)

// setting names one value of a cgroup: the limits of a device, or a weight.
type setting struct {
	// file is the file of a weight; it is empty for limits.
	file weightFile
	// device is zero for the default weight of a file.
	device device
}

// value has the limits of a device by kind, and 0 is unlimited. Or its first element is a weight, and 0 is the file's default.
type value [rateKinds]uint64

// values are a state of a cgroup, or a change of it. In a state, a missing device has no limits and the default weight. In a
// change, a missing setting stays as it is, and the zero value clears a device.
type values map[setting]value

func (s setting) isDefaultWeight() bool { return s.file != "" && s.device == device{} }

// initial returns the value that the kernel gives to a new cgroup.
func (s setting) initial() value {
	if s.isDefaultWeight() {
		return value{s.file.initial()}
	}
	return value{}
}

// sorted returns the settings in write order: limits, then for each file the default weight before the weights of devices. bfq
// resets the weights of devices when the default changes.
func (v values) sorted() []setting {
	return slices.SortedFunc(maps.Keys(v), func(a, b setting) int {
		return cmp.Or(cmp.Compare(a.file, b.file), compareDevices(a.device, b.device))
	})
}

func (v values) has(s setting) bool {
	_, has := v[s]
	return has
}

// only returns the values of the settings to keep.
func (v values) only(keep func(setting) bool) values {
	kept := values{}
	for s, value := range v {
		if keep(s) {
			kept[s] = value
		}
	}
	return kept
}

// merge returns the union of both; the other's values win.
func (v values) merge(other values) values {
	merged := values{}
	maps.Copy(merged, v)
	maps.Copy(merged, other)
	return merged
}

// changeTo returns the change from these values to others. It does not depend on other values of the cgroup.
func (v values) changeTo(to values) values {
	change := values{}
	for s := range v {
		change[s] = s.initial()
	}
	return change.merge(to)
}

// setLimits adds limits, if any, to a state or class.
func (v values) setLimits(dev device, limits value) {
	if limits != (value{}) {
		v[setting{device: dev}] = limits
	}
}

// remaining returns the part of a change that a state lacks. With a new default weight, that includes the weights of devices.
func (v values) remaining(state values) values {
	return v.only(func(s setting) bool {
		base := setting{file: s.file}
		return v[s] != state[s] || v[s] != (value{}) && v.has(base) && v[base] != state[base]
	})
}

// undo returns the change that restores the state where v changes it. With a default weight, that includes the weights of
// devices.
func (v values) undo(state values) values {
	cleared := v.only(func(s setting) bool { return !s.isDefaultWeight() })
	for s := range cleared {
		cleared[s] = value{}
	}
	return cleared.merge(state.only(func(s setting) bool { return v.has(s) || v.has(setting{file: s.file}) }))
}

// equals reports whether a state is exactly the state of a class.
func (v values) equals(class values) bool { return len(v.changeTo(class).remaining(v)) == 0 }

// clearsOnly reports whether a change sets nothing but initial values.
func (v values) clearsOnly() bool {
	return len(v.only(func(s setting) bool { return v[s] != s.initial() })) == 0
}
