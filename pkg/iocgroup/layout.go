// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iocgroup

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Write is one write(2) to a file of a cgroup.
type Write struct{ File, Data string }

// Layout has the names of the files of the io controller in a version of cgroups, and their contents.
type Layout interface {
	// Writes returns the writes that apply a change, in the order in which the caller must do them. Each write is idempotent.
	Writes(change Values) []Write
	// Files returns the files that must be read to know the state of a cgroup.
	Files(others []File) []string
	// Parse adds the content of a file to a state.
	Parse(state Values, file string, data []byte) error
}

// LayoutOf returns the layout of a cgroup version.
func LayoutOf(version int) Layout {
	if version == 1 {
		return Legacy{}
	}
	return Unified{}
}

// IOMax is the file with the limits of cgroup v2.
const IOMax = "io.max"

// Unified is the layout of cgroup v2 (Documentation/admin-guide/cgroup-v2.rst).
type Unified struct{}

// Writes implements Layout.
func (Unified) Writes(change Values) []Write {
	return change.Writes("default %d", func(dev Device, limits Value) []Write {
		return []Write{{IOMax, IOMaxLine(dev, limits)}}
	})
}

// Files implements Layout.
func (Unified) Files(others []File) []string {
	files := []string{IOMax}
	for _, file := range others {
		files = append(files, string(file))
	}
	return files
}

// Parse implements Layout.
func (Unified) Parse(state Values, file string, data []byte) error {
	switch file {
	case IOMax:
		return parseIOMax(state, data)
	case string(IOLatency):
		return parseLatency(state, data)
	}
	return parseWeights(state, File(file), data)
}

// Legacy is the layout of cgroup v1 (Documentation/admin-guide/cgroup-v1/blkio-controller.rst).
type Legacy struct{}

func throttleFiles() []string {
	return []string{
		"blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device",
		"blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device",
	}
}

// Writes implements Layout.
func (Legacy) Writes(change Values) []Write {
	return change.Writes("%d", func(dev Device, limits Value) (all []Write) {
		for kind, file := range throttleFiles() {
			all = append(all, Write{file, dev.String() + " " + strconv.FormatUint(limits[kind], 10)}) // 0 clears the limit
		}
		return all
	})
}

// Files implements Layout.
func (Legacy) Files(others []File) []string {
	files := throttleFiles()
	for _, file := range others {
		files = append(files, string(file), file.deviceFile())
	}
	return files
}

// Parse implements Layout.
func (Legacy) Parse(state Values, file string, data []byte) error {
	if kind := slices.Index(throttleFiles(), file); kind >= 0 {
		return parseThrottle(state, kind, data)
	}
	return parseWeights(state, File(strings.TrimSuffix(file, "_device")), data)
}

// Writes returns the writes to cgroup files that make the change `v`. The formats of a default weight and of limits are
// parameters, because they depend on the cgroup version.
func (v Values) Writes(defaultWeight string, limits func(Device, Value) []Write) []Write {
	var all []Write
	for _, s := range v.Sorted() {
		value := v[s][0]
		switch {
		case s.File == "":
			all = append(all, limits(s.Device, v[s])...)
		case s.File == IOLatency:
			all = append(all, Write{string(s.File), fmt.Sprintf("%s %s%d", s.Device, latencyKey, value)}) // 0 clears the target
		case s.IsDefaultWeight():
			all = append(all, Write{string(s.File), fmt.Sprintf(defaultWeight, value)})
		case value == 0:
			all = append(all, Write{s.File.deviceFile(), s.Device.String() + " default"})
		default:
			all = append(all, Write{s.File.deviceFile(), fmt.Sprintf("%s %d", s.Device, value)})
		}
	}
	return all
}

// Texts returns the data for each file. If a file has several writes, each write is one line. The field "unified" of the OCI
// runtime specification has this format.
func Texts(writes []Write) map[string]string {
	byFile := map[string]string{}
	for _, write := range writes {
		byFile[write.File] = strings.TrimPrefix(byFile[write.File]+"\n"+write.Data, "\n")
	}
	return byFile
}
