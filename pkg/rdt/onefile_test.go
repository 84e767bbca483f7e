// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// oneFile is a configuration that means the same on each machine.
const oneFile = `
partitions:
  a: {l3Allocation: "60%", mbAllocation: ["100%", "12000MBps"], classes: {gold: {mbAllocation: ["50%", "4000MBps"]}}}
  b: {l3Allocation: "40%", mbAllocation: ["50%", "6000MBps"], classes: {bronze: {}}}
monitoring: containers
`

// TestOneClassFileOnTheKernel applies one configuration on the kernel of this machine, and prints what the kernel then has. The values are
// those on the simulated machine, and "check" has predicted the conditions.
func TestOneClassFileOnTheKernel(t *testing.T) {
	spec := kernelSpec(t)
	must(t, unix.Mount("resctrl", sim.MountPoint, "resctrl", 0, spec.Options))
	t.Cleanup(func() { must(t, unix.Unmount(sim.MountPoint, 0)) })
	host, reference := hostfs.Root("/"), newBackend(sim.New(spec), nil)
	pid := sleeping(t)
	b := newBackend(host, processes{pid})
	predicted, err := b.Preview(t.Context(), parse(t, oneFile))
	must(t, err)
	apply(t, b, oneFile)
	apply(t, reference, oneFile)

	got, want := dividedIn(b), dividedIn(reference)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-simulation +kernel):\n%s", diff)
	}
	must(t, host.WriteFile(sim.MountPoint+"/qos-gold/tasks", []byte(strconv.Itoa(pid))))
	b.MonitorAll(t.Context(), inClass("gold", classes.Holder{ID: "c1", Container: "main", PID: pid}))
	if condition := monitoredCondition(t, b); !condition.Healthy || condition.Message != "containers monitored: 1 (gold: 1 of 1)" {
		t.Errorf("the condition is %+v", condition)
	}
	for _, condition := range predicted.Conditions {
		if got := conditionOf(b.Status(), condition.Type); got.Healthy != condition.Healthy || got.Reason != condition.Reason {
			t.Errorf("check has predicted %+v, and the status is %+v", condition, got)
		}
	}

	for _, class := range slices.Sorted(maps.Keys(got)) {
		t.Logf("| %s | %s | %s |", *kernel, class, got[class])
	}
	for _, condition := range b.Status().Conditions {
		t.Logf("| %s | %s | %v, %s: %s |", *kernel, condition.Type, condition.Healthy, condition.Reason, condition.Message)
	}
	b.Unmonitor("c1")
	must(t, b.Apply(t.Context(), &Config{}))
	must(t, b.Release(t.Context(), nobody))
}

// dividedIn returns the values of L3 and memory bandwidth by class, and leaves out other caches, which not each machine has.
func dividedIn(b *Backend) map[string]string {
	found := map[string]string{}
	for class, schemata := range b.Schemata() {
		var lines []string
		for line := range strings.Lines(schemata) {
			if !strings.HasPrefix(line, "L2") {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		found[class] = strings.Join(lines, " ")
	}
	return found
}
