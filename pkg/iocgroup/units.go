// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iocgroup

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// These are the bounds of OCI's blockIO.weight and of the file blkio.weight of cgroup v1.
const (
	MinWeight = 10
	MaxWeight = 1000
)

// MaxRate returns the largest usable limit of a kind. The kernel reads some larger limits as "no limit", and in cgroup
// v1 it truncates larger IOPS limits to 32 bits (block/blk-throttle.c). resource.ParseQuantity returns math.MaxInt64
// for every larger quantity, so the maximum is less than math.MaxInt64.
func MaxRate(kind int) uint64 {
	if kind == ReadIOPS || kind == WriteIOPS {
		return math.MaxUint32 - 1
	}
	return math.MaxInt64 - 1
}

// File is the name of a cgroup file with weights or latency targets.
type File string

const (
	// IOWeight is the weight file of iocost.
	IOWeight File = "io.weight"
	// IOBFQWeight is the weight file of the bfq scheduler in cgroup v2.
	IOBFQWeight File = "io.bfq.weight"
	// BlkioBFQWeight is the weight file of the bfq scheduler in cgroup v1.
	BlkioBFQWeight File = "blkio.bfq.weight"
	// BlkioWeight is the weight file of the cfq scheduler in cgroup v1. Linux 5.0 removed this scheduler.
	BlkioWeight File = "blkio.weight"
	// IOLatency is the file with the latency targets of cgroup v2, in microseconds.
	IOLatency File = "io.latency"
)

// These are the smallest and the largest latency target that class files can have. The kernel accepts others, but looks
// at the latency of a cgroup only every 0.1 to 1 s (BLKIOLATENCY_MIN_WIN_SIZE and BLKIOLATENCY_MAX_WIN_SIZE in
// block/blk-iolatency.c).
const (
	MinLatency = time.Microsecond
	MaxLatency = 10 * time.Second
)

// IsWeight reports whether the settings of the file are weights.
func (f File) IsWeight() bool { return f != "" && f != IOLatency }

// Initial returns the default weight of a new cgroup, in the file's units.
func (f File) Initial() uint64 {
	if f == BlkioWeight {
		return 500 // Documentation/admin-guide/cgroup-v1/blkio-controller.rst
	}
	return 100 // CGROUP_WEIGHT_DFL
}

// Convert converts a weight from OCI's units (10 to 1000) to the file's units. Only io.weight has other units (1
// to 10000). The conversion is that of KEP-2254, which runc and crun use for OCI's blockIO.weight.
func (f File) Convert(weight uint64) uint64 {
	if f == IOWeight {
		return 1 + (weight-MinWeight)*9999/990
	}
	return weight
}

// deviceFile returns the file that has the weights of devices, as opposed to the default weight.
func (f File) deviceFile() string {
	if f == BlkioBFQWeight || f == BlkioWeight {
		return string(f) + "_device"
	}
	return string(f)
}

// Device is the number of a block device.
type Device struct{ Major, Minor uint32 }

func (d Device) String() string {
	return strconv.FormatUint(uint64(d.Major), 10) + ":" + strconv.FormatUint(uint64(d.Minor), 10)
}

// CompareDevices orders devices by number.
func CompareDevices(a, b Device) int {
	return cmp.Or(cmp.Compare(a.Major, b.Major), cmp.Compare(a.Minor, b.Minor))
}

// ParseDevice reads a number like "8:0".
func ParseDevice(text string) (Device, error) {
	major, minor, _ := strings.Cut(text, ":")
	majorNumber, errMajor := strconv.ParseUint(major, 10, 32)
	minorNumber, errMinor := strconv.ParseUint(minor, 10, 32)
	if errMajor != nil || errMinor != nil {
		return Device{}, fmt.Errorf("%q is not a device's MAJOR:MINOR", text)
	}
	return Device{Major: uint32(majorNumber), Minor: uint32(minorNumber)}, nil
}

// These are the kinds of throttling, in the order of the keys in io.max.
const (
	ReadBPS = iota
	WriteBPS
	ReadIOPS
	WriteIOPS
	RateKinds
)

// RateKeys returns the keys of io.max (Documentation/admin-guide/cgroup-v2.rst, "IO Interface Files").
func RateKeys() []string { return []string{"rbps", "wbps", "riops", "wiops"} }

// IOMaxLine returns the text of one write to io.max for one device. The text has all four keys, because the kernel
// leaves a limit unchanged if its key is missing.
func IOMaxLine(dev Device, limits Value) string {
	line := dev.String()
	for kind, key := range RateKeys() {
		text := "max"
		if limits[kind] != 0 {
			text = strconv.FormatUint(limits[kind], 10)
		}
		line += " " + key + "=" + text
	}
	return line
}

// LimitTolerance is the fraction of a limit by which a cgroup may exceed the limit. blk-throttle counts in slices of
// 0.1 s, and is exact over a minute.
const LimitTolerance = 0.1

// LargestRequests returns the size of a few large requests, by kind, in the unit of the limit. A request waits until
// the limit allows it as a whole, and is then counted at once (tg_within_bps_limit in block/blk-throttle.c).
func LargestRequests() [RateKinds]float64 { return [...]float64{4 << 20, 4 << 20, 32, 32} }
