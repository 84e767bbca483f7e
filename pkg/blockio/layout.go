// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"fmt"
	"slices"
	"strings"
)

// write is one write(2) to a file of a cgroup.
type write struct{ file, data string }

type layout interface {
	// writes returns the writes that apply a change, in the order in which the caller must do them. Each write is idempotent.
	writes(change values) []write
	// files returns the files that must be read to know the state of a cgroup.
	files(weights []weightFile) []string
	// parse adds the content of a file to a state.
	parse(state values, file string, data []byte) error
	// usage returns the files that count I/O, with their parsers.
	usage() []usageFile
}

func layoutOf(version int) layout {
	if version == 1 {
		return legacy{}
	}
	return unified{}
}

const ioMax = "io.max"

// unified is the layout of cgroup v2 (Documentation/admin-guide/cgroup-v2.rst).
type unified struct{}

func (unified) writes(change values) []write {
	return change.writes("default %d", func(dev device, limits value) []write {
		return []write{{ioMax, ioMaxLine(dev, limits)}}
	})
}

func (unified) files(weights []weightFile) []string {
	files := []string{ioMax}
	for _, file := range weights {
		files = append(files, string(file))
	}
	return files
}

func (unified) parse(state values, file string, data []byte) error {
	if file == ioMax {
		return parseIOMax(state, data)
	}
	return parseWeights(state, weightFile(file), data)
}

// legacy is the layout of cgroup v1 (Documentation/admin-guide/cgroup-v1/blkio-controller.rst).
type legacy struct{}

func throttleFiles() []string {
	return []string{
		"blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device",
		"blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device",
	}
}

func (legacy) writes(change values) []write {
	return change.writes("%d", func(dev device, limits value) (all []write) {
		for kind, file := range throttleFiles() {
			all = append(all, write{file, fmt.Sprintf("%s %d", dev, limits[kind])}) // 0 clears the limit
		}
		return all
	})
}

func (legacy) files(weights []weightFile) []string {
	files := throttleFiles()
	for _, file := range weights {
		files = append(files, string(file), file.deviceFile())
	}
	return files
}

func (legacy) parse(state values, file string, data []byte) error {
	if kind := slices.Index(throttleFiles(), file); kind >= 0 {
		return parseThrottle(state, kind, data)
	}
	return parseWeights(state, weightFile(strings.TrimSuffix(file, "_device")), data)
}

// writes returns the writes to cgroup files that make the change v. The formats of a default weight and of limits are
// parameters, because they depend on the cgroup version.
func (v values) writes(defaultWeight string, limits func(device, value) []write) []write {
	var all []write
	for _, s := range v.sorted() {
		weight := v[s][0]
		switch {
		case s.file == "":
			all = append(all, limits(s.device, v[s])...)
		case s.isDefaultWeight():
			all = append(all, write{string(s.file), fmt.Sprintf(defaultWeight, weight)})
		case weight == 0:
			all = append(all, write{s.file.deviceFile(), s.device.String() + " default"})
		default:
			all = append(all, write{s.file.deviceFile(), fmt.Sprintf("%s %d", s.device, weight)})
		}
	}
	return all
}

// texts returns the data for each file. If a file has several writes, each write is one line. The field "unified" of the OCI
// runtime specification has this format.
func texts(writes []write) map[string]string {
	byFile := map[string]string{}
	for _, write := range writes {
		byFile[write.file] = strings.TrimPrefix(byFile[write.file]+"\n"+write.data, "\n")
	}
	return byFile
}
