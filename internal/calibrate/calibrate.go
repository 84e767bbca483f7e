// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

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
	// Duration is that of each measurement. Depth is the number of requests of 4 KiB at a time.
	Duration time.Duration
	Depth    int
	// Write is true if the target is overwritten, so that the speed of writes is measured as well.
	Write bool
	// Directory is a directory of a filesystem on the disk. If it is not empty, a file in it is the target, and not the disk.
	Directory string
	// Progress gets the progress some times in each measurement.
	Progress func(Progress)
}

// Progress is the progress of a calibration. Steps is the number of measurements, and Step the present one, from 1.
type Progress struct {
	Step, Steps int
	Name        string
	// Value is what was measured so far, for users. Done is true at the end of the step.
	Value string
	Done  bool
	// Left is how long the rest takes.
	Left time.Duration
}

// Result is what was measured. A model or quality of service without writes lacks the keys that begin with "w".
type Result struct {
	// Model has values by the keys of io.cost.model, and QoS by those of io.cost.qos.
	Model map[string]uint64
	QoS   map[string]uint64
	// Spread has the spread of each value of the model.
	Spread map[string]float64
}

// A value with a spread above unsteady gets a warning. If its spread is above maxSpread, there is no model, because weights by a wrong model
// fail without a message.
const (
	unsteady  = 0.25
	maxSpread = 0.5
)

// Unsteady returns a sentence for each value of the model that has varied much, sorted.
func (r Result) Unsteady() (sentences []string) {
	for _, key := range slices.Sorted(maps.Keys(r.Spread)) {
		if spread := r.Spread[key]; spread > unsteady {
			sentences = append(sentences, fmt.Sprintf("%s varied by %.0f%%: the disk or this machine was busy, or the disk has bursts; measure it again",
				key, 100*spread))
		}
	}
	return sentences
}

// These are the parts of resctl-bench's suggestion for io.cost.qos: the share of the measured speed at which the latency is measured,
// what a latency is multiplied with to be the target, and the range of the speed in percent (iocost_coef_gen.py of rd-agent).
const (
	pacedShare   = 0.9
	latencySlack = 1.5
	slowest      = 60
	fastest      = 100
)

// loads returns the measurements of the model, in their order: writes first, because reads of blocks that were never written are faster.
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

// calibration is a calibration that runs.
type calibration struct {
	Options
	target      Target
	span        int64
	step, steps int
	result      Result
}

// measure measures the first bytes of a target.
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

// speed measures a value of the model. The first measurement of a target that is overwritten writes the part of it that the others then
// use: what was never written is read faster. On a disk with rotation, they use the whole disk, because its head has to move.
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

// latency measures the latency of random requests at less than their full speed, and sets the target of the quality of service to more.
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
