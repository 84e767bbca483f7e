// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
	"github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// used waits a second, so that the last sample is too old, and returns the usage of each class of a resource. It leaves
// out classes without usage.
func (f *fixture) used(t *testing.T, resource string) map[string]float64 {
	t.Helper()
	<-time.After(time.Second)
	return f.usedAtOnce(t, resource)
}

// usedAtOnce works like `used`, but does not wait. If the last sample is not older than a second, usedAtOnce returns the
// usage of that sample.
func (f *fixture) usedAtOnce(t *testing.T, resource string) map[string]float64 {
	t.Helper()
	sample, err := f.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]float64{}
	for _, class := range sample.Classes {
		if value, has := class.Reading[classes.Series{Measure: nodetest.Used}]; has && class.Resource == resource {
			used[class.Class] = value
		}
	}
	return used
}

func (f *fixture) wantUsed(t *testing.T, resource string, want map[string]float64) {
	t.Helper()
	if diff := cmp.Diff(want, f.used(t, resource)); diff != "" {
		t.Errorf("usage of %s (-want +got):\n%s", resource, diff)
	}
}

// metered runs a test with a synchronized node and a simulated clock.
func metered(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.Synchronize(nil, nil)
		test(t, f)
	})
}

// TestAClassKeepsWhatEndedContainersHaveUsed ends containers whose usage was not measured yet, or has grown since the
// last sample.
func TestAClassKeepsWhatEndedContainersHaveUsed(t *testing.T) {
	metered(t, func(t *testing.T, f *fixture) {
		use := f.backends[cache].Use
		f.mustRun(t, pod("a", nil), container("c-a"))
		use("c-a", 100)
		f.wantUsed(t, cache, map[string]float64{"bronze": 100})
		use("c-a", 150)
		for range 2 { // the runtime may report an end twice
			f.Stop("c-a")
		}
		f.wantUsed(t, cache, map[string]float64{"bronze": 150})

		f.mustRun(t, pod("b", nil), container("c-b"))
		use("c-b", 7)
		f.Stop("c-b")
		f.wantUsed(t, cache, map[string]float64{"bronze": 157})
	})
}

func TestUsageIsCountedWhenTheReconcilerFindsTheEndBeforeTheRuntimeReportsIt(t *testing.T) {
	metered(t, func(t *testing.T, f *fixture) {
		f.mustRun(t, pod("a", nil), container("c-a"))
		f.backends[cache].Use("c-a", 100)
		f.backends[disk].Fail("observe", classes.ErrEnded)
		f.Repair(t.Context())
		f.Stop("c-a")
		f.wantUsed(t, cache, map[string]float64{"bronze": 100})
	})
}

func TestUsageIsCountedForTheClassThatTheContainerHadThen(t *testing.T) {
	metered(t, func(t *testing.T, f *fixture) {
		use := f.backends[cache].Use
		f.mustRun(t, pod("a", nil), container("c-a"))
		use("c-a", 100)
		f.mustUpdate(t, ownerA, map[string]string{cache: "silver"})
		use("c-a", 130)
		f.wantUsed(t, cache, map[string]float64{"bronze": 100, "silver": 30})
		f.mustUpdate(t, ownerA, map[string]string{cache: "bronze"})
		use("c-a", 135)
		f.wantUsed(t, cache, map[string]float64{"bronze": 105, "silver": 30})
	})
}

func TestUsageBeforeARestartIsNotCounted(t *testing.T) {
	metered(t, func(t *testing.T, f *fixture) {
		use := f.backends[cache].Use
		c := f.mustRun(t, pod("a", nil), container("c-a"))
		use("c-a", 1000)
		f.wantUsed(t, cache, map[string]float64{"bronze": 1000})

		f.restart(t)
		f.mustConfigure(t, files)
		f.wantUsed(t, cache, map[string]float64{})
		f.Synchronize([]classes.Holder{pod("a", nil)}, []state.Existing{running(pod("a", nil), c)})
		f.wantUsed(t, cache, map[string]float64{"bronze": 0})
		use("c-a", 1010)
		f.wantUsed(t, cache, map[string]float64{"bronze": 10})
	})
}

