// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/child"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// BenchmarkChangeOfClassOnTheKernel changes the class of a process with many threads, and the class of processes that fork
// all the time. It compares two methods: the backend moves the threads, or it moves the monitoring group. If processes fork
// faster than their threads can be moved, the change fails. The benchmark reports the share of failed changes.
func BenchmarkChangeOfClassOnTheKernel(b *testing.B) {
	if *kernel == "" {
		b.Skip("changes this machine's resctrl; give -kernel for that")
	}

	must(b, unix.Mount("resctrl", sim.MountPoint, "resctrl", 0, ""))
	b.Cleanup(func() { must(b, unix.Unmount(sim.MountPoint, 0)) })
	debug.SetMaxThreads(20000)
	configs := map[string]string{"threads": twoPartitions, "rename": monitorAll}

	for name, config := range configs {
		b.Run(name+"/forking", func(b *testing.B) {
			tree, err := cgroup.Detect(hostfs.Root("/"))
			must(b, err)
			shells, begin := forking(b)
			changeClass(b, config, tree, shells, begin)
		})
	}

	started := 0
	for _, threads := range []int{1, 100, 5000} {
		pid := os.Getpid()
		if threads == 1 {
			pid = sleeping(b)
		}
		var running sync.WaitGroup
		for ; threads > 1 && started < threads; started++ {
			running.Add(1)
			go func() {
				runtime.LockOSThread()
				running.Done()
				select {}
			}()
		}
		running.Wait()
		h := classes.Holder{ID: "benchmark", Container: "main", PID: pid}
		if tids, err := (processes{pid}).Threads(h); err != nil || len(tids) < threads {
			b.Fatalf("%d threads, %v", len(tids), err)
		}
		for name, config := range configs {
			b.Run(fmt.Sprintf("%s/%d", name, threads), func(b *testing.B) { changeClass(b, config, processes{pid}, h, func() {}) })
		}
	}
}

// changeClass measures changes between the classes gold and bronze. It calls the function `begin` after the first change.
func changeClass(b *testing.B, config string, threads Threads, h classes.Holder, begin func()) {
	backend := newBackend(hostfs.Root("/"), threads)
	apply(b, backend, config)
	must(b, backend.Enforce(b.Context(), h, "", "gold"))
	begin()

	from, to := "gold", "bronze"
	changes, failed := 0.0, 0.0
	change := func(to string) bool {
		err := backend.Enforce(b.Context(), h, from, to)
		if !errors.Is(err, ErrUnsettled) {
			must(b, err)
		}
		return err == nil
	}

	for b.Loop() {
		changes++
		if change(to) {
			from, to = to, from
		} else {
			failed++
		}
	}

	b.ReportMetric(failed/changes, "failed/op")
	change("")
	apply(b, backend, twoPartitions) // without monitoring
}

// forking starts shells in a cgroup of their own. After a call of the function `begin`, the shells fork all the time. They
// end with the benchmark.
func forking(b *testing.B) (h classes.Holder, begin func()) {
	h = classes.Holder{ID: "benchmark", Container: "main", CgroupsPath: "/benchmark"}
	const dir = "/sys/fs/cgroup/benchmark"
	must(b, os.MkdirAll(dir, 0o755))
	var inputs []io.Closer
	for range 4 {
		shell := child.Command(b, "sh", "-c", "read line; while :; do (:); done")
		input, err := shell.StdinPipe()
		must(b, err)
		must(b, shell.Start())
		b.Cleanup(func() { _ = shell.Process.Kill(); _ = shell.Wait() })
		h.PID = shell.Process.Pid
		must(b, os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(h.PID)), 0o644))
		inputs = append(inputs, input)
	}

	return h, func() {
		for _, input := range inputs {
			must(b, input.Close())
		}
	}
}
