// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/held"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/linux"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
	"github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

const heldInterval = 15 * time.Second

// judges runs the judge of a node in simulated time. `use` simulates the use of the container in each interval.
type judges struct {
	*machine
	use func()
}

// intervals lets some intervals pass, and returns the condition of a class after the last one.
func (j judges) intervals(t *testing.T, n int, resource, class string) classes.Condition {
	t.Helper()
	for range n {
		<-time.After(heldInterval)
		j.use()
		if err := j.JudgeHeld(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range j.Status().Resources {
		if r.Name == resource {
			return r.Held[class]
		}
	}
	t.Fatalf("there is no resource %s", resource)
	return classes.Condition{}
}

func wantHeld(t *testing.T, c classes.Condition, reason string, texts ...string) {
	t.Helper()
	if c.Type != qos.ConditionHeld || c.Reason != reason || c.Healthy != (reason != qos.ReasonLimitNotHeld) {
		t.Errorf("the condition is %+v, want reason %s", c, reason)
	}
	for _, text := range texts {
		if !strings.Contains(c.Message, text) {
			t.Errorf("the message %q lacks %q", c.Message, text)
		}
	}
}

// TestANodeJudgesALimitOfBlockIO has a container in class first, which allows reads of 1 MB/s. The container reads less, then as
// much as it may, and then four times as much, because another program has removed the limit.
func TestANodeJudgesALimitOfBlockIO(t *testing.T) {
	for name, legacy := range map[string]bool{"cgroup v2": cgroupV2, "cgroup v1": cgroupV1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newBlockIOMachine(t, legacy, "first").machine
				rate := uint64(100_000)
				j := judges{m, func() {
					m.host.Cgroups().Transfer(machinePath, "sda", rate*uint64(heldInterval.Seconds()), 0)
				}}
				const resource = "k8s.io/blockio"
				wantHeld(t, j.intervals(t, 1, resource, "first"), qos.ReasonNotMeasured)
				wantHeld(t, j.intervals(t, 5, resource, "second"), qos.ReasonNotMeasured, "No container or pod with the class was measured")
				wantHeld(t, j.intervals(t, 1, resource, "first"), qos.ReasonNeverReached)
				rate = 1_000_000
				wantHeld(t, j.intervals(t, 6, resource, "first"), qos.ReasonReached, "ThrottleReadBps of sda 1M/s")
				// The message has the mean of four intervals, here three with 4 MB/s and one before. It then stays, because
				// a message changes only if its figure has changed by more than a quarter.
				rate = 4_000_000
				wantHeld(t, j.intervals(t, 8, resource, "first"), qos.ReasonLimitNotHeld, "container main took 3.25M/s of 1M/s", "exceeded by 225%")
				rate = 1_000_000
				wantHeld(t, j.intervals(t, 8, resource, "first"), qos.ReasonReached)

				// for the metrics
				verdict := j.HeldVerdicts()[held.Class{Resource: resource, Name: "first"}]
				want := held.Limit{Name: "ThrottleReadBps", Part: "sda", Ratio: 1}
				if len(verdict.Limits) == 0 || verdict.Limits[0] != want {
					t.Errorf("the limits are %+v, want %+v first", verdict.Limits, want)
				}
			})
		})
	}
}

// TestADayWithinTheLimitsIsNeverLimitNotHeld simulates a day. A container uses random parts of its limits, with
// requests of up to 4 MB at once, while its class changes and the plugin restarts. The condition of its class must
// never be LimitNotHeld.
func TestADayWithinTheLimitsIsNeverLimitNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newBlockIOMachine(t, cgroupV2, "first").machine
		draws := rand.New(rand.NewPCG(1, 2))
		type limit struct {
			disk string
			rate float64
		}
		limits := map[string]limit{"first": {"sda", 1e6}, "second": {"sdc", 2e6}, "third": {"sda", 10e6}}
		// `saved` is how many bytes the container may still transfer.
		class, saved, reached := "first", 0.0, 0
		j := judges{m, func() {
			of := limits[class]
			saved += of.rate * heldInterval.Seconds()
			take := saved * []float64{0, 0.5, 0.9, 1, 1}[draws.IntN(5)]
			saved = min(saved-take, 4e6) // more is not kept for the next interval
			m.host.Cgroups().Transfer(machinePath, of.disk, uint64(take), 0)
		}}
		for range 24 * int(time.Hour/heldInterval) {
			switch draws.IntN(200) {
			case 0:
				class, saved = []string{"first", "second", "third"}[draws.IntN(3)], 0
				m.mustUpdate(t, ownerA, map[string]string{"blockio": class})
			case 1:
				m.recover(t)
			}
			condition := j.intervals(t, 1, "k8s.io/blockio", class)
			if !condition.Healthy {
				t.Fatalf("class %s: %s", class, condition.Message)
			}
			if condition.Reason == qos.ReasonReached {
				reached++
			}
		}
		// If a limit was reached in fewer than 1000 of the 5760 samples, the container uses too little for this test.
		if reached < 1000 {
			t.Errorf("a limit was reached in only %d samples", reached)
		}
	})
}

