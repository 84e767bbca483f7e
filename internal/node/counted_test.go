// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
	"github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// TestAHundredContainersShareFewRMIDsAndCounters starts 100 containers on a CPU with 12 RMIDs and 8 counters of memory
// bandwidth. All of them start, and the usage has the reason for each container without an RMID or a counter. Then the test
// configures 8 more classes, which get the RMIDs of the containers.
func TestAHundredContainersShareFewRMIDsAndCounters(t *testing.T) {
	spec := resctrl.AMDSpec()
	spec.L2, spec.Counters = nil, 8
	spec.RMIDs, spec.TelemetryRMIDs = 256, 12 // the kernel uses the lower number
	files := strings.Replace(rdtFiles, "rdt: {", "rdt: {monitoring: containers, ", 1)
	f := newMachine(t, sim.New(sim.Options{RDT: &spec}), func(host crashHost) classes.Kind { return rdtOn(t, host) }, files, "")
	now := time.Unix(1000, 0)
	f.fixture.restart(t, func(o *node.Options) { o.Now = func() time.Time { return now } })
	f.mustConfigure(t, f.text)
	f.Synchronize(nil, nil)
	for i := range 100 {
		f.startNumbered(t, i, []string{"rdt=gold", "rdt=silver"}[i%2])
	}

	// The root group and three classes have 4 of the 12 RMIDs, which leaves 8 for containers. The root group has two of the 8 counters,
	// and each class one, which leaves 3.
	f.Repair(t.Context())
	f.wantUnmonitored(t, map[string]int{"": 3, "NoFreeCounter": 5, "NoFreeRMID": 92})

	var more strings.Builder
	for i := range 8 {
		fmt.Fprintf(&more, "c%d: {}, ", i)
	}
	f.mustConfigure(t, strings.Replace(files, "classes: {", "classes: {"+more.String(), 1))
	f.Repair(t.Context())
	now = now.Add(time.Minute) // the node keeps a sample for a while
	f.wantUnmonitored(t, map[string]int{"NoFreeRMID": 100})
}

// wantUnmonitored compares the numbers of containers, by the reason why they are not monitored. The key "" has those with values of
// memory bandwidth, and without a reason. The resource must have the condition that not all containers are monitored.
func (f *machine) wantUnmonitored(t *testing.T, want map[string]int) {
	t.Helper()
	sample, err := f.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, h := range sample.Holders {
		why, has := "", false
		for series := range h.Reading {
			if series.Measure == "unmonitored" {
				why = series.Part
			}
			has = has || series.Measure == "memory_bandwidth_bytes_total"
		}
		if has != (why == "") {
			t.Errorf("%s has the reason %q, and values of memory bandwidth: %v", h.ID, why, has)
		}
		got[why]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("containers by reason (-want +got):\n%s", diff)
	}
	resource := f.Live().Resources["k8s.io/rdt"]
	conditions := resource.Status().Conditions
	if last := conditions[len(conditions)-1]; last.Type != "ContainersMonitored" || last.Healthy {
		t.Errorf("the condition is %+v, want that not all containers are monitored", last)
	}
}

// TestRotateGivesTheCountersToOtherContainers has two containers, and one free counter, which they get in turn.
func TestRotateGivesTheCountersToOtherContainers(t *testing.T) {
	spec, now := resctrl.AMDSpec(), time.Unix(1000, 0)
	spec.Counters = 6 // the root group has two, and three classes have three
	f := newMachine(t, sim.New(sim.Options{RDT: &spec}), func(host crashHost) classes.Kind {
		return rdt.Kind(rdt.Options{FS: host, Threads: treeOf(t, host), Now: func() time.Time { return now }})
	}, strings.Replace(rdtFiles, "rdt: {", "rdt: {monitoring: {containers: [gold], rotate: 10s}, ", 1), "")
	f.restart(t)
	f.Synchronize(nil, nil)
	for i := range 2 {
		f.startNumbered(t, i, "rdt=gold")
	}

	for _, want := range []string{"c0", "c1", "c0"} {
		f.Rotate(t.Context())
		var counted []string
		for _, id := range []string{"c0", "c1"} {
			text, err := f.host.ReadFile(resctrl.MountPoint + "/qos-gold/mon_groups/qos-" + id + "/mbm_L3_assignments")
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "mbm_total_bytes:0=e") {
				counted = append(counted, id)
			}
		}
		if got := strings.Join(counted, " "); got != want {
			t.Errorf("the containers with counters are %q, want %q", got, want)
		}
		now = now.Add(f.RotateEvery())
	}
}

// startNumbered starts the only container of a new pod. Its ID is "c" with the number.
func (f *machine) startNumbered(t *testing.T, number int, request string) {
	t.Helper()
	p, c := pod(fmt.Sprint("p", number), requesting(request)), container(fmt.Sprint("c", number))
	c.CgroupsPath, c.PID = "/kubepods/pod"+p.PodUID+"/"+c.ID, 1000+number
	c, adjustment, err := f.fixture.create(t, p, c)
	if err != nil {
		t.Fatal(err)
	}
	f.host.Cgroups().AddCgroup(c.CgroupsPath)
	f.host.Cgroups().AddProcess(c.CgroupsPath, c.PID)
	f.host.Resctrl().AddTask(c.PID, adjustment[classes.Setting{Name: classes.SettingClosID}])
	if err := f.fixture.start(t, p, c); err != nil {
		t.Fatal(err)
	}
}
