// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

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
// keeps the limits whose keys are missing.
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