// TestAMissingOrLowerReadingDoesNotInflateTheUsage simulates readings that fail for a while, and a kernel counter that
// starts again at 0. Of the usage after the reset, 3 is counted: the first reading, 5, is only the new start.
func TestAMissingOrLowerReadingDoesNotInflateTheUsage(t *testing.T) {
	metered(t, func(t *testing.T, f *fixture) {
		b := f.backends[cache]
		f.mustRun(t, pod("a", nil), container("c-a"))
		b.Use("c-a", 100)
		f.wantUsed(t, cache, map[string]float64{"bronze": 100})
		b.Fail("measure", errors.New("input/output error"))
		b.Use("c-a", 120)
		f.wantUsed(t, cache, map[string]float64{"bronze": 100})
		b.Fail("measure", nil)
		f.wantUsed(t, cache, map[string]float64{"bronze": 120})
		b.Use("c-a", 5)
		f.wantUsed(t, cache, map[string]float64{"bronze": 120})
		b.Use("c-a", 8)
		f.wantUsed(t, cache, map[string]float64{"bronze": 123})
	})
}

func TestTheUsageOfAPodCountsFromItsFirstReading(t *testing.T) {
	metered(t, func(t *testing.T, f *fixture) {
		use := f.backends[net].Use
		p := pod("a", requesting(net+"=high"))
		use(p.ID, 50)
		f.mustRunPod(t, p)
		f.wantUsed(t, net, map[string]float64{"high": 0})
		use(p.ID, 60)
		f.StopPod(p.ID)
		f.wantUsed(t, net, map[string]float64{"high": 10})
	})
}

func TestARemovedClassWithoutHoldersHasNoUsage(t *testing.T) {
	metered(t, func(t *testing.T, f *fixture) {
		f.mustRun(t, pod("a", requesting(cache+"=silver")), container("c-a"))
		f.backends[cache].Use("c-a", 100)
		f.mustConfigure(t, strings.NewReplacer(", {name: silver}", "", "gold, silver, bronze", "gold, bronze").Replace(files))
		f.wantUsed(t, cache, map[string]float64{"silver": 100})
		f.Stop("c-a")
		f.StopPod(pod("a", nil).ID) // until then, a restarted container would get the removed class again
		f.wantUsed(t, cache, map[string]float64{})
		f.mustConfigure(t, files) // the class is new
		f.wantUsed(t, cache, map[string]float64{})
	})
}

func TestSamplesInTheSameSecondReadTheKernelOnce(t *testing.T) {
	metered(t, func(t *testing.T, f *fixture) {
		f.mustRun(t, pod("a", nil), container("c-a"))
		first := f.used(t, cache)
		f.backends[cache].Use("c-a", 100)
		sample, err := f.Usage(t.Context())
		if err != nil || sample.Classes[0].Reading[classes.Series{Measure: nodetest.Used}] != first["bronze"] {
			t.Errorf("sample %+v, error %v; want the usage of the earlier sample", sample, err)
		}
	})
}

// TestAHungMeasurementDelaysNoUpdateAndNoStopForLong updates and ends containers while the measurement of their usage
// hangs in the kernel.
func TestAHungMeasurementDelaysNoUpdateAndNoStopForLong(t *testing.T) {
	metered(t, func(t *testing.T, f *fixture) {
		b := f.backends[cache]
		f.mustRun(t, pod("a", nil), container("c-a"))
		f.mustRun(t, pod("b", nil), container("c-b"))
		f.mustRun(t, pod("c", nil), container("c-c"))
		stuck := make(chan struct{})
		b.Stick("measure c-a", stuck)
		b.Stick("measure c-c", stuck)
		f.wantQuickStop(t, "c-c")
		f.wantBlocked(t, 0, "") // the call may still return in time
		b.Use("c-b", 10)

		f.wantUsed(t, cache, map[string]float64{"bronze": 10}) // measures c-a, too
		f.wantBlocked(t, 2, "measure test.example/cache of pod ns/c container main")
		f.mustUpdate(t, ownerA, map[string]string{cache: "silver"})
		f.wantClass(t, "c-a", cache, "silver/update")
		f.wantQuickStop(t, "c-a")
		close(stuck)
		synctest.Wait()
		f.wantBlocked(t, 0, "")
	})
}

