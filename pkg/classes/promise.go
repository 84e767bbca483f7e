// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

// Promise is a bound that a class sets on a value that its backend measures. The kernel enforces the bound. A comparison of the measured
// value with the bound shows whether it does.
type Promise struct {
	// Name is the setting of the class in words of its users, e.g. "ThrottleWriteBps" or "memory.high".
	Name string
	// Use is the series that is bounded. If it is cumulative, the bound is on its growth per second.
	Use Series
	// Bound is the highest value of the use. It is 0 if the class sets no value in the unit of the measure. Unknown then says why.
	Bound   float64
	Unknown string
	// FromZero is true if a reading has the series only after the first use.
	FromZero bool
	// Burst is how much may be used at once beyond the bound, e.g. one large request, in the unit of the measure.
	Burst float64
	// Remains is true if what was used before the bound was set may remain above it, e.g. lines of a cache.
	Remains bool
	// Tolerance is the part of the bound by which the enforcement of the kernel may be exceeded.
	Tolerance float64
	// Reached is a cumulative series that grows when the kernel enforces the bound. If it has no measure, the kernel does not count this.
	Reached Series
	// Waited is a cumulative series of the seconds in which the holder waited. It has no measure if the kernel does not count this.
	Waited Series
}

// Promiser is a ClassMeter, HolderMeter or VolumeMeter that reports what its classes promise, in terms of what it measures.
type Promiser interface {
	Backend
	// Promises returns what a class promises to a container, pod or volume that has the class. A ClassMeter promises it to the class as a whole,
	// and `target` is then empty. The system default promises nothing. Promises does no I/O.
	Promises(target Holder, class string) []Promise
}

// Bound is a bound that a class shall set on a value, in the terms of a Promise.
type Bound struct {
	Use   Series
	Value float64
}

// Drafter is a Promiser that can write classes.
type Drafter interface {
	Promiser
	// Draft returns what the resource has in a class file, in the field with the name of the kind, if it has only one class with these bounds. It
	// leaves out the bounds that it cannot set, and returns nil if it can set none. Draft does no I/O.
	Draft(class string, bounds []Bound) map[string]any
}
