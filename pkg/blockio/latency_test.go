// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/iotest"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

const latencies = `
Classes:
  both:
  - {Devices: ["/dev/sd?"], Latency: 10ms, ThrottleReadBps: 1M}
  - {Devices: [/dev/sdb], Latency: 500us}
  slower: [{Devices: [/dev/sda], Latency: 1.5s}]
  stacked: [{Devices: [/dev/dm-0], Latency: 10ms}]
`

func TestALatencyIsATargetForEachDisk(t *testing.T) {
	for _, test := range []struct {
		name    string
		machine *simcgroup.Machine
		both    map[string]string // the values of the class, by file; in cgroup v1, 0 means no limit
		// condition has the condition LatencyEffective, with a part of its message. degraded has a part of the reason why the
		// class is degraded.
		condition classes.Condition
		degraded  string
	}{
		{"A kernel with io.latency", simcgroup.New(), map[string]string{
			"io.latency": "8:0 target=10000\n8:16 target=500",
			"io.max":     "8:0 rbps=1000000 wbps=max riops=max wiops=max\n8:16 rbps=1000000 wbps=max riops=max wiops=max",
		}, classes.Condition{Healthy: true, Limited: true, Reason: "KernelActs", Message: "slows down only other containers of its pod"}, ""},
		{"A kernel without io.latency", simcgroup.New(simcgroup.Without("io.latency")), map[string]string{
			"io.max": "8:0 rbps=1000000 wbps=max riops=max wiops=max\n8:16 rbps=1000000 wbps=max riops=max wiops=max",
		}, classes.Condition{Reason: "NoLatencyFile", Message: "CONFIG_BLK_CGROUP_IOLATENCY"}, "CONFIG_BLK_CGROUP_IOLATENCY"},
		{"cgroup v1", simcgroup.NewLegacy(), map[string]string{
			"blkio.throttle.read_bps_device": "8:0 1000000\n8:16 1000000", "blkio.throttle.write_bps_device": "8:0 0\n8:16 0",
			"blkio.throttle.read_iops_device": "8:0 0\n8:16 0", "blkio.throttle.write_iops_device": "8:0 0\n8:16 0",
		}, classes.Condition{Reason: "NoLatencyFile", Message: "use cgroup v2"}, "cgroup v1 has no latency targets"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, disks(test.machine), classes.ContainerScope).apply(latencies)
			if diff := cmp.Diff(test.both, f.backend.Values()["both"]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			got := f.condition("LatencyEffective")
			if got.Healthy != test.condition.Healthy || got.Limited != test.condition.Limited || got.Reason != test.condition.Reason ||
				!strings.Contains(got.Message, test.condition.Message) {
				t.Errorf("the condition is %+v, want %+v", got, test.condition)
			}
			reason := f.backend.Status().Degraded["both"]
			if (reason == "") != (test.degraded == "") || !strings.Contains(reason, test.degraded) {
				t.Errorf("class both is degraded because of %q, want %q", reason, test.degraded)
			}
			f.enforce(container(), "", "both") // the kernel accepts the values
			f.enforce(container(), "both", "")
		})
	}
}

// TestWithoutACgroupItIsNotReportedThatTheKernelLacksIOLatency: only a cgroup with the io controller shows which files
// the kernel has. The test makes the first one after the classes were applied.
func TestWithoutACgroupItIsNotReportedThatTheKernelLacksIOLatency(t *testing.T) {
	m := iotest.AddDisks(simcgroup.New())
	f := newFixture(t, m, classes.ContainerScope).apply(latencies)
	const unknown = "it is not known yet whether the kernel has io.latency"
	if got := f.condition("LatencyEffective"); got.Reason != "NotKnownYet" || !strings.Contains(got.Message, unknown) {
		t.Errorf("without a cgroup, the condition is %+v", got)
	}
	if got := f.backend.Status().Degraded["both"]; !strings.Contains(got, unknown) {
		t.Errorf("without a cgroup, class both is degraded because of %q", got)
	}

	m.AddCgroup(groupPath)
	if _, err := f.backend.Repair(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := f.condition("LatencyEffective"); got.Reason != "KernelActs" {
		t.Errorf("with a cgroup, the condition is %+v", got)
	}
}

func (f fixture) condition(kind string) (found classes.Condition) {
	for _, condition := range f.backend.Status().Conditions {
		if condition.Type == kind {
			found = condition
		}
	}
	return found
}

func TestALatencyOfAStackedDiskHasNoEffect(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(latencies)
	const want = "latency 10ms has no effect on 253:0 (dm-0), which has no request queue"
	if got := f.backend.Status().Degraded["stacked"]; !strings.Contains(got, want) {
		t.Errorf("class stacked is degraded because of %q, want %q", got, want)
	}
}

func TestTheStatusSaysWhichPodsALatencySlowsDown(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.PodScope).apply(latencies)
	if got := f.condition("LatencyEffective").Message; !strings.Contains(got, "that of a guaranteed pod also slows down all burstable and best-effort pods") {
		t.Errorf("the message is %q", got)
	}
}

