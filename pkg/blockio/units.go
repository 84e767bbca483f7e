// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// These are the bounds of goresctrl's weights. The file blkio.weight of cgroup v1 has the same bounds.
const (
	minWeight = 10
	maxWeight = 1000
)

// maxRate returns the largest usable limit of a kind. The kernel reads some larger limits as "no limit", and in cgroup
// v1 it truncates larger IOPS limits to 32 bits (block/blk-throttle.c). resource.ParseQuantity returns math.MaxInt64
// for every larger quantity, so the maximum is less than math.MaxInt64.
func maxRate(kind int) uint64 {
	if kind == readIOPS || kind == writeIOPS {
		return math.MaxUint32 - 1
	}
	return math.MaxInt64 - 1
}

// parseQuantity reads a Kubernetes quantity, like "10M", "64Ki" or "500". It rounds up to a whole number, as goresctrl does.
func parseQuantity(f *classes.Field, text string, least, most uint64) uint64 {
	zero := ""
	if least == 0 {
		zero = ", and 0 is unlimited"
	}

	quantity, err := resource.ParseQuantity(text)
	switch {
	case err != nil:
		f.Report("%q is not a quantity; write one like 500, 10M or 64Ki", text)
	case quantity.Sign() < 0 || quantity.CmpInt64(int64(least)) < 0:
		f.Report("%q is too small; the minimum is %d%s", text, least, zero)
	case quantity.CmpInt64(int64(most)) > 0:
		f.Report("%q is too large; the maximum is %d%s", text, most, zero)
	default:
		return uint64(quantity.Value())
	}
	return 0
}

type weightFile string

const (
	// ioWeight is the weight file of iocost.
	ioWeight weightFile = "io.weight"
	// ioBFQWeight is the weight file of the bfq scheduler in cgroup v2, and blkioBFQWeight is the one in cgroup v1.
	ioBFQWeight    weightFile = "io.bfq.weight"
	blkioBFQWeight weightFile = "blkio.bfq.weight"
	// blkioWeight is the weight file of the cfq scheduler in cgroup v1. Linux 5.0 removed this scheduler.
	blkioWeight weightFile = "blkio.weight"
)

// initial returns the default weight of a new cgroup, in the file's units.
func (f weightFile) initial() uint64 {
	if f == blkioWeight {
		return 500 // Documentation/admin-guide/cgroup-v1/blkio-controller.rst
	}
	return 100 // CGROUP_WEIGHT_DFL
}

// convert converts a weight from goresctrl's units (10 to 1000) to the file's units. Only io.weight has other units (1
// to 10000). The conversion is that of KEP-2254, which runc and crun use for OCI's blockIO.weight.
func (f weightFile) convert(weight uint64) uint64 {
	if f == ioWeight {
		return 1 + (weight-minWeight)*9999/990
	}
	return weight
}

// deviceFile returns the file that has the weights of devices, as opposed to the default weight.
func (f weightFile) deviceFile() string {
	if f == blkioBFQWeight || f == blkioWeight {
		return string(f) + "_device"
	}
	return string(f)
}

type device struct{ major, minor uint32 }

func (d device) String() string { return fmt.Sprintf("%d:%d", d.major, d.minor) }

func compareDevices(a, b device) int {
	return cmp.Or(cmp.Compare(a.major, b.major), cmp.Compare(a.minor, b.minor))
}

func parseDevice(text string) (device, error) {
	major, minor, _ := strings.Cut(text, ":")
	majorNumber, errMajor := strconv.ParseUint(major, 10, 32)
	minorNumber, errMinor := strconv.ParseUint(minor, 10, 32)
	if errMajor != nil || errMinor != nil {
		return device{}, fmt.Errorf("%q is not a device's MAJOR:MINOR", text)
	}
	return device{major: uint32(majorNumber), minor: uint32(minorNumber)}, nil
}

// These are the kinds of throttling, in the order of the keys in io.max.
const (
	readBps = iota
	writeBps
	readIOPS
	writeIOPS
	rateKinds
)

// rateKeys returns the keys of io.max (Documentation/admin-guide/cgroup-v2.rst, "IO Interface Files").
func rateKeys() []string { return []string{"rbps", "wbps", "riops", "wiops"} }

// ioMaxLine returns the text of one write to io.max for one device. The text has all four keys, because the kernel
// leaves a limit unchanged if its key is missing.
func ioMaxLine(dev device, limits value) string {
	line := dev.String()
	for kind, key := range rateKeys() {
		text := "max"
		if limits[kind] != 0 {
			text = strconv.FormatUint(limits[kind], 10)
		}
		line += " " + key + "=" + text
	}
	return line
}
