// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iocgroup

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func fieldsOf(data []byte) (lines [][]string) {
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 0 {
			lines = append(lines, fields)
		}
	}
	return lines
}

// parseIOMax reads io.max. Each line is "MAJ:MIN rbps=… wbps=… riops=… wiops=…"; the lines are in any order. Devices
// that have no limit have no line.
func parseIOMax(into Values, data []byte) error {
	for _, fields := range fieldsOf(data) {
		dev, err := ParseDevice(fields[0])
		if err != nil {
			return err
		}

		limits := into[Setting{Device: dev}]
		for _, field := range fields[1:] {
			key, text, _ := strings.Cut(field, "=")
			kind := slices.Index(RateKeys(), key)
			if kind < 0 {
				continue // the key is unknown, from a newer kernel
			}
			if limits[kind], err = parseLimit(text); err != nil {
				return err
			}
		}
		into.SetLimits(dev, limits)
	}
	return nil
}

func parseLimit(text string) (uint64, error) {
	if text == "max" {
		return 0, nil
	}
	limit, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a limit", text)
	}
	return limit, nil
}

// parseWeights reads the content of a cgroup file with weights, and adds the weights to a map. The default weight is on
// the line "default 100" (before Linux 5.4: "100"), and the weight of a device on a line like "8:0 200". In cgroup v1,
// the weights of devices are in a second file, whose name ends in "_device". For the content of either file, callers pass
// the name of the first file, e.g. "blkio.weight".
func parseWeights(into Values, file File, data []byte) error {
	for _, fields := range fieldsOf(data) {
		weight, err := strconv.ParseUint(fields[len(fields)-1], 10, 64)
		if err != nil || len(fields) > 2 {
			return fmt.Errorf("%q is not a weight", strings.Join(fields, " "))
		}

		s := Setting{File: file}
		if len(fields) == 2 && fields[0] != "default" {
			if s.Device, err = ParseDevice(fields[0]); err != nil {
				return err
			}
		}
		into[s] = Value{weight}
	}
	return nil
}

// latencyKey is the key of a target in io.latency.
const latencyKey = "target="

// parseLatency reads io.latency of cgroup v2. Each line is "MAJ:MIN target=MICROSECONDS".
func parseLatency(into Values, data []byte) error {
	for _, fields := range fieldsOf(data) {
		dev, err := ParseDevice(fields[0])
		if err != nil {
			return err
		}
		for _, field := range fields[1:] {
			text, known := strings.CutPrefix(field, latencyKey)
			if !known {
				continue // the key is unknown, from a newer kernel
			}
			target, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				return fmt.Errorf("%q is not a latency target", field)
			}
			into[Setting{File: IOLatency, Device: dev}] = Value{target}
		}
	}
	return nil
}

// parseThrottle reads a blkio.throttle.*_device file of cgroup v1. Each line is "MAJ:MIN limit".
func parseThrottle(into Values, kind int, data []byte) error {
	for _, fields := range fieldsOf(data) {
		if len(fields) != 2 {
			return fmt.Errorf("%q is not of the form MAJOR:MINOR LIMIT", strings.Join(fields, " "))
		}
		dev, err := ParseDevice(fields[0])
		if err != nil {
			return err
		}

		limits := into[Setting{Device: dev}]
		if limits[kind], err = parseLimit(fields[1]); err != nil {
			return err
		}
		into.SetLimits(dev, limits)
	}
	return nil
}

// parseScheduler reads /sys/block/*/queue/scheduler. The file lists the schedulers that the disk can use, with the
// active one in brackets.
func parseScheduler(data []byte) (active string, known []string) {
	for name := range strings.FieldsSeq(string(data)) {
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