// rdtHeld has a class "half", which may occupy 6 of the 12 ways of an L3 cache, or 8 MiB. Its parameters are the memory bandwidths of the
// partition and of the class.
const rdtHeld = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/rdt
  rdt: {partitions: {all: {l3Allocation: "100%%", mbAllocation: [%[1]s], classes: {half: {l3Allocation: "50%%", mbAllocation: [%[2]s]}}}}}
`

// dimm is a table of the firmware (SMBIOS) with one module of DDR4-3200, which transfers 25.6 GB/s. The type 0x11 is a memory
// device, 0x40 is its width in bits, 0x4000 its size in MB, and 0x0c80 its speed, 3200.
const dimm = "\x11\x17\x00\x00" + "\x00\x00\x00\x00\x00\x00" + "\x40\x00" + "\x00\x40" + "\x00\x00\x00\x00\x00\x00\x00" + "\x80\x0c" + "\x00\x00"

// TestANodeJudgesSharesOfCachesAndBandwidth lets the class use half of its limits, then all of its share of the cache, then 1.6
// times its bandwidth, and at last 1.5 times its share of the cache. The machine has two caches, and each of them has half of the
// bandwidth of the memory.
func TestANodeJudgesSharesOfCachesAndBandwidth(t *testing.T) {
	for _, test := range []struct {
		name string
		// `options` are the mount options of resctrl, and `all` and `half` the parameters of rdtHeld.
		options, all, half string
		// firmware is the table of the memory modules.
		firmware string
		// limit is the limit of the class in bytes per second, or 0 if it is unknown.
		limit   float64
		counter string // of the transferred bytes
		// The message contains `reached` when the class uses its limit, and `exceeded` when it uses 1.6 times the limit. The figure in
		// `exceeded` is 1.325 times the limit, the mean of one interval with half of the limit and three with 1.6 times.
		reached, exceeded string
	}{
		{
			name: "MBps", options: "mba_MBps", all: "4000MBps", half: "500MBps", limit: 500 << 20, counter: "mbm_local_bytes",
			reached: "MBps of 0 524M/s", exceeded: "the class took 695M/s of 524M/s: MBps of 0 is exceeded by 32%",
		},
		{
			name: "per cent", all: `"100%"`, half: `"50%"`, firmware: dimm, limit: 6.4e9, counter: "mbm_total_bytes",
			reached: "memory bandwidth of 0 6.4G/s", exceeded: "the class took 8.48G/s of 6.4G/s: memory bandwidth of 0 is exceeded by 32%",
		},
		{name: "per cent of an unknown bandwidth", all: `"100%"`, half: `"50%"`, counter: "mbm_total_bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				spec := resctrl.IntelSpec()
				spec.Options = test.options
				kind := func(host crashHost) classes.Kind { return rdtOn(t, host) }
				m := newMachine(t, sim.New(sim.Options{RDT: &spec}), kind, fmt.Sprintf(rdtHeld, test.all, test.half), "rdt=half")
				if test.firmware != "" {
					m.host.Cgroups().AddFile("/sys/firmware/dmi/tables/DMI", test.firmware)
				}
				m.restart(t)
				m.Synchronize(nil, nil)
				m.host.Resctrl().AddTask(100, m.create(t, 100)[classes.Setting{Name: classes.SettingClosID}])
				m.host.Cgroups().AddCgroup(machinePath)
				m.host.Cgroups().AddProcess(machinePath, 100)
				m.start(t)

				occupied, share, total := 4<<20, 0.5, 0.0
				j := judges{m, func() {
					total += share * test.limit * heldInterval.Seconds()
					m.host.Resctrl().Count("qos-half", 0, "llc_occupancy", strconv.Itoa(occupied))
					m.host.Resctrl().Count("qos-half", 0, test.counter, strconv.FormatFloat(total, 'f', 0, 64))
				}}
				never := j.intervals(t, 6, "k8s.io/rdt", "half")
				wantHeld(t, never, qos.ReasonNeverReached)
				if unknown := strings.Contains(never.Message, "not measured: memory bandwidth (the firmware does not report"); unknown != (test.limit == 0) {
					t.Errorf("the message is %q", never.Message)
				}
				occupied = 8 << 20
				wantHeld(t, j.intervals(t, 6, "k8s.io/rdt", "half"), qos.ReasonReached, "L3 share of 0")
				if test.limit > 0 {
					share = 1.6
					wantHeld(t, j.intervals(t, 6, "k8s.io/rdt", "half"), qos.ReasonLimitNotHeld, test.exceeded)
					share = 1 // the whole bandwidth, and no more, so the limit is held again
					wantHeld(t, j.intervals(t, 6, "k8s.io/rdt", "half"), qos.ReasonReached, test.reached)
				}
				occupied = 12 << 20
				wantHeld(t, j.intervals(t, 6, "k8s.io/rdt", "half"), qos.ReasonLimitNotHeld, "L3 share of 0 is exceeded by 50%")
			})
		})
	}
}

// TestANodeReportsThatALimitWasNotMeasured has a container on a machine whose kernel shows no values. Its class may use the whole
// bandwidth, so the share of the cache is the only limit.
func TestANodeReportsThatALimitWasNotMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := resctrl.IntelSpec()
		kind := func(host crashHost) classes.Kind { return rdtOn(t, host) }
		m := newMachine(t, sim.New(sim.Options{RDT: &spec}), kind, fmt.Sprintf(rdtHeld, `"100%"`, `"100%"`), "rdt=half")
		m.restart(t)
		m.Synchronize(nil, nil)
		m.create(t, 100)
		for _, cache := range spec.Domains {
			for _, event := range []string{"llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"} {
				m.host.Resctrl().Count("qos-half", cache, event, "Unavailable")
			}
		}
		const message = "Not measured: L3 share (the kernel shows no value)."
		// Six intervals are longer than a window.
		wantHeld(t, judges{m, func() {}}.intervals(t, 6, "k8s.io/rdt", "half"), qos.ReasonNotMeasured, message)
	})
}

const linuxHeld = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: vendor.example/memory
  linux: {classes: {high: {memory: {high: 64Mi}, cpu: {burst: 20ms}}}}
`

