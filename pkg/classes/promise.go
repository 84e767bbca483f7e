// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

// Promise is a bound that a class sets on a value that its backend measures. The kernel enforces the bound. A comparison of the measured
// value with the bound shows whether it does.
type Promise struct {
	// Name is the setting of the class as users know it, e.g. "ThrottleWriteBps" or "memory.high".
	Name string
	// Use is the series that is bounded. If it is cumulative, the bound is on its growth per second.
	Use Series
	// Bound is the highest value of the use. It is 0 if the class sets no value in the unit of the measure. `Unknown`
	// then has the reason.
	Bound   float64
	Unknown string
	// FromZero is true if a reading has the series only after the first use.
	FromZero bool
	// Burst is the amount by which the use may exceed the bound at once, e.g. by one large request, in the unit of the
	// measure.
	Burst float64
	// Remains is true if the use can stay above a bound that was set later, e.g. because old lines stay in a cache.
	Remains bool
	// Tolerance is the fraction of the bound by which the use may exceed the bound, because the kernel does not enforce
	// it exactly.
	Tolerance float64
	// Reached is a cumulative series that grows when the kernel enforces the bound. Its Measure is empty if the kernel
	// does not count this.
	Reached Series
	// Waited is a cumulative series of the seconds in which the holder waited. Its Measure is empty if the kernel does
	// not count this.
	Waited Series
}

// Promiser is a ClassMeter, HolderMeter or VolumeMeter that reports the bounds of its classes on the values that it
// measures.
type Promiser interface {
	Backend
	// Promises returns the promises of a class to a container, pod or volume that has the class. The promises of a
	// ClassMeter apply to the class as a whole, and `target` is then empty. The system default has none. Promises does
	// no I/O.
	Promises(target Holder, class string) []Promise
}

// Bound is a bound for a new class. The fields are those of a Promise.
type Bound struct {
	Use   Series
	Value float64
}

// Drafter is a Promiser that can write the definition of a class with given bounds.
type Drafter interface {
	Promiser
	// Draft returns the content of the resource's field in a class file, e.g. of the field "blockio", with one class
	// that has these bounds. It leaves out bounds that it cannot set, and returns nil if it can set none. Draft does no
	// I/O.
	Draft(class string, bounds []Bound) map[string]any
}
