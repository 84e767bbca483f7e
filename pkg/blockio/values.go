// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"cmp"
	"maps"
	"slices"
)

// setting identifies one value of a cgroup. The value is either the limits of a device, or a weight.
type setting struct {
	// file names the file in which a weight is set. It is empty if the setting is the limits of a device.
	file weightFile
	// device is the disk. It is zero if the setting is the default weight of the file.
	device device
}

// value is the value of a setting. If the setting is a weight, the first element is the weight, and 0 means the file's
// default. If the setting is limits, each element is the limit of one kind of throttling, and 0 means unlimited.
type value [rateKinds]uint64

// values is either the state of a cgroup or a change of such a state. In a state, a device without an entry has no limits and
// the default weight. In a change, a setting without an entry stays as it is, and the zero value clears a device's setting.
type values map[setting]value

func (s setting) isDefaultWeight() bool { return s.file != "" && s.device == device{} }

// initial returns the value that the kernel gives to a new cgroup.
func (s setting) initial() value {
	if s.isDefaultWeight() {
		return value{s.file.initial()}
	}
	return value{}
}

// sorted returns the settings in the order in which they must be written: first the limits, then each file's default
// weight followed by its device weights. bfq resets the device weights when the default weight changes.
func (v values) sorted() []setting {
	return slices.SortedFunc(maps.Keys(v), func(a, b setting) int {
		return cmp.Or(cmp.Compare(a.file, b.file), compareDevices(a.device, b.device))
	})
}

func (v values) has(s setting) bool {
	_, has := v[s]
	return has
}

// only filters v. It returns the values of those settings for which keep(setting) is true.
func (v values) only(keep func(setting) bool) values {
	kept := values{}
	for s, value := range v {
		if keep(s) {
			kept[s] = value
		}
	}
	return kept
}

// merge returns the union of v and other. If both have a setting, the value of other wins.
func (v values) merge(other values) values {
	merged := values{}
	maps.Copy(merged, v)
	maps.Copy(merged, other)
	return merged
}

// changeTo returns the change that turns v into the values in the parameter `to`. The change resets the settings that only
// v has.
func (v values) changeTo(to values) values {
	change := values{}
	for s := range v {
		change[s] = s.initial()
	}
	return change.merge(to)
}

// setLimits adds the limits of a device to a state or to the values of a class, unless all limits are 0.
func (v values) setLimits(dev device, limits value) {
	if limits != (value{}) {
		v[setting{device: dev}] = limits
	}
}

// remaining returns the part of v that must be written to a cgroup in the given state. If v changes a default weight,
// this includes the device weights in v, because bfq resets them when the default weight changes.
func (v values) remaining(state values) values {
	return v.only(func(s setting) bool {
		base := setting{file: s.file}
		return v[s] != state[s] || v[s] != (value{}) && v.has(base) && v[base] != state[base]
	})
}

// undo returns the change that reverts v. state is the state before v was applied. If v changes the default weight in a
// file, the result also has the file's device weights, because bfq resets them when the default weight changes.
func (v values) undo(state values) values {
	cleared := v.only(func(s setting) bool { return !s.isDefaultWeight() })
	for s := range cleared {
		cleared[s] = value{}
	}
	return cleared.merge(state.only(func(s setting) bool { return v.has(s) || v.has(setting{file: s.file}) }))
}

// equals reports whether the state v has the values of the class, and initial values for all other settings.
func (v values) equals(class values) bool { return len(v.changeTo(class).remaining(v)) == 0 }

// clearsOnly reports whether a change only resets settings to the values of a new cgroup.
func (v values) clearsOnly() bool {
	return len(v.only(func(s setting) bool { return v[s] != s.initial() })) == 0
}