// TestANodeJudgesMemoryHighAndBursts lets a container use bursts, reach memory.high, and stay above memory.high. One interval shows that a
// limit is reached, because the kernel counts this. It takes a window of four intervals to show that a limit is exceeded.
func TestANodeJudgesMemoryHighAndBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, sim.New(sim.Options{}), func(host crashHost) classes.Kind {
			return linux.Kind(linux.Options{FS: priorities{host}, Tree: treeOf(t, host), Log: slog.New(slog.DiscardHandler)})
		}, linuxHeld, "vendor.example/memory=high")
		const dir = "/sys/fs/cgroup" + machinePath + "/"
		cgroups := m.host.Cgroups()
		cgroups.AddFile("/sys/fs/cgroup/cgroup.controllers", "cpu io memory pids\n")
		cgroups.AddCgroup(machinePath)
		for file, text := range map[string]string{"memory.high": "67108864\n", "cpu.max.burst": "20000\n"} {
			cgroups.AddFile(dir+file, text)
		}
		m.ctr.Spec = classes.Spec{CPUQuota: 50_000, CPUPeriod: 100_000}
		m.restart(t)
		m.Synchronize(nil, nil)
		m.create(t, 100)
		m.start(t)

		used, events, bursts, burstTime := 40<<20, 0, 0, 0
		j := judges{m, func() {
			cgroups.AddFile(dir+"memory.current", strconv.Itoa(used)+"\n")
			cgroups.AddFile(dir+"memory.events", fmt.Sprintf("low 0\nhigh %d\nmax 0\noom 0\n", events))
			cgroups.AddFile(dir+"cpu.stat", fmt.Sprintf("usage_usec 5\nnr_bursts %d\nburst_usec %d\n", bursts, burstTime))
		}}
		const resource = "vendor.example/memory"
		wantHeld(t, j.intervals(t, 6, resource, "high"), qos.ReasonNeverReached)
		bursts, burstTime = 9, 90_000
		wantHeld(t, j.intervals(t, 1, resource, "high"), qos.ReasonReached, "cpu.burst")
		events = 4
		wantHeld(t, j.intervals(t, 1, resource, "high"), qos.ReasonReached, "memory.high 67.1M")
		used = 100 << 20
		wantHeld(t, j.intervals(t, 6, resource, "high"), qos.ReasonLimitNotHeld, "took 105M of 67.1M: memory.high is exceeded by 56%")
	})
}

// priorities adds the I/O priority of processes to a simulated machine.
type priorities struct{ crashHost }

func (priorities) IOPriority(int) (int, error) { return 0, nil }

// TestWithoutAnIntervalNothingIsJudged: no class has the condition, and FollowHeld returns at once.
func TestWithoutAnIntervalNothingIsJudged(t *testing.T) {
	m := newBlockIOMachine(t, cgroupV2, "first").machine
	m.fixture.restart(t, func(o *node.Options) { o.HeldInterval = 0 })
	m.mustConfigure(t, m.text)
	if err := m.JudgeHeld(t.Context()); err != nil {
		t.Error(err)
	}
	m.FollowHeld(t.Context())
	for _, r := range m.Status().Resources {
		if len(r.Held) > 0 || len(m.HeldVerdicts()) > 0 {
			t.Errorf("%s is judged: %+v", r.Name, r.Held)
		}
	}
}
