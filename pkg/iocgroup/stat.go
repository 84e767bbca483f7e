// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iocgroup

import (
	"strconv"
	"strings"
)

// ParseStat reads io.stat, and returns the counters of each device by their keys, e.g. "rbytes". A device may have no values. Some kernels
// then write the next device on the same line. A device without a number, e.g. "(unknown)" for a path of an NVMe multipath device, is
// skipped with its values.
func ParseStat(data []byte) map[Device]map[string]uint64 {
	all := map[Device]map[string]uint64{}
	var counters map[string]uint64
	for word := range strings.FieldsSeq(string(data)) {
		key, text, isValue := strings.Cut(word, "=")
		if !isValue {
			counters = nil
			if dev, err := ParseDevice(word); err == nil {
				counters = map[string]uint64{}
				all[dev] = counters
			}
			continue
		}
		if value, err := strconv.ParseUint(text, 10, 64); err == nil && counters != nil {
			counters[key] = value
		}
	}
	return all
}
