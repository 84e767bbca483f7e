// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// slots is the number of slots in a second. A workload requests a number of operations in each slot.
const slots = 10

// limit is a kind of limit of block I/O.
type limit struct {
	// `name` is the name of the recorded series, `file` is the cgroup's file with the limits, and `operation` is the
	// kernel's name of the counted operations.
	name, file, operation string
	// `bytes` is the size of an operation. Bounds are in bytes per second, or in operations per second.
	bytes  int
	bounds []float64
}

// unit returns what an operation counts for the limit: its bytes, or 1.
func (l limit) unit() float64 {
	if l.counts() == "blkio.throttle.io_service_bytes" {
		return float64(l.bytes)
	}
	return 1
}

// counts returns the file with the counters of the limited operations. Only bounds in bytes per second are above 1000.
func (l limit) counts() string {
	if l.bounds[0] > 1000 {
		return "blkio.throttle.io_service_bytes"
	}
	return "blkio.throttle.io_serviced"
}

func limits() []limit {
	bytes, operations := []float64{64e3, 128e3, 256e3, 512e3, 1024e3, 2048e3}, []float64{6, 12, 25, 50, 100, 200}
	return []limit{
		{"written-bytes", "blkio.throttle.write_bps_device", "Write", 16 << 10, bytes},
		{"read-bytes", "blkio.throttle.read_bps_device", "Read", 16 << 10, bytes},
		{"writes", "blkio.throttle.write_iops_device", "Write", 4 << 10, operations},
		{"reads", "blkio.throttle.read_iops_device", "Read", 4 << 10, operations},
	}
}

// workload requests operations at times that do not depend on the speed of the disk.
type workload struct {
	name string
	limit
	// requested has the number of operations that begin in each slot.
	requested []float64
}

// workloads returns three workloads of each shape, with different sizes and limits.
func workloads(seconds int) (all []workload) {
	names := shapes()
	for i := range 3 * len(names) {
		random := rand.New(rand.NewPCG(uint64(i), 3008))
		of := limits()[i%len(limits())]
		name := names[i/3]
		// The size is between the second and the fourth bound. The mean of a shape is about 1.
		size := of.bounds[1] * math.Pow(of.bounds[3]/of.bounds[1], random.Float64()) / of.unit()
		w := workload{name: fmt.Sprintf("%s-%d", name, i%3+1), limit: of}
		for _, level := range levels(name, seconds*slots, random) {
			w.requested = append(w.requested, level*size/slots)
		}
		all = append(all, w)
	}
	return all
}

func shapes() []string {
	return []string{"steady", "sine", "square", "arrivals", "spikes", "bursts", "ramp", "walk", "jobs", "checkpoints"}
}

// levels returns the load in each slot, as a multiple of the size of the workload.
func levels(shape string, n int, random *rand.Rand) []float64 {
	levels := make([]float64, n)
	period, phase := (40+60*random.Float64())*slots, random.Float64()
	at := func(i int) float64 { return math.Mod(float64(i)/period+phase, 1) }
	level := 0.0
	for i := range levels {
		switch shape {
		case "steady":
			levels[i] = 1
		case "sine":
			levels[i] = 1 + 0.8*math.Sin(2*math.Pi*at(i))
		case "square":
			levels[i] = choose(at(i) < 0.5, 1.8, 0.2)
		case "arrivals":
			levels[i] = 2 * random.ExpFloat64() * choose(random.Float64() < 0.5, 1, 0)
		case "spikes": // one second each
			if i%slots == 0 {
				level = choose(random.Float64() < 0.05, 8, 0.6)
			}
			levels[i] = level
		case "bursts":
			levels[i] = choose(at(i) < 0.3, 3, 0)
		case "ramp":
			levels[i] = 0.2 + 1.6*float64(i)/float64(n)
		case "walk":
			level = 0.995*level + 0.06*random.NormFloat64()
			levels[i] = math.Exp(level) / 1.2
		case "jobs": // the sizes have a long tail
			level = max(0, level-1)
			if random.Float64() < 0.02 {
				level += min(150, 8*math.Pow(random.Float64(), -1/1.5))
			}
			levels[i] = choose(level > 0, 2.5, 0)
		case "checkpoints":
			levels[i] = choose(at(i) < 0.12, 5, 0.5)
		}
	}
	return slices.Clip(levels)
}

func choose(condition bool, yes, no float64) float64 {
	if condition {
		return yes
	}
	return no
}
