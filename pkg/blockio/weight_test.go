// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// TestWeightsAreConvertedToTheUnitsOfTheirFile: the weights of classes have the range of bfq, 10 to 1000. Only io.weight has another
// range, 1 to 10000. There, 10 becomes 1, and each further unit of a class adds 9999/990, so 1000 becomes 10000. The result is rounded down.
func TestWeightsAreConvertedToTheUnitsOfTheirFile(t *testing.T) {
	for _, test := range []struct {
		file   iocgroup.File
		weight uint64
		want   uint64
	}{
		{iocgroup.IOWeight, 10, 1}, {iocgroup.IOWeight, 100, 910}, {iocgroup.IOWeight, 400, 3940}, {iocgroup.IOWeight, 1000, 10000},
		{iocgroup.IOBFQWeight, 10, 10}, {iocgroup.IOBFQWeight, 1000, 1000},
		{iocgroup.BlkioBFQWeight, 400, 400}, {iocgroup.BlkioWeight, 400, 400},
	} {
		if got := test.file.Convert(test.weight); got != test.want {
			t.Errorf("%d in %s is %d, want %d", test.weight, test.file, got, test.want)
		}
	}
}

// weighing has a class with a weight for all disks, and one with a weight for sda only. Their weights have the range of bfq, 10 to 1000.
// In io.weight, the weight 400 becomes 1+(400-10)*9999/990 = 3940, and 50 becomes 405.
const weighing = `
Classes:
  heavy:
  - Weight: 400
  sda:
  - Devices: [/dev/sda]
    Weight: 50
`

// schedule enables weights for each disk by the bfq scheduler ("bfq") or by iocost ("cost"). For "cost off", it sets up
// iocost for the disk, but disables it.
func schedule(m *simcgroup.Machine, how map[string]string) *simcgroup.Machine {
	disks(m)
	numbers := map[string]string{"sda": "8:0", "sdb": "8:16"}
	for name, what := range how {
		file, data := "/sys/fs/cgroup/io.cost.qos", numbers[name]+" enable=1"
		switch what {
		case "bfq":
			file, data = "/sys/block/"+name+"/queue/scheduler", "bfq"
		case "cost off":
			data = numbers[name] + " enable=0"
		}
		if err := m.WriteFile(file, []byte(data)); err != nil {
			panic(err)
		}
	}

	return m
}

func TestWeightsAreSetWhereTheKernelAcceptsThem(t *testing.T) {
	for _, test := range []struct {
		name       string
		machine    *simcgroup.Machine
		heavy, sda map[string]string // the values of these two classes of `weighing`, by file
		// degraded has the degraded classes. effective is true if weights are enabled on any disk.
		degraded  []string
		effective bool
	}{
		{"Under bfq a device has its own weight", schedule(simcgroup.New(), map[string]string{"sda": "bfq"}),
			map[string]string{"io.bfq.weight": "default 400", "io.weight": "default 3940"},
			map[string]string{"io.bfq.weight": "8:0 50"}, nil, true},
		{"With iocost a device has its own converted weight", schedule(simcgroup.New(), map[string]string{"sda": "cost"}),
			map[string]string{"io.bfq.weight": "default 400", "io.weight": "default 3940"},
			map[string]string{"io.weight": "8:0 405"}, nil, true},
		{"The class of a disk is degraded if weights are enabled only on another disk", schedule(simcgroup.New(), map[string]string{"sdb": "bfq"}),
			map[string]string{"io.bfq.weight": "default 400", "io.weight": "default 3940"}, map[string]string{}, []string{"sda"}, true},
		{"Weights have no effect while iocost is disabled", schedule(simcgroup.New(), map[string]string{"sda": "cost off"}),
			map[string]string{"io.bfq.weight": "default 400", "io.weight": "default 3940"},
			map[string]string{"io.weight": "8:0 405"}, []string{"heavy", "sda"}, false},
		{"A kernel without bfq has no file io.bfq.weight", schedule(simcgroup.New(simcgroup.WithoutBFQ()), nil),
			map[string]string{"io.weight": "default 3940"}, map[string]string{}, []string{"heavy", "sda"}, false},
		{"A kernel without iocost has no file io.weight", schedule(simcgroup.New(simcgroup.WithoutIOCost()), nil),
			map[string]string{"io.bfq.weight": "default 400"}, map[string]string{}, []string{"heavy", "sda"}, false},
		{"With neither bfq nor iocost, nothing is written", schedule(simcgroup.New(simcgroup.WithoutIOCost(), simcgroup.WithoutBFQ()), nil),
			map[string]string{}, map[string]string{}, []string{"heavy", "sda"}, false},
		{"In cgroup v1 bfq has files of its own", schedule(simcgroup.NewLegacy(), map[string]string{"sda": "bfq"}),
			map[string]string{"blkio.bfq.weight": "400"}, map[string]string{"blkio.bfq.weight_device": "8:0 50"}, nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, test.machine, classes.ContainerScope).apply(weighing)
			want := map[string]map[string]string{"heavy": test.heavy, "sda": test.sda}
			if diff := cmp.Diff(want, f.backend.Values()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for class := range want {
				f.enforce(container(), "", class)
				f.enforce(container(), class, "")
			}
			f.wantWeightStatus(test.degraded, test.effective)
		})
	}
}

