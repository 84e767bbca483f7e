// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"fmt"
	"strings"
)

// write is one write(2) to a file of a cgroup.
type write struct{ file, data string }

// layout is how a version of cgroups has the values in files.
type layout interface {
	// writes are what makes a change, in order. Each may be made again.
	writes(change values) []write
	// files are all those to read for a state; weights are the weight files of this machine.
	files(weights []weightFile) []string
	// parse adds what a file says to a state.
	parse(state values, file string, data []byte) error
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
	var all []write
	for _, dev := range sortedDevices(change.rates) {
		all = append(all, write{ioMax, ioMaxLine(dev, change.rates[dev])})
	}
	for _, file := range change.sortedFiles() {
		w := change.weights[file]
		if w.base != 0 {
			all = append(all, write{string(file), fmt.Sprintf("default %d", w.base)})
		}
		all = append(all, deviceWeightWrites(file, w)...)
	}
	return all
}

// deviceWeightWrites are the same in both versions: "default", not a number, takes an exception away.
func deviceWeightWrites(file weightFile, w weights) []write {
	var all []write
	for _, dev := range sortedDevices(w.devices) {
		value := "default"
		if weight := w.devices[dev]; weight != 0 {
			value = fmt.Sprint(weight)
		}
		all = append(all, write{file.deviceFile(), dev.String() + " " + value})
	}
	return all
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
		return parseIOMax(state.rates, data)
	}
	return parseWeights(state, weightFile(file), data)
}

// unifiedMap is a change as the "unified" values of the OCI runtime specification: what there is to write to a file, line by line.
func unifiedMap(change values) map[string]string {
	lines := map[string][]string{}
	for _, write := range (unified{}).writes(change) {
		lines[write.file] = append(lines[write.file], write.data)
	}
	if len(lines) == 0 {
		return nil
	}
	texts := make(map[string]string, len(lines))
	for file, each := range lines {
		texts[file] = strings.Join(each, "\n")
	}
	return texts
}
