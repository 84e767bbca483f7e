// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package calibrate measures how fast a disk is, and computes the parameters of iocost: the cost model and the quality
// of service (io.cost.model and io.cost.qos). It measures the values of the model like the kernel's
// tools/cgroup/iocost_coef_gen.py, which uses fio, and the latencies like iocost-params of resctl-bench.
package calibrate

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Options say how to measure.
type Options struct {
	// Duration is the duration of each measurement. Depth is the number of concurrent requests of 4 KiB.
	Duration time.Duration
	Depth    int
	// Write is true if the target is overwritten to measure the speed of writes, too.
	Write bool
	// Directory is a directory of a filesystem on the disk. If it is set, the target is a file in this directory
	// instead of the disk.
	Directory string
	// Progress is called several times in each measurement.
	Progress func(Progress)
}

// Progress is the progress of a calibration. Steps is the number of measurements. Step is the number of the present
// one, from 1.
type Progress struct {
	Step, Steps int
	Name        string
	// Value is the measured value so far, as a text for users. Done is true at the end of the step.
	Value string
	Done  bool
	// Left is the duration of the rest of the calibration.
	Left time.Duration
}

// Result is the result of a calibration. If writes were not measured, Model and QoS lack the keys that begin with "w".
type Result struct {
	// Model has the values of io.cost.model by their keys, and QoS has the values of io.cost.qos.
	Model map[string]uint64
	QoS   map[string]uint64
	// Spread has the spread of the speed (Speed.Spread) for each value of the model.
	Spread map[string]float64
}

// If the spread of a value is above `unsteady`, there is a warning. If it is above `maxSpread`, the calibration fails,
// because the kernel does not report that a model is wrong.
const (
	unsteady  = 0.25
	maxSpread = 0.5
)

// Unsteady returns a sentence for each value of the model whose spread is above `unsteady`, sorted.
func (r Result) Unsteady() (sentences []string) {
	for _, key := range slices.Sorted(maps.Keys(r.Spread)) {
		if spread := r.Spread[key]; spread > unsteady {
			sentences = append(sentences, fmt.Sprintf("%s varied by %.0f%%: the disk or this machine was busy, or the disk has bursts; measure it again",
				key, 100*spread))
		}
	}
	return sentences
}

// These constants are those of resctl-bench's suggestion for io.cost.qos (iocost_coef_gen.py of rd-agent). The latency
// is measured at the share `pacedShare` of the measured speed, and its target is the latency times `latencySlack`.
// `slowest` and `fastest` are the limits of the speed in percent.
const (
	pacedShare   = 0.9
	latencySlack = 1.5
	slowest      = 60
	fastest      = 100
)

// loads returns the measurements of the model in their order. Writes are before reads, because reads of blocks that
// were never written are faster.
func loads(o Options) (all []load) {
	for _, l := range []load{
		{name: "bps", size: largeRequest, depth: largeDepth},
		{name: "seqiops", size: smallRequest, depth: o.Depth},
		{name: "randiops", size: smallRequest, depth: o.Depth, random: true},
	} {
		for _, write := range []bool{true, false} {
			if write && !o.Write {
				continue
			}
			one := l
			one.name, one.write = prefix(write)+l.name, write
			all = append(all, one)
		}
	}
	return all
}

func prefix(write bool) string { return map[bool]string{true: "w", false: "r"}[write] }

// calibration is the state of a calibration. `span` is the number of bytes of the target that it uses.
type calibration struct {
	Options
	target      Target
	span        int64
	step, steps int
	result      Result
}

// measure measures the first `span` bytes of a target.
func measure(ctx context.Context, target Target, span int64, rotational bool, o Options) (Result, error) {
	all := loads(o)
	c := &calibration{Options: o, target: target, span: span, steps: len(all) + len(all)/3,
		result: Result{Model: map[string]uint64{}, QoS: map[string]uint64{"min": slowest, "max": fastest}, Spread: map[string]float64{}}}
	for _, l := range all {
		if err := c.speed(ctx, l, rotational); err != nil {
			return Result{}, err
		}
	}
	for _, write := range []bool{true, false} {
		if !write || o.Write {
			if err := c.latency(ctx, write, rotational); err != nil {
				return Result{}, err
			}
		}
	}
	return c.result, nil
}

// speed measures a value of the model. After the first measurement with writes, the later ones use only the bytes that
// it has written, because blocks that were never written are read faster. On a disk with rotation, they use the whole
// disk, because the disk's head has to move.
func (c *calibration) speed(ctx context.Context, l load, rotational bool) error {
	got, err := c.run(ctx, l)
	if err != nil {
		return err
	}
	if l.write && l.size == largeRequest && (!rotational || c.Directory != "") {
		c.span = min(c.span, got.requests*largeRequest)
	}

	value := got.Rate
	if l.size == largeRequest {
		value *= largeRequest
	}
	if value < 1 {
		return fmt.Errorf("measure %s: no request was finished in %s; use a longer --duration", l.name, c.Duration)
	}
	if got.Spread > maxSpread {
		return fmt.Errorf("%s varied by %.0f%%, and a cost model needs at most %.0f%%: measure again while nothing else uses the disk, "+
			"or with a longer --duration than %s", l.name, 100*got.Spread, 100*maxSpread, c.Duration)
	}
	c.result.Model[l.name], c.result.Spread[l.name] = uint64(math.Round(value)), got.Spread
	return nil
}

// latency measures the latency of random requests at `pacedShare` of their full speed. The target of the quality of
// service is `latencySlack` times this latency.
func (c *calibration) latency(ctx context.Context, write, rotational bool) error {
	percent := 95
	if rotational {
		percent = 50
	}
	key := prefix(write)
	got, err := c.run(ctx, load{name: key + "lat", write: write, random: true, size: smallRequest, depth: c.Depth,
		rate: pacedShare * float64(c.result.Model[key+"randiops"])})
	if err != nil {
		return err
	}

	target := percentile(got.latencies, percent).Seconds() * 1e6 * latencySlack
	c.result.QoS[key+"lat"], c.result.QoS[key+"pct"] = uint64(math.Ceil(target)), uint64(percent)
	return nil
}

func (c *calibration) run(ctx context.Context, l load) (measured, error) {
	c.step++
	report := func(rate float64, elapsed time.Duration, done bool) {
		value := fmt.Sprintf("%.0f requests/s", rate)
		if l.size == largeRequest {
			value = inUnits(rate*largeRequest) + "/s"
		}
		left := time.Duration(c.steps-c.step+1)*c.Duration - elapsed
		c.Progress(Progress{Step: c.step, Steps: c.steps, Name: l.name, Value: value, Done: done, Left: left})
	}

	got, err := l.run(ctx, c.target, c.span, c.Duration, func(elapsed time.Duration, done int64) {
		report(float64(done)/elapsed.Seconds(), elapsed, false)
	})
	if err != nil {
		return got, fmt.Errorf("measure %s: %w", l.name, err)
	}
	report(got.Rate, c.Duration, true)
	return got, nil
}
