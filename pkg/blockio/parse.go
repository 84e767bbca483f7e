// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func nonEmptyLines(data []byte) []string {
	lines := strings.Split(string(data), "\n")
	return slices.DeleteFunc(lines, func(line string) bool { return strings.TrimSpace(line) == "" })
}

// parseIOMax reads io.max: "MAJ:MIN rbps=… wbps=… riops=… wiops=…" a line, in any order, without devices that have no limit.
func parseIOMax(into map[device]rates, data []byte) error {
	for _, line := range nonEmptyLines(data) {
		fields := strings.Fields(line)
		dev, err := parseDevice(fields[0])
		if err != nil {
			return fmt.Errorf("%s: %w", ioMax, err)
		}
		limits := into[dev]
		for _, field := range fields[1:] {
			if err := parseRate(&limits, field); err != nil {
				return fmt.Errorf("%s: %w", ioMax, err)
			}
		}
		if limits != unlimited() {
			into[dev] = limits
		}
	}
	return nil
}

func parseRate(limits *rates, field string) error {
	key, value, _ := strings.Cut(field, "=")
	keys := rateKeys()
	kind := slices.Index(keys[:], key)
	if kind < 0 {
		return nil // a newer kernel may know more
	}
	if value == "max" {
		limits[kind] = 0
		return nil
	}
	limit, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return fmt.Errorf("%q is not a limit", field)
	}
	limits[kind] = limit
	return nil
}

// parseWeights reads a file of weights: "default 100", or before Linux 5.4 just "100", and "MAJ:MIN 200" for exceptions.
// Those of v1's "…weight_device" are read with the same file's.
func parseWeights(state values, file weightFile, data []byte) error {
	w := state.weights[file]
	if w.devices == nil {
		w.devices = map[device]uint64{}
	}
	for _, line := range nonEmptyLines(data) {
		fields := strings.Fields(line)
		value, err := strconv.ParseUint(fields[len(fields)-1], 10, 64)
		switch {
		case err != nil || len(fields) > 2:
			return fmt.Errorf("%s: %q is not a weight", file, line)
		case len(fields) == 1 || fields[0] == "default":
			w.base = value
			continue
		}
		dev, err := parseDevice(fields[0])
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		w.devices[dev] = value
	}
	state.weights[file] = w
	return nil
}

// parseThrottle reads one of v1's blkio.throttle.*_device: "MAJ:MIN limit" a line.
func parseThrottle(into map[device]rates, kind int, data []byte) error {
	for _, line := range nonEmptyLines(data) {
		fields := strings.Fields(line)
		if len(fields) != 2 {
			return fmt.Errorf("%q is not a device and its limit", line)
		}
		dev, err := parseDevice(fields[0])
		if err != nil {
			return err
		}
		limits := into[dev]
		if limits[kind], err = strconv.ParseUint(fields[1], 10, 64); err != nil {
			return fmt.Errorf("%q is not a limit", fields[1])
		}
		if limits != unlimited() {
			into[dev] = limits
		}
	}
	return nil
}

// parseScheduler reads /sys/block/*/queue/scheduler: the names of those that there are, the one in use in brackets.
func parseScheduler(data []byte) (active string, known []string) {
	for _, name := range strings.Fields(string(data)) {
		if inner, found := strings.CutPrefix(name, "["); found {
			name = strings.TrimSuffix(inner, "]")
			active = name
		}
		known = append(known, name)
	}
	if active == "" && len(known) == 1 {
		active = known[0]
	}
	return active, known
}

// parseCostQoS reads the root's io.cost.qos: which devices iocost is set up for, and whether it is enabled.
func parseCostQoS(data []byte) (map[device]bool, error) {
	enabled := map[device]bool{}
	for _, line := range nonEmptyLines(data) {
		fields := strings.Fields(line)
		dev, err := parseDevice(fields[0])
		if err != nil {
			return nil, fmt.Errorf("io.cost.qos: %w", err)
		}
		enabled[dev] = slices.Contains(fields, "enable=1")
	}
	return enabled, nil
}