// TestHungMeasurementsDoNotStopTheHooks lets the measurements of 120 containers hang. Hooks fail if 100 of their calls
// hang. Measurements have a limit of their own, 50, so a new container still starts.
func TestHungMeasurementsDoNotStopTheHooks(t *testing.T) {
	metered(t, func(t *testing.T, f *fixture) {
		stuck := make(chan struct{})
		for i := range 120 {
			name := fmt.Sprint("stuck", i)
			f.mustRun(t, pod(name, nil), container("c-"+name))
			f.backends[cache].Stick("measure c-"+name, stuck)
		}
		for range 60 { // more than enough to reach the limit
			f.used(t, cache)
		}
		f.wantBlocked(t, 50, "measure test.example/cache of pod ns/stuck")
		f.mustRun(t, pod("new", nil), container("c-new"))

		close(stuck)
		synctest.Wait()
		f.wantBlocked(t, 0, "")
	})
}

func (f *fixture) wantQuickStop(t *testing.T, id string) {
	t.Helper()
	began := time.Now()
	f.Stop(id)
	if took := time.Since(began); took > 200*time.Millisecond {
		t.Errorf("the runtime waited %s for the end of a container", took)
	}
}

// TestAHungMeasurementDelaysNoStartForLong: a hook waits for a measurement for at most 200 ms (kernel.Briefly). On the simulated clock,
// nothing else takes time.
func TestAHungMeasurementDelaysNoStartForLong(t *testing.T) {
	metered(t, func(t *testing.T, f *fixture) {
		stuck := make(chan struct{})
		defer close(stuck)
		f.backends[cache].Stick("measure sandbox-a", stuck)
		began := time.Now()
		f.mustRun(t, pod("a", nil), container("c-a"))
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("the runtime waited %s for the start of a container", took)
		}
	})
}

// TestAClientThatDisconnectsDoesNotEndTheSampleOfOthers cancels the request of the client that has started the
// measurement.
func TestAClientThatDisconnectsDoesNotEndTheSampleOfOthers(t *testing.T) {
	metered(t, func(t *testing.T, f *fixture) {
		b := f.backends[cache]
		f.mustRun(t, pod("a", nil), container("c-a"))
		f.mustRun(t, pod("b", nil), container("c-b"))
		stuck := make(chan struct{})
		b.Stick("measure c-a", stuck)
		b.Use("c-b", 10)

		ctx, leave := context.WithCancel(t.Context())
		go func() { _, _ = f.Usage(ctx) }()
		synctest.Wait()
		leave()
		synctest.Wait()
		close(stuck)
		if diff := cmp.Diff(map[string]float64{"bronze": 10}, f.usedAtOnce(t, cache)); diff != "" {
			t.Errorf("another client gets (-want +got):\n%s", diff)
		}

		f.wantBlocked(t, 0, "")
	})
}

const rdtUsageFiles = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/rdt
  rdt: {partitions: {all: {l3Allocation: "100%", classes: {gold: {}}}}}
`

// TestTheUsageOfAGroupOnlyGrows simulates a counter that is unavailable for a while, and begins again at 20, and a group that another
// program removes. This process has created the group, so its usage counts from the first byte.
func TestTheUsageOfAGroupOnlyGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := resctrl.IntelSpec()
		m := sim.New(sim.Options{RDT: &spec})
		f := newMachine(t, m, func(host crashHost) classes.Kind { return rdtOn(t, host) }, rdtUsageFiles, "rdt=gold")
		f.restart(t)
		total := func() any {
			<-time.After(time.Second)
			sample, err := f.Usage(t.Context())
			for _, class := range sample.Classes {
				if value, has := class.Reading[classes.Series{Measure: "memory_bandwidth_bytes_total", Part: "0"}]; has && class.Class == "gold" {
					return value
				}
			}
			return err
		}

		for _, step := range []struct {
			counter string
			want    any
		}{{"1000", 1000.0}, {"1100", 1100.0}, {"Unavailable", nil}, {"1150", 1150.0}, {"Unassigned", nil}, {"20", 1150.0}, {"25", 1155.0}} {
			m.Resctrl().Count("qos-gold", 0, "mbm_total_bytes", step.counter)
			if got := total(); got != step.want {
				t.Errorf("with the counter at %s, usage is %v, want %v", step.counter, got, step.want)
			}
		}

		if err := m.Remove(resctrl.MountPoint + "/qos-gold"); err != nil {
			t.Fatal(err)
		}

		if got := total(); got != nil {
			t.Errorf("a removed group has the usage %v, want none", got)
		}

		f.Repair(t.Context())
		for range 2 { // the counter of the new group begins at 0
			if got := total(); got != 1155.0 {
				t.Errorf("after the repair, usage is %v, want 1155 as before", got)
			}
		}
	})
}
