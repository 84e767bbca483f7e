// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"context"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// oneFile is a class file that means the same on each machine.
const oneFile = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/rdt
  defaultClass: bronze
  classes: [{name: gold, capacity: 2}, {name: bronze}]
  rdt:
    partitions:
      a: {l3Allocation: "60%", mbAllocation: ["100%", "12000MBps"], classes: {gold: {mbAllocation: ["50%", "4000MBps"]}}}
      b: {l3Allocation: "40%", mbAllocation: ["50%", "6000MBps"], classes: {bronze: {}}}
    monitoring: containers
`

// parseOneFile returns the backend's part of the class file, and a container of each class: `requests` asks for gold, and `silent` gets the
// default class.
func parseOneFile(t *testing.T, requests, silent classes.Holder) (*Config, []classes.InClass) {
	t.Helper()
	config, err := classes.Parse([]classes.File{{Name: "rdt.yaml", Data: []byte(oneFile)}}, []classes.Kind{Kind(Options{})}, nil)
	must(t, err)
	resource := config.Resources[0]
	if gold, _ := resource.Class("gold"); gold.Capacity != 2 {
		t.Errorf("the class is %+v, want a capacity of 2", gold)
	}
	requests.PodAnnotations = map[string]string{"rdt.resources.beta.kubernetes.io/pod": "gold"}
	catalog := classes.NewCatalog([]classes.Offer{{Resource: resource.Resource}})
	var running []classes.InClass
	for _, holder := range []classes.Holder{requests, silent} {
		assigned, err := catalog.Resolve(holder)
		must(t, err)
		running = append(running, inClass(assigned[0].Class, holder)...)
	}
	if got := []string{running[0].Class, running[1].Class}; !slices.Equal(got, []string{"gold", "bronze"}) {
		t.Errorf("the classes of the containers are %v", got)
	}
	return resource.Backend.(*Config), running
}

// TestTheSameClassFileAppliesToEachSimulatedMachine also compares the class file and the values with those in docs/rdt.md. The
// containers are monitored on each machine.
func TestTheSameClassFileAppliesToEachSimulatedMachine(t *testing.T) {
	page, err := os.ReadFile("../../docs/rdt.md")
	must(t, err)
	if !strings.Contains(string(page), "```yaml"+oneFile+"```\n") {
		t.Error("docs/rdt.md has another class file")
	}
	mbps := sim.IntelSpec()
	mbps.Options = "mba_MBps"
	for name, test := range map[string]struct {
		spec         sim.Spec
		gold, bronze string
	}{
		"Intel":       {sim.IntelSpec(), "L3:0=ff;1=ff MB:0=50;1=50", "L3:0=f00;1=f00 MB:0=50;1=50"},
		"Intel, MBps": {mbps, "L3:0=ff;1=ff MB:0=4000;1=4000", "L3:0=f00;1=f00 MB:0=6000;1=6000"},
		"AMD":         {sim.AMDSpec(), "L3:0=ff;1=ff MB:0=32;1=32", "L3:0=f00;1=f00 MB:0=48;1=48"},
		"Arm":         {sim.ArmSpec(8), "L3:0=3ff;65536=3ff MB:0=50;1=50", "L3:0=fc00;65536=fc00 MB:0=50;1=50"},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := sim.New(test.spec)
			b := newBackend(fsys, &several{})
			config, running := parseOneFile(t, classes.Holder{ID: "c1", Container: "main", PID: 1}, classes.Holder{ID: "c2", Container: "main", PID: 2})
			must(t, b.Apply(t.Context(), config))
			if diff := cmp.Diff(map[string]string{"gold": test.gold, "bronze": test.bronze}, dividedIn(b)); diff != "" {
				t.Errorf("values (-want +got):\n%s", diff)
			}
			// In the table of docs/rdt.md, the caches of Arm have the IDs 0 and 1. The table has no row for the mount option mba_MBps.
			row := strings.ReplaceAll("| `"+test.gold+"` | `"+test.bronze+"` |", "65536=", "1=")
			if test.spec.Options == "" && !strings.Contains(string(page), row) {
				t.Errorf("docs/rdt.md lacks the values %s", row)
			}
			for _, c := range running {
				fsys.AddTask(c.PID, "qos-"+c.Class)
			}
			b.MonitorAll(t.Context(), running)
			if got, want := monitoredCondition(t, b).Message, "containers monitored: 2 (bronze: 1 of 1, gold: 1 of 1)"; got != want {
				t.Errorf("the condition is %q, want %q", got, want)
			}
		})
	}
}

// freeRMIDs lets the kernel use the RMIDs of removed groups again. The kernel keeps such an RMID while more of its data is in the
// cache than a limit allows, and on an emulated CPU, the data never leaves the cache. So freeRMIDs raises the limit, which the
// kernel checks each second.
func freeRMIDs(t *testing.T, host resctrl.FS) {
	t.Helper()
	const file, most = sim.MountPoint + "/info/L3_MON/max_threshold_occupancy", "67108864"
	before, err := host.ReadFile(file)
	if err == nil && host.WriteFile(file, []byte(most)) == nil { // other emulated CPUs allow less, and free their RMIDs
		t.Cleanup(func() { must(t, host.WriteFile(file, before)) })
	}
}

// monitorUntil monitors containers again and again, until the function `done` returns true, for a minute at most. The RMIDs of the test
// before become free meanwhile.
func monitorUntil(t *testing.T, host resctrl.FS, b *Backend, running []classes.InClass, done func() bool) {
	t.Helper()
	freeRMIDs(t, host)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ticks := time.Tick(100 * time.Millisecond)
	for b.MonitorAll(ctx, running); !done() && ctx.Err() == nil; b.MonitorAll(ctx, running) {
		select {
		case <-ticks:
		case <-ctx.Done():
		}
	}
}

// TestOneClassFileOnTheKernel applies the class file on the kernel of this machine, and prints
// what the kernel then has. The values are those on the simulated machine, and "check" has predicted the conditions.
func TestOneClassFileOnTheKernel(t *testing.T) {
	spec := kernelSpec(t)
	must(t, unix.Mount("resctrl", sim.MountPoint, "resctrl", 0, spec.Options))
	t.Cleanup(func() { must(t, unix.Unmount(sim.MountPoint, 0)) })
	host, reference := hostfs.Root("/"), newBackend(sim.New(spec), nil)
	config, running := parseOneFile(t, classes.Holder{ID: "c1", Container: "main", PID: sleeping(t)}, classes.Holder{ID: "c2", Container: "main", PID: sleeping(t)})
	b := newBackend(host, &several{})
	predicted, err := b.Preview(t.Context(), config)
	must(t, err)
	must(t, b.Apply(t.Context(), config))
	must(t, reference.Apply(t.Context(), config))

	got, want := dividedIn(b), dividedIn(reference)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-simulation +kernel):\n%s", diff)
	}
	for _, c := range running {
		must(t, host.WriteFile(sim.MountPoint+"/qos-"+c.Class+"/tasks", []byte(strconv.Itoa(c.PID))))
	}
	monitorUntil(t, host, b, running, func() bool { return monitoredCondition(t, b).Healthy })
	if condition := monitoredCondition(t, b); !condition.Healthy || condition.Message != "containers monitored: 2 (bronze: 1 of 1, gold: 1 of 1)" {
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
	for _, c := range running {
		b.Unmonitor(c.ID)
	}
	removeClasses(t, b)
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
