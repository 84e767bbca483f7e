// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
)

// reachable returns the bytes of all reachable objects.
func reachable() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// cpuTime returns the CPU time that this process has used.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// TestJudging500ContainersTakesLittleMemory measures what judging adds to a node with 500 containers, each of which reads
// as much as its class allows, 1 MB/s. It logs the CPU time with the simulated kernel, which reads about as fast as Linux.
func TestJudging500ContainersTakesLittleMemory(t *testing.T) {
	const containers, rounds, most = 500, 8, 12 << 20
	f := newBlockIOMachine(t, cgroupV2, "first")
	now := time.Now()
	f.fixture.restart(t, func(o *node.Options) { o.Now = func() time.Time { return now } })
	f.mustConfigure(t, f.text)
	f.Synchronize(nil, nil)
	var paths []string
	for i := range containers {
		name := fmt.Sprint("p", i)
		c := container("c-" + name)
		c.CgroupsPath = "/kubepods/pod" + name + "/" + c.ID
		f.host.Cgroups().AddCgroup(c.CgroupsPath)
		paths = append(paths, c.CgroupsPath)
		c, adjustment, err := f.fixture.create(t, pod(name, requesting("blockio=first")), c)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.host.Cgroups().SetUnified(c.CgroupsPath, adjustment.Unified()); err != nil {
			t.Fatal(err)
		}
		c.PID = i + 1
		if err := f.fixture.start(t, pod(name, requesting("blockio=first")), c); err != nil {
			t.Fatal(err)
		}
	}

	round := func() {
		now = now.Add(heldInterval)
		for _, path := range paths {
			f.host.Cgroups().Transfer(path, "sda", 15_000_000, 1000)
		}
		f.host.Cgroups().Writes() // discards the record of writes
	}
	round()
	before, used := reachable(), time.Duration(0)
	for range rounds {
		round()
		began := cpuTime(t)
		if err := f.JudgeHeld(t.Context()); err != nil {
			t.Fatal(err)
		}
		used += cpuTime(t) - began
	}
	more := reachable() - before

	// the containers were judged
	for _, r := range f.Status().Resources {
		if got := r.Held["first"].Reason; got != qos.ReasonReached {
			t.Errorf("class first is %s, want %s", got, qos.ReasonReached)
		}
	}
	t.Logf("judging %d containers each %s takes %s of CPU time (%.2f%% of a CPU) and %d KiB", containers, heldInterval, used/rounds,
		100*float64(used/rounds)/float64(heldInterval), more>>10)
	if more > most {
		t.Errorf("judging keeps %d bytes, more than %d", more, most)
	}
}
