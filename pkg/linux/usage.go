// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"context"
	"errors"
	"fmt"
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

// highTolerance is the fraction of memory.high by which a container may exceed it. Above memory.high, the kernel slows
// allocations down, and does not refuse them.
const highTolerance = 0.1

// defaultPeriod is the kernel's period of a CPU quota, in microseconds.
const defaultPeriod = 100_000

// These are the properties with promises.
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
	files := b.live.Load().filesOf(b.usage)
	if len(files) == 0 {
		return nil, nil
	}
	dir, err := b.runningDir(target)
	if err != nil {
		return nil, err
	}
	return cgroup.ReadUsage(b.opts.FS, dir, files, func() error {
		_, err := b.runningDir(target)
		return err
	})
}

// runningDir returns the directory of a target's cgroup. The error is classes.ErrEnded if the target has no cgroup.
func (b *Backend) runningDir(target classes.Holder) (string, error) {
	dir, err := b.opts.Tree.UnifiedDir(target)
	if errors.Is(err, cgroup.ErrNoCgroup) {
		err = fmt.Errorf("%w: %w", classes.ErrEnded, err)
	}
	return dir, err
}

// SumsEnded implements classes.HolderMeter. It returns false, because the backend does not measure the cgroups of pods.
// What a container has used is counted when it ends.
func (b *Backend) SumsEnded() bool { return false }

// usageFiles returns the files that show how properties are used, by property.
func usageFiles() map[string][]cgroup.UsageFile {
	return map[string][]cgroup.UsageFile{
		highProperty: {
			{Name: "memory.current", Add: addMemory},
			{Name: "memory.events", Add: cgroup.Keyed(map[string]string{"high": memoryHigh})},
			{Name: "memory.pressure", Add: cgroup.Pressure(map[string]string{"some": memoryWaited})},
		},
		burstProperty: {{Name: "cpu.stat", Add: cgroup.Keyed(map[string]string{"nr_bursts": bursts, "burst_usec": burstSeconds})}},
	}
}

// filesOf returns the files of the properties that any class has.
func (s *snapshot) filesOf(byProperty map[string][]cgroup.UsageFile) (files []cgroup.UsageFile) {
	for name, some := range byProperty {
		for _, c := range s.classes {
			if c.value(name) != nil {
				files = append(files, some...)
				break
			}
		}
	}
	return files
}

func addMemory(reading classes.Reading, data []byte) {
	if value, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64); err == nil {
		reading[classes.Series{Measure: memoryUsed}] = float64(value)
	}
}