func (f fixture) wantWeightStatus(degraded []string, effective bool) {
	f.t.Helper()
	status := f.backend.Status()
	for _, class := range degraded {
		if reason := status.Degraded[class]; !strings.Contains(reason, "has no effect") || !strings.Contains(reason, "bfq") {
			f.t.Errorf("class %s is degraded because of %q", class, reason)
		}
	}

	if len(status.Degraded) != len(degraded) {
		f.t.Errorf("the degraded classes are %v, want %v", status.Degraded, degraded)
	}

	reason := map[bool]string{true: "SchedulerActs", false: "NoScheduler"}[effective]
	if condition := f.condition("WeightsEffective"); condition.Healthy != effective || condition.Reason != reason {
		f.t.Errorf("the condition is %+v, want the reason %s", condition, reason)
	}
}

func TestLeavingAClassRestoresTheInitialWeights(t *testing.T) {
	f := newFixture(t, bfqOnAll(simcgroup.New()), classes.ContainerScope).apply(everything)
	// Class red has the weight 300, and 500 for sda and sdb.
	f.runtime("", "red")
	f.want(v2Dir+"/io.bfq.weight", "default 300\n8:0 500\n8:16 500\n")

	// Class blue has the weight 200, and 50 for sda. In the range of io.weight, 200 is 1920.
	f.runtime("red", "blue")
	f.enforce(container(), "red", "blue")
	f.want(v2Dir+"/io.bfq.weight", "default 200\n8:0 50\n")
	f.want(v2Dir+"/io.weight", "default 1920\n")

	// In both files, the kernel's initial weight is 100.
	f.runtime("blue", "")
	f.enforce(container(), "blue", "")
	f.want(v2Dir+"/io.bfq.weight", "default 100\n")
	f.want(v2Dir+"/io.weight", "default 100\n")
}

func TestTheStatusSaysWithWhichPodsAWeightIsCompared(t *testing.T) {
	for scope, want := range map[classes.Scope]string{
		classes.ContainerScope: "counts only against other containers of its pod", classes.PodScope: "counts only against pods of the same quality of service",
	} {
		f := newFixture(t, bfqOnAll(disks(simcgroup.New())), scope).apply("Classes: {high-prio: [{Weight: 1000}], low-prio: [{Weight: 10}]}")
		if condition := f.condition("WeightsEffective"); !condition.Limited || !strings.Contains(condition.Message, want) {
			t.Errorf("scope %s: the condition is %+v, want %q", scope, condition, want)
		}
	}
}

func TestThereIsNoConditionAboutWhatNoClassSets(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	for _, kind := range []string{"WeightsEffective", "LatencyEffective", "CostModelsApplied"} {
		if got := f.condition(kind); got.Type != "" {
			t.Errorf("no class has such a value, but there is the condition %+v", got)
		}
	}
}

// TestTheErrorOfALostSchedulerNamesTheDevice: sda has lost bfq after the inspection, so the write of its weight fails.
func TestTheErrorOfALostSchedulerNamesTheDevice(t *testing.T) {
	f := newFixture(t, bfqOnAll(simcgroup.New()), classes.ContainerScope).apply(everything)
	must(t, f.machine.WriteFile("/sys/block/sda/queue/scheduler", []byte("none")))
	err := f.backend.Enforce(t.Context(), container(), "", "blue")
	if !errors.Is(err, syscall.EOPNOTSUPP) || !strings.Contains(err.Error(), "weights are no longer enabled on device 8:0 (sda)") {
		t.Errorf("got %v", err)
	}

	// the values that were written before have been taken back
	f.want(v2Dir+"/io.max", "")
	f.want(v2Dir+"/io.bfq.weight", "default 100\n")
}

const sameForADisk = `
Classes:
  one: [{Weight: 300}, {Devices: [/dev/sda], Weight: 500}]
  two: [{Weight: 200}, {Devices: [/dev/sda], Weight: 500, ThrottleReadBps: 1M}]
  three: [{Weight: 700}]
  four: [{Weight: 800}, {Devices: [/dev/sda], ThrottleReadBps: 1M}]
`

func TestANewDefaultWeightKeepsTheWeightOfADisk(t *testing.T) {
	f := newFixture(t, bfqOnAll(simcgroup.New()), classes.ContainerScope).apply(sameForADisk)
	f.enforce(container(), "", "one")
	f.enforce(container(), "one", "two")
	f.want(v2Dir+"/io.bfq.weight", "default 200\n8:0 500\n")
}

func TestUndoRestoresForeignWeightsOfDisks(t *testing.T) {
	f := newFixture(t, bfqOnAll(simcgroup.New()), classes.ContainerScope).apply(sameForADisk)
	f.enforce(container(), "", "three")
	must(t, f.machine.WriteFile(v2Dir+"/io.bfq.weight", []byte("8:16 70"))) // by another program
	// The plugin writes io.weight after io.max and io.bfq.weight. In the latter, the new default weight then has reset the weight of sdb.
	f.machine.Inject(simcgroup.Fault{Op: "write", File: "io.weight", Err: syscall.EIO})
	if err := f.backend.Enforce(t.Context(), container(), "three", "four"); !errors.Is(err, syscall.EIO) {
		t.Fatalf("the error is %v, want syscall.EIO", err)
	}
	// as before: class three has the default weight 700, and no limit in io.max
	f.want(v2Dir+"/io.bfq.weight", "default 700\n8:16 70\n")
	f.want(v2Dir+"/io.max", "")
}

func TestAnItemWithoutAWeightKeepsTheWeightOfEarlierItems(t *testing.T) {
	f := newFixture(t, bfqOnAll(simcgroup.New()), classes.ContainerScope).apply("Classes: {a: [{Weight: 300}, {}]}")
	f.enforce(container(), "", "a")
	f.want(v2Dir+"/io.bfq.weight", "default 300\n")
}
