// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"fmt"
	"slices"
	"strings"
)

// legacy is the layout of cgroup v1 (Documentation/admin-guide/cgroup-v1/blkio-controller.rst).
type legacy struct{}

func throttleFiles() [rateKinds]string {
	return [rateKinds]string{
		"blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device",
		"blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device",
	}
}

// writes clears a limit with 0, as v1 wants it.
func (legacy) writes(change values) []write {
	var all []write
	for _, dev := range sortedDevices(change.rates) {
		for kind, file := range throttleFiles() {
			all = append(all, write{file, fmt.Sprintf("%s %d", dev, change.rates[dev][kind])})
		}
	}
	for _, file := range change.sortedFiles() {
		w := change.weights[file]
		if w.base != 0 {
			all = append(all, write{string(file), fmt.Sprint(w.base)})
		}
		all = append(all, deviceWeightWrites(file, w)...)
	}
	return all
}

func (legacy) files(weights []weightFile) []string {
	throttles := throttleFiles()
	files := throttles[:]
	for _, file := range weights {
		files = append(files, string(file), file.deviceFile())
	}
	return files
}

func (legacy) parse(state values, file string, data []byte) error {
	throttles := throttleFiles()
	if kind := slices.Index(throttles[:], file); kind >= 0 {
		if err := parseThrottle(state.rates, kind, data); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		return nil
	}
	return parseWeights(state, weightFile(strings.TrimSuffix(file, "_device")), data)
}
