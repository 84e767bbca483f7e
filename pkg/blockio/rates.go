// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// device is a block device by its numbers.
type device struct{ major, minor uint32 }

func (d device) String() string { return fmt.Sprintf("%d:%d", d.major, d.minor) }

func compareDevices(a, b device) int {
	return cmp.Or(cmp.Compare(a.major, b.major), cmp.Compare(a.minor, b.minor))
}

func parseDevice(text string) (device, error) {
	major, minor, found := strings.Cut(text, ":")
	if !found {
		return device{}, fmt.Errorf("%q is not a device's MAJOR:MINOR", text)
	}
	majorNumber, errMajor := strconv.ParseUint(major, 10, 32)
	minorNumber, errMinor := strconv.ParseUint(minor, 10, 32)
	if errMajor != nil || errMinor != nil {
		return device{}, fmt.Errorf("%q is not a device's MAJOR:MINOR", text)
	}
	return device{major: uint32(majorNumber), minor: uint32(minorNumber)}, nil
}

// The kinds of throttling, in the order in which the kernel prints them.
const (
	readBps = iota
	writeBps
	readIOPS
	writeIOPS
	rateKinds
)

// rates are the limits of one device, bytes or operations a second; 0 is unlimited.
type rates [rateKinds]uint64

// unlimited is how a limit is taken away.
func unlimited() rates { return rates{} }

// rateKeys are the keys of io.max (Documentation/admin-guide/cgroup-v2.rst, "IO Interface Files").
func rateKeys() [rateKinds]string { return [rateKinds]string{"rbps", "wbps", "riops", "wiops"} }

// ioMaxLine is what one write to io.max takes: one device, with all four keys, since the kernel keeps what is not mentioned.
func ioMaxLine(dev device, limits rates) string {
	var line strings.Builder
	line.WriteString(dev.String())
	for kind, key := range rateKeys() {
		line.WriteString(" " + key + "=" + ioMaxValue(limits[kind]))
	}
	return line.String()
}

func ioMaxValue(limit uint64) string {
	if limit == 0 {
		return "max"
	}
	return strconv.FormatUint(limit, 10)
}
