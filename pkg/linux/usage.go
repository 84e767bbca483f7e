// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// These are the names of the measures.
const (
	memoryUsed   = "memory_bytes"
	memoryHigh   = "memory_high_events_total"
	memoryWaited = "pressure_memory_waiting_seconds_total"
	bursts       = "cpu_bursts_total"
	burstSeconds = "cpu_burst_seconds_total"
)

func measures() []classes.Measure {
	return []classes.Measure{
		{Name: memoryHigh, Help: "Times that the containers of a class were throttled at memory.high."},
		{Name: memoryWaited, Help: "Time in which some task of a container waited for memory, added up over the containers of a class."},
		{Name: bursts, Help: "Periods in which containers of a class used CPU time above their quota."},
		{Name: burstSeconds, Help: "CPU time above their quotas that containers of a class have used."},
	}
}

// highTolerance is the part of memory.high by which a container may exceed it: the kernel slows allocations down above it, and does not
// refuse them.
const highTolerance = 0.1

// defaultPeriod is the kernel's period of a CPU quota, in microseconds.
const defaultPeriod = 100_000

// property names of the promises.
const (
	highProperty  = "memory.high"
	burstProperty = "cpu.burst"
)

var (
	_ classes.HolderMeter = (*Backend)(nil)
	_ classes.Promiser    = (*Backend)(nil)
)

// Promises implements classes.Promiser.
func (b *Backend) Promises(target classes.Holder, class string) (promises []classes.Promise) {
	c, err := b.live.Load().class(class)
	if err != nil {
		return nil
	}
	for _, p := range c {
		text, sets, err := p.value.text(target.Spec)
		value, numberErr := strconv.ParseFloat(text, 64)
		if err != nil || !sets || numberErr != nil || value <= 0 { // "max" bounds nothing
			continue
		}
		switch p.name {
		case highProperty:
			promises = append(promises, classes.Promise{
				Name: p.name, Use: classes.Series{Measure: memoryUsed}, Bound: value, Tolerance: highTolerance,
				Reached: classes.Series{Measure: memoryHigh}, Waited: classes.Series{Measure: memoryWaited},
			})
		case burstProperty:
			period := float64(target.Spec.CPUPeriod)
			if period == 0 {
				period = defaultPeriod
			}
			promises = append(promises, classes.Promise{
				Name: p.name, Use: classes.Series{Measure: burstSeconds}, Bound: value / period, Burst: value / 1e6, Tolerance: highTolerance,
				Reached: classes.Series{Measure: bursts},
			})
		}
	}
	return promises
}

// MeasureHolder implements classes.HolderMeter. It reads only the files that belong to properties of live classes.
func (b *Backend) MeasureHolder(_ context.Context, target classes.Holder) (classes.Reading, error) {
	files := b.live.Load().usageFiles()
	if len(files) == 0 {
		return nil, nil
	}
	dir, err := b.opts.Tree.UnifiedDir(target)
	if errors.Is(err, cgroup.ErrNoCgroup) {
		err = fmt.Errorf("%w: %w", classes.ErrEnded, err)
	}
	if err != nil {
		return nil, err
	}

	reading := classes.Reading{}
	var problems []error
	for _, file := range files {
		data, err := b.opts.FS.ReadFile(path.Join(dir, file.name))
		switch {
		case err == nil:
			file.parse(reading, string(data))
		case !errors.Is(err, fs.ErrNotExist):
			problems = append(problems, fmt.Errorf("measure %s: %w", file.name, err))
		}
	}
	if len(reading) == 0 {
		if _, err := b.opts.Tree.UnifiedDir(target); errors.Is(err, cgroup.ErrNoCgroup) { // it was removed meanwhile
			problems = append(problems, classes.ErrEnded, err)
		}
	}
	return reading, errors.Join(problems...)
}

// SumsEnded implements classes.HolderMeter. A pod is not read: what its ended containers have used is counted at their ends.
func (b *Backend) SumsEnded() bool { return false }

// usageFile is a cgroup file with values that parse adds to a reading.
type usageFile struct {
	name  string
	parse func(reading classes.Reading, text string)
}

// usageFiles returns the files that show how the properties of all classes are used.
func (s *snapshot) usageFiles() (files []usageFile) {
	sets := func(name string) bool {
		for _, c := range s.classes {
			if c.value(name) != nil {
				return true
			}
		}
		return false
	}
	if sets(highProperty) {
		files = append(files,
			usageFile{"memory.current", func(r classes.Reading, text string) { put(r, memoryUsed, text, 1) }},
			usageFile{"memory.events", keyed(map[string]scaled{"high": {memoryHigh, 1}})},
			usageFile{"memory.pressure", func(r classes.Reading, text string) {
				_, some, _ := strings.Cut(text, "some ")
				some, _, _ = strings.Cut(some, "\n")
				_, total, _ := strings.Cut(some, "total=")
				put(r, memoryWaited, total, 1e6)
			}})
	}
	if sets(burstProperty) {
		files = append(files, usageFile{"cpu.stat", keyed(map[string]scaled{"nr_bursts": {bursts, 1}, "burst_usec": {burstSeconds, 1e6}})})
	}
	return files
}

// scaled is a measure, and how many units of the kernel make one of the measure.
type scaled struct {
	measure string
	units   float64
}

// keyed returns the parser of a file with lines of the form "KEY VALUE".
func keyed(keys map[string]scaled) func(classes.Reading, string) {
	return func(reading classes.Reading, text string) {
		for line := range strings.Lines(text) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			if to, known := keys[key]; known {
				put(reading, to.measure, value, to.units)
			}
		}
	}
}

func put(reading classes.Reading, measure, text string, units float64) {
	if value, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64); err == nil {
		reading[classes.Series{Measure: measure}] = float64(value) / units
	}
}