func TestAContainerThatLeavesAClassLosesItsLatency(t *testing.T) {
	for name, change := range map[string]func(f fixture, from, to string){
		"The runtime writes": func(f fixture, from, to string) {
			f.runtime(from, to)
			f.machine.Writes() // forgets the writes so far
			f.enforce(container(), from, to)
			if more := f.machine.Writes(); len(more) > 0 {
				f.t.Errorf("the plugin writes again what the runtime has written: %v", more)
			}
		},
		"The plugin writes": func(f fixture, from, to string) { f.enforce(container(), from, to) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(latencies)
			change(f, "", "both")
			f.want(v2Dir+"/io.latency", "8:0 target=10000\n8:16 target=500\n")
			change(f, "both", "slower")
			f.want(v2Dir+"/io.latency", "8:0 target=1500000\n")
			change(f, "slower", "")
			f.want(v2Dir+"/io.latency", "")
			f.want(v2Dir+"/io.max", "") // the limit of class both is gone, too
		})
	}
}

func TestALatencyOfAnotherProgramOnAnotherDiskStaysAndIsReported(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.PodScope).apply(latencies)
	file := path.Join(path.Dir(v2Dir), "io.latency")
	must(t, f.machine.WriteFile(file, []byte("8:16 target=7000")))
	f.enforce(pod(), "", "slower")
	f.want(file, "8:0 target=1500000\n8:16 target=7000\n")
	f.enforce(pod(), "slower", "")
	f.want(file, "8:16 target=7000\n")
	if seen, err := f.backend.Observe(t.Context(), pod(), ""); err != nil || seen.Foreign != "io.latency of 8:16 (sdb)" {
		t.Errorf("got %+v, %v", seen, err)
	}
}

func TestALatencyThatAnotherProgramHasChangedIsRestored(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(latencies)
	f.enforce(container(), "", "both")
	must(t, f.machine.WriteFile(v2Dir+"/io.latency", []byte("8:16 target=7000")))
	if seen, err := f.backend.Observe(t.Context(), container(), "both"); err != nil || seen.Known {
		t.Errorf("got %+v, %v; want an unknown class", seen, err)
	}
	f.enforce(container(), "", "both")
	f.want(v2Dir+"/io.latency", "8:0 target=10000\n8:16 target=500\n")
}

// TestALatencyOfAFormerClassIsClearedAfterARestart changes the class files while the plugin is not running.
func TestALatencyOfAFormerClassIsClearedAfterARestart(t *testing.T) {
	m, saved := disks(simcgroup.New()), iotest.NewMemory()
	process(t, m, classes.PodScope, latencies, saved).enforce(pod(), "", "both")
	f := process(t, m, classes.PodScope, throttling, saved)
	f.enforce(pod(), "both", "slow")
	f.want(path.Dir(v2Dir)+"/io.latency", "")
}

// TestALatencyIsSetAsSoonAsACgroupShowsThatTheKernelHasIt begins without any cgroup that shows the kernel's files.
func TestALatencyIsSetAsSoonAsACgroupShowsThatTheKernelHasIt(t *testing.T) {
	f := newFixture(t, iotest.AddDisks(simcgroup.New()), classes.ContainerScope).apply(latencies)
	if got := f.condition("LatencyEffective"); got.Healthy {
		t.Fatalf("no cgroup has shown io.latency, but the condition is %+v", got)
	}
	f.machine.AddCgroup(groupPath)
	if drift, err := f.backend.Repair(t.Context()); err != nil || len(drift.Found) == 0 {
		t.Errorf("got %+v, %v; want drift", drift, err)
	}
	f.enforce(container(), "", "slower")
	f.want(v2Dir+"/io.latency", "8:0 target=1500000\n")
}

func TestAStoredLatencyOfAnotherClassIsStale(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(latencies)
	// Class slower has a latency of 1.5 s (1500000 us) for sda (8:0). Class "", the system default, has none. The target 0 means no latency.
	for _, test := range []struct {
		class, stored string
		want          bool
	}{
		{"slower", "8:0 target=1500000", false},
		{"slower", "8:0 target=10000", true},
		{"slower", "8:0 target=0", true},
		{"", "8:0 target=0", false},
		{"", "8:16 target=500", true},
		{"", "9:9 target=0", true}, // the disk is gone, and the runtime would fail to set this
	} {
		if got := f.backend.IsStale(container(), test.class, map[string]string{"io.latency": test.stored}); got != test.want {
			t.Errorf("class %q with the stored io.latency %q: stale is %v, want %v", test.class, test.stored, got, test.want)
		}
	}
}

func TestAStoredLatencyOfADiskThatIsGoneIsReplaced(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(latencies)
	f.runtime("", "both")
	f.machine.RemoveDisk("sdb")
	f.machine.RemoveDisk("sda")
	if _, err := f.backend.Repair(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A runtime cannot forget a stored file. So it gets a text without effect, for the first disk that is left: loop0 (7:0).
	adjustment, err := f.backend.Adjust(container(), "both", "")
	if got := adjustment.Unified()["io.latency"]; err != nil || got != "7:0 target=0" {
		t.Errorf("got %q, %v; want a text without effect for a disk that exists", got, err)
	}
}
