// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// BenchmarkChangeOfClassOnTheKernel changes the class of a process with many threads: by moving its threads, and by moving its
// monitoring group.
func BenchmarkChangeOfClassOnTheKernel(b *testing.B) {
	if *kernel == "" {
		b.Skip("changes this machine's resctrl; give -kernel for that")
	}
	must(b, unix.Mount("resctrl", sim.MountPoint, "resctrl", 0, ""))
	b.Cleanup(func() { must(b, unix.Unmount(sim.MountPoint, 0)) })
	debug.SetMaxThreads(20000)

	started := 0
	for _, threads := range []int{1, 100, 5000} {
		pid := os.Getpid()
		if threads == 1 {
			pid = sleeping(b)
		}
		for ; threads > 1 && started < threads; started++ {
			go func() {
				runtime.LockOSThread()
				select {}
			}()
		}
		for name, config := range map[string]string{"threads": twoPartitions, "rename": monitorAll} {
			b.Run(fmt.Sprintf("%s/%d", name, threads), func(b *testing.B) { changeClass(b, config, pid, threads) })
		}
	}
}

func changeClass(b *testing.B, config string, pid, threads int) {
	backend := newBackend(hostfs.Root("/"), processes{pid})
	apply(b, backend, config)
	h := classes.Holder{ID: "benchmark", Container: "main", PID: pid}
	must(b, backend.Enforce(b.Context(), h, "", "gold"))
	if tids, err := (processes{pid}).Threads(h); err != nil || len(tids) < threads {
		b.Fatalf("%d threads, %v", len(tids), err)
	}

	from, to := "gold", "bronze"
	for b.Loop() {
		must(b, backend.Enforce(b.Context(), h, from, to))
		from, to = to, from
	}
	must(b, backend.Enforce(b.Context(), h, from, ""))
	apply(b, backend, twoPartitions) // without monitoring
}
