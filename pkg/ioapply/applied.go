// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package ioapply

import (
	"maps"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// Applied has the values that the plugin last applied to a cgroup: it wrote them, or asked the runtime to write them.
// Any other value in the cgroup was set by another program. An Applied is immutable.
type Applied struct {
	// Class is the class of the container or pod. It is empty if only volumes set the values.
	Class string `json:"class,omitempty"`
	// Values maps each setting to its applied values. A setting normally has one value. Until a change has succeeded, it
	// has the values before the change and then the new value, and the cgroup may have any of them.
	Values map[iocgroup.Setting][]iocgroup.Value `json:"values,omitempty"`
	// Disks maps the ID of each volume to the disks on which its limits were applied. It is nil if they are unknown,
	// because records were lost, or saved by a version of the plugin without this field.
	Disks map[string][]iocgroup.Device `json:"disks"`
	// `version` is the version of the record that this value was read from.
	version int
}

// Has reports whether the setting was applied.
func (a Applied) Has(s iocgroup.Setting) bool { return len(a.Values[s]) > 0 }

// Settings returns the applied settings, with the last value of each.
func (a Applied) Settings() iocgroup.Values {
	last := iocgroup.Values{}
	for s, values := range a.Values {
		last[s] = values[len(values)-1]
	}
	return last
}

// with returns `a` with the values added. `changed` is false if `a` has them already; the result then shares its map with `a`.
func (a Applied) with(values iocgroup.Values) (both Applied, changed bool) {
	both = a
	for s, value := range values {
		if slices.Contains(a.Values[s], value) {
			continue
		}
		if !changed {
			both.Values, changed = map[iocgroup.Setting][]iocgroup.Value{}, true
			maps.Copy(both.Values, a.Values)
		}
		both.Values[s] = append(slices.Clone(a.Values[s]), value)
	}
	return both, changed
}

// foreign returns the part of a setting's live value that was not applied. If nothing is set, it returns the zero value.
func (a Applied) foreign(s iocgroup.Setting, live iocgroup.Value) iocgroup.Value {
	if live == s.Initial() {
		return iocgroup.Value{}
	}
	return live.ForeignTo(a.Values[s])
}

// has reports whether the plugin has set a part of the live value.
func (a Applied) has(s iocgroup.Setting, live iocgroup.Value) bool {
	return live != s.Initial() && a.foreign(s, live) != live
}

// Ours returns the part of a cgroup's limits that was applied.
func (a Applied) Ours(live iocgroup.Values) iocgroup.Values {
	ours := iocgroup.Values{}
	for s := range a.Values {
		if limits := live[s].Except(a.foreign(s, live[s])); s.IsLimit() {
			ours.SetLimits(s.Device, limits)
		}
	}
	return ours
}

// mayLimit reports whether any of the holders may have limits in a setting.
func (a Applied) mayLimit(s iocgroup.Setting, holders []classes.Holder) bool {
	return slices.ContainsFunc(holders, func(h classes.Holder) bool {
		return a.Disks == nil || h.Scope() != classes.VolumeScope || slices.Contains(a.Disks[h.ID], s.Device)
	})
}

// Foreign returns the values of a cgroup that other programs have set.
func (a Applied) Foreign(live iocgroup.Values) iocgroup.Values {
	theirs := iocgroup.Values{}
	for s, value := range live {
		if of := a.foreign(s, value); of != (iocgroup.Value{}) {
			theirs[s] = of
		}
	}
	return theirs
}

// Change is the difference between what a cgroup has and what it should have.
type Change struct {
	// Values has the wanted values, and zero values for the settings that were applied and are not wanted any more.
	// Values of other programs stay.
	Values iocgroup.Values
	// Lower has the limits of other programs that stay in force, because they are lower than the wanted ones, or
	// because no class sets such a limit.
	Lower iocgroup.Values
	// Applied has what is applied to the cgroup after the change.
	Applied Applied
}

// Compare compares what was applied last, what a cgroup has (`live`), and what it should have (`wanted`), as "kubectl
// apply" does. If `yields` returns true for a setting, a lower limit of another program stays. Compare looks only at
// the settings in `wanted`, and at those for which `owns` returns true.
func (a Applied) Compare(live, wanted iocgroup.Values, owns, yields func(iocgroup.Setting) bool) Change {
	change := Change{Values: iocgroup.Values{}, Lower: iocgroup.Values{}, Applied: a}
	change.Applied.Values = maps.Clone(a.Values)
	if change.Applied.Values == nil {
		change.Applied.Values = map[iocgroup.Setting][]iocgroup.Value{}
	}

	for s, want := range wanted {
		value := want
		if s.IsLimit() && yields(s) {
			value = want.Lowest(a.foreign(s, live[s]).ForeignTo([]iocgroup.Value{want}))
		}
		change.Values[s] = value
		lower := value.ForeignTo([]iocgroup.Value{want})
		if lower != (iocgroup.Value{}) {
			change.Lower[s] = lower
		}
		change.Applied.set(s, value.Except(lower))
	}
	for s := range a.Values {
		if wanted.Has(s) || !owns(s) {
			continue
		}
		delete(change.Applied.Values, s)
		switch {
		case !a.has(s, live[s]):
		case s.IsLimit():
			change.Values[s] = a.foreign(s, live[s])
		default:
			change.Values[s] = s.Initial()
		}
	}
	return change
}

// set records `value` as the only value of a setting. The zero value removes the setting.
func (a Applied) set(s iocgroup.Setting, value iocgroup.Value) {
	if value == (iocgroup.Value{}) {
		delete(a.Values, s)
	} else {
		a.Values[s] = []iocgroup.Value{value}
	}
}

// In reports whether a cgroup has any value that was applied.
func (a Applied) In(live iocgroup.Values) bool {
	for s := range a.Values {
		if a.has(s, live[s]) {
			return true
		}
	}
	return false
}
