// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iocgroup

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Setting identifies one value of a cgroup. The value is the limits of a device, a weight, or a latency target.
type Setting struct {
	// File names the file in which a weight or a latency target is set. It is empty if the setting is the limits of a device.
	File File
	// Device is the disk. It is zero if the setting is the default weight of the file.
	Device Device
}

// String returns the device, the weight file, or both, as in "io.weight 8:0".
func (s Setting) String() string {
	switch {
	case s.File == "":
		return s.Device.String()
	case s.IsDefaultWeight():
		return string(s.File)
	}
	return string(s.File) + " " + s.Device.String()
}

// MarshalText implements encoding.TextMarshaler, so that a setting can be a key in JSON.
func (s Setting) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Setting) UnmarshalText(text []byte) (err error) {
	file, device, both := strings.Cut(string(text), " ")
	if !both && strings.Contains(file, ":") {
		file, device = "", file
	}
	*s = Setting{File: File(file)}
	if device != "" {
		s.Device, err = ParseDevice(device)
	}
	return err
}

// Value is the value of a setting. For a weight, the first element is the weight, and 0 means the file's default. For a
// latency target, the first element is the target in microseconds, and 0 means none. For the limits of a device, each
// element is the limit of one kind of throttling, and 0 means unlimited.
type Value [RateKinds]uint64

// Values is either the state of a cgroup or a change of such a state. In a state, a device without an entry has no limits and
// the default weight. In a change, a setting without an entry stays as it is, and the zero value clears a device's setting.
type Values map[Setting]Value

// IsDefaultWeight reports whether the setting is the default weight of a file.
func (s Setting) IsDefaultWeight() bool { return s.File.IsWeight() && s.Device == Device{} }

// Initial returns the value that the kernel gives to a new cgroup.
func (s Setting) Initial() Value {
	if s.IsDefaultWeight() {
		return Value{s.File.Initial()}
	}
	return Value{}
}

// Sorted returns the settings in the order in which they must be written: first the limits, then each file's default
// weight followed by its device weights. bfq resets the device weights when the default weight changes.
func (v Values) Sorted() []Setting {
	return slices.SortedFunc(maps.Keys(v), func(a, b Setting) int {
		return cmp.Or(cmp.Compare(a.File, b.File), CompareDevices(a.Device, b.Device))
	})
}

// Has reports whether `v` has a value for the setting.
func (v Values) Has(s Setting) bool {
	_, has := v[s]
	return has
}

// Uses reports whether one of the settings is in the file.
func Uses[V any](settings map[Setting]V, file File) bool {
	for s := range settings {
		if s.File == file {
			return true
		}
	}
	return false
}

// Only filters `v`. It returns the values of those settings for which keep(setting) is true.
func (v Values) Only(keep func(Setting) bool) Values {
	kept := Values{}
	for s, value := range v {
		if keep(s) {
			kept[s] = value
		}
	}
	return kept
}

// Merge returns the union of `v` and `other`. If both have a setting, the value of `other` wins.
func (v Values) Merge(other Values) Values {
	merged := Values{}
	maps.Copy(merged, v)
	maps.Copy(merged, other)
	return merged
}

// ChangeTo returns the change that turns `v` into the values in the parameter `to`. The change resets the settings that only
// `v` has.
func (v Values) ChangeTo(to Values) Values {
	change := Values{}
	for s := range v {
		change[s] = s.Initial()
	}
	return change.Merge(to)
}

// SetLimits adds the limits of a device to a state or to the values of a class, unless all limits are 0.
func (v Values) SetLimits(dev Device, limits Value) {
	if limits != (Value{}) {
		v[Setting{Device: dev}] = limits
	}
}

// Remaining returns the part of `v` that must be written to a cgroup that has the values in `state`. If `v` changes a
// default weight, this includes the device weights in `v`, because bfq resets them when the default weight changes.
func (v Values) Remaining(state Values) Values {
	return v.Only(func(s Setting) bool {
		base := Setting{File: s.File}
		return v[s] != state[s] || v[s] != (Value{}) && v.Has(base) && v[base] != state[base]
	})
}

// undo returns the change that reverts `v`. `state` is the state before `v` was applied. If `v` changes the default weight in a
// file, the result also has the file's device weights, because bfq resets them when the default weight changes.
func (v Values) undo(state Values) Values {
	cleared := v.Only(func(s Setting) bool { return !s.IsDefaultWeight() })
	for s := range cleared {
		cleared[s] = Value{}
	}
	return cleared.Merge(state.Only(func(s Setting) bool { return v.Has(s) || v.Has(Setting{File: s.File}) }))
}

// Equals reports whether the state `v` has the values of the class, and initial values for all other settings.
func (v Values) Equals(class Values) bool { return len(v.ChangeTo(class).Remaining(v)) == 0 }

// ClearsOnly reports whether a change only resets settings to the values of a new cgroup.
func (v Values) ClearsOnly() bool {
	return len(v.Only(func(s Setting) bool { return v[s] != s.Initial() })) == 0
}

// ForeignTo returns the limits in `v` that are in no candidate. It compares limits of the same kind.
func (v Value) ForeignTo(candidates []Value) (foreign Value) {
	for kind, limit := range v {
		if !slices.ContainsFunc(candidates, func(c Value) bool { return c[kind] == limit }) {
			foreign[kind] = limit
		}
	}
	return foreign
}

// Except returns `v` without each kind of limit that the argument `other` also has.
func (v Value) Except(other Value) Value {
	for kind, limit := range other {
		if limit != 0 {
			v[kind] = 0
		}
	}
	return v
}

// IsLimit reports whether the setting is the limits of a device.
func (s Setting) IsLimit() bool { return s.File == "" }

// Lowest returns the union of `v` and `other`. If both have limits for a device, the lower limit of each kind wins.
func (v Values) Lowest(other Values) Values {
	merged := v.Merge(other)
	for s, limits := range other {
		if s.IsLimit() && v.Has(s) {
			merged[s] = limits.Lowest(v[s])
		}
	}
	return merged
}

// Lowest returns, for each kind of limit, the lower of the two limits. 0 means unlimited.
func (v Value) Lowest(other Value) Value {
	for kind, limit := range other {
		if limit != 0 && (v[kind] == 0 || limit < v[kind]) {
			v[kind] = limit
		}
	}
	return v
}
