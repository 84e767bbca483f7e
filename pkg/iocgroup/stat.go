// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iocgroup

import (
	"strconv"
	"strings"
)

// ParseStat reads io.stat, and calls `each` for each counter of each device, with the key of the counter, e.g. "rbytes".
// Some kernels write a device without values on the same line as the next device. A device without a number, e.g.
// "(unknown)" for a path of an NVMe multipath device, is skipped with its values.
func ParseStat(data []byte, each func(dev Device, key string, value uint64)) {
	var dev Device
	known := false
	for word := range strings.FieldsSeq(string(data)) {
		key, text, isValue := strings.Cut(word, "=")
		if !isValue {
			var err error
			dev, err = ParseDevice(word)
			known = err == nil
			continue
		}
		if value, err := strconv.ParseUint(text, 10, 64); err == nil && known {
			each(dev, key, value)
		}
	}
}
