// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/iotest"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

const (
	modelFile = "/sys/fs/cgroup/io.cost.model"
	qosFile   = "/sys/fs/cgroup/io.cost.qos"

	// ofSDA is a file of calibrate-io.
	ofSDA = `
device: {path: /dev/sda, model: Fast SSD, number: "8:0", size: 1000}
measured: {time: "2026-11-28T15:00:00Z", writes: true}
model: {rbps: 16Mi, rseqiops: 400, rrandiops: 300, wbps: 16000000, wseqiops: 200, wrandiops: 100}
qos: {rpct: 95, rlat: 5000, wpct: 95.5, wlat: 10000, min: 60, max: 100}
`
	weighed = "Classes: {heavy: [{Weight: 400}], sda: [{Devices: [/dev/sda], Weight: 50}]}\n"
	// fileModel and fileQoS are the parameters of this file, as the kernel shows them.
	fileModel = "ctrl=user model=linear rbps=16777216 rseqiops=400 rrandiops=300 wbps=16000000 wseqiops=200 wrandiops=100\n"
	fileQoS   = "enable=1 ctrl=user rpct=95.00 rlat=5000 wpct=95.50 wlat=10000 min=60.00 max=100.00\n"

	// chosenModel and chosenQoS are what the kernel has chosen for sda.
	chosenModel = "ctrl=auto model=linear rbps=174019176 rseqiops=41708 rrandiops=370 wbps=178075866 wseqiops=42705 wrandiops=378\n"
	chosenQoS   = "ctrl=auto rpct=0.00 rlat=250000 wpct=0.00 wlat=250000 min=1.00 max=10000.00\n"
	// ownModel and ownQoS are what an administrator has set for a disk.
	ownModel = "ctrl=user model=linear rbps=5 rseqiops=5 rrandiops=5 wbps=5 wseqiops=5 wrandiops=5\n"
	ownQoS   = "enable=0 ctrl=user rpct=50.00 rlat=7 wpct=50.00 wlat=7 min=50.00 max=150.00\n"
)

// ofDisks returns the file `ofSDA` with another path. It has no model name, because only sda reports one.
func ofDisks(path string) string {
	return strings.NewReplacer("/dev/sda", path, "model: Fast SSD,", "").Replace(ofSDA)
}

// inline returns the classes `weighed` with the content of a file of calibrate-io.
func inline(file string) string {
	return weighed + "CostModels:\n-" + strings.ReplaceAll(file, "\n", "\n  ")
}

// costed is a machine on which an administrator has set up iocost for sdb.
func costed(t *testing.T) *simcgroup.Machine {
	t.Helper()
	m := disks(simcgroup.New())
	m.AddFile("/sys/devices/virtual/block/sda/device/model", "Fast SSD        \n")
	write(t, m, modelFile, "8:16 "+ownModel)
	write(t, m, qosFile, "8:16 "+ownQoS)
	return m
}

func write(t *testing.T, m *simcgroup.Machine, file, data string) {
	t.Helper()
	must(t, m.WriteFile(file, []byte(data)))
}

// wantCosts checks the cost model and the QoS parameters of sda ("" if it has none), and that sdb has those of the administrator.
func (f fixture) wantCosts(model, qos string) {
	f.t.Helper()
	prefix := "8:0 "
	if model == "" {
		prefix = ""
	}
	f.want(modelFile, prefix+model+"8:16 "+ownModel)
	f.want(qosFile, prefix+qos+"8:16 "+ownQoS)
}

// TestACostModelEnablesWeights has a class file that names the file of calibrate-io for sda. Only then can a class set the
// weight of sda in io.weight.
func TestACostModelEnablesWeights(t *testing.T) {
	f := newFixture(t, costed(t), classes.ContainerScope)
	config, err := classes.Parse([]classes.File{{Name: "a.yaml", Data: []byte(strings.Replace(byFile,
		"{configFile: /etc/blockio.yaml}", "{"+strings.TrimSpace(weighed)+", CostModels: [/etc/sda.yaml]}", 1))}},
		[]classes.Kind{Kind(f.backend.cgroups)}, func(name string) ([]byte, error) {
			if name != "/etc/sda.yaml" {
				t.Errorf("%s was read", name)
			}
			return []byte(ofSDA), nil
		})
	must(t, err)
	must(t, f.backend.Apply(t.Context(), config.Resources[0].Backend))
	f.wantCosts(fileModel, fileQoS)

	// The weights of the classes are 400 and 50. In the range of io.weight, these are 3940 and 405.
	want := map[string]map[string]string{
		"heavy": {"io.bfq.weight": "default 400", "io.weight": "default 3940"}, "sda": {"io.weight": "8:0 405"}}
	if diff := cmp.Diff(want, f.backend.Values()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f.enforce(container(), "", "sda")
	f.wantWeightStatus(nil, true)
}

func TestACostModelThatAnotherProgramDisablesIsRepaired(t *testing.T) {
	f := newFixture(t, costed(t), classes.ContainerScope).apply(inline(ofSDA))
	write(t, f.machine, qosFile, "8:0 enable=0")
	f.wantDrift("the cost model of 8:0 (sda) was not in force")
	f.wantCosts(fileModel, fileQoS)
}

func TestAnUnchangedCostModelIsNotWrittenAgain(t *testing.T) {
	f := newFixture(t, costed(t), classes.ContainerScope).apply(inline(ofSDA))
	f.machine.Writes() // forgets the writes so far
	f.apply(inline(ofSDA))
	f.wantNoDrift()
	if writes := f.machine.Writes(); len(writes) > 0 {
		t.Errorf("the plugin made the writes %v, want none", writes)
	}
}

func TestTheCostModelOfAnAdministratorIsRestoredWhenTheResourceIsRemoved(t *testing.T) {
	f := newFixture(t, costed(t), classes.ContainerScope)
	f.apply(inline(ofDisks("/dev/sdb"))) // the disk that the administrator has set up
	f.want(modelFile, "8:16 "+fileModel)
	must(t, f.backend.Withdraw(t.Context()))
	f.want(modelFile, "8:16 "+ownModel)
	f.want(qosFile, "8:16 "+ownQoS)
}

// TestACostModelThatAnAdministratorSetsLaterIsKept lets an administrator replace the plugin's model of sda. Then the class files no longer
// have a model. The plugin restores a model and its QoS parameters only together, so the QoS parameters that it has set stay, too.
func TestACostModelThatAnAdministratorSetsLaterIsKept(t *testing.T) {
	f := newFixture(t, costed(t), classes.ContainerScope).apply(inline(ofSDA))
	write(t, f.machine, modelFile, "8:0 "+ownModel)
	f.apply(weighed)
	f.wantCosts(ownModel, fileQoS)
}

// TestARemovedCostModelIsDisabled: iocost is then disabled for sda, as before the plugin. The kernel lists the parameters that it
// has chosen itself.
func TestARemovedCostModelIsDisabled(t *testing.T) {
	for name, remove := range map[string]func(f, restarted fixture){
		"while the plugin runs":               func(f, _ fixture) { f.apply(weighed) },
		"during a restart":                    func(_, restarted fixture) { restarted.apply(weighed) },
		"with the resource, during a restart": func(_, restarted fixture) { must(t, restarted.backend.Withdraw(t.Context())) },
	} {
		t.Run(name, func(t *testing.T) {
			m, memory := costed(t), iotest.NewMemory()
			f := process(t, m, classes.ContainerScope, inline(ofSDA), memory)
			remove(f, newFixtureOn(t, m, m, classes.ContainerScope, memory))
			f.wantCosts(chosenModel, "enable=0 "+chosenQoS)
		})
	}
}

// TestAPluginThatWasKilledLeavesNoCostModelEnabled kills the plugin before each of the two writes with which it sets or
// restores a cost model. The next process has no cost model in its configuration.
func TestAPluginThatWasKilledLeavesNoCostModelEnabled(t *testing.T) {
	for _, change := range []struct{ name, before, to string }{{"sets", weighed, inline(ofSDA)}, {"restores", inline(ofSDA), weighed}} {
		for writes := range 2 {
			t.Run(fmt.Sprintf("%s it, killed after %d writes", change.name, writes), func(t *testing.T) {
				m, saved, left := costed(t), iotest.NewMemory(), -1
				f := newFixtureOn(t, iotest.Mortal{Machine: m, Left: &left}, m, classes.ContainerScope, saved).apply(change.before)
				left = writes
				if iotest.Survives(func() { f.apply(change.to) }) {
					t.Fatal("the process was not killed")
				}

				process(t, m, classes.ContainerScope, weighed, saved)
				qos, err := m.ReadFile(qosFile)
				if err != nil || strings.Contains(string(qos), "enable=1") {
					t.Errorf("io.cost.qos is %s (%v)", qos, err)
				}
				for key, data := range saved.Data {
					if strings.HasPrefix(key, "iocost") {
						t.Errorf("%s is still recorded: %s", key, data)
					}
				}
			})
		}
	}
}

func TestTheCostModelOfADiskThatIsGoneIsForgotten(t *testing.T) {
	m, memory := costed(t), iotest.NewMemory()
	f := process(t, m, classes.ContainerScope, inline(ofSDA), memory)
	m.RemoveDisk("sda")
	if _, err := f.backend.Repair(t.Context()); err != nil {
		t.Error(err)
	}
	f.apply(weighed)
	for key, data := range memory.Data {
		if strings.HasPrefix(key, "iocost") {
			t.Errorf("%s is still recorded: %s", key, data)
		}
	}
}

// TestAfterAnErrorEachCostModelIsAsBefore expects that iocost is disabled for sda, as before. After the writes of the undo, the
// kernel also lists the parameters that it has chosen for sda.
func TestAfterAnErrorEachCostModelIsAsBefore(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault simcgroup.Fault
	}{
		{"the kernel refuses the model", simcgroup.Fault{Op: "write", File: "io.cost.model", Err: syscall.EOPNOTSUPP}},
		{"the kernel refuses to enable iocost", simcgroup.Fault{Op: "write", File: "io.cost.qos", Err: syscall.EINVAL}},
		{"the kernel refuses the second disk", simcgroup.Fault{Op: "write", File: "io.cost.model", Skip: 1, Err: syscall.EINVAL}},
		{"the write has no effect", simcgroup.Fault{Op: "write", File: "io.cost.qos"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, costed(t), classes.ContainerScope).apply(weighed)
			f.machine.Inject(test.fault)
			// the file is now for sda and sdb
			both := inline(ofDisks(`"/dev/sd[ab]"`))
			if err := f.backend.Apply(t.Context(), f.parse(both)); err == nil {
				t.Fatal("Apply reports no error")
			}
			f.wantCosts(chosenModel, "enable=0 "+chosenQoS)
		})
	}
}

func TestTheConditionSaysWhyACostModelIsNotApplied(t *testing.T) {
	other := costed(t)
	other.AddFile("/sys/devices/virtual/block/sda/device/model", "Slow HDD\n")
	for _, test := range []struct {
		name    string
		machine *simcgroup.Machine
		file    string
		want    string
	}{
		{"another disk has the path", other, ofSDA,
			"the cost model for /dev/sda was measured on model Fast SSD, but sda (8:0) is model Slow HDD; measure it again with calibrate-io"},
		{"no disk has the path", costed(t), strings.Replace(ofSDA, "/dev/sda", "/dev/sdz", 1), "the cost model for /dev/sdz matches no block device"},
		{"the disk has no queue", costed(t), ofDisks("/dev/dm-0"),
			"the cost model for /dev/dm-0 has no effect: dm-0 (253:0) has no request queue; name the disks below it"},
		{"the kernel has no iocost", disks(simcgroup.New(simcgroup.WithoutIOCost())), ofSDA,
			"the cost model for /dev/sda has no effect: this kernel has no iocost; boot a kernel with CONFIG_BLK_CGROUP_IOCOST"},
		{"in cgroup v1", disks(simcgroup.NewLegacy()), ofSDA,
			"the cost model for /dev/sda has no effect: cgroup v1 has no iocost; use cgroup v2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, test.machine, classes.ContainerScope).apply(inline(test.file))
			if condition := f.condition("CostModelsApplied"); condition.Healthy || condition.Message != test.want {
				t.Errorf("the condition is %+v, want %s", condition, test.want)
			}
		})
	}
}

// TestNoConditionIsReportedForAPatternThatMatchesNoDisk: a cost model with a pattern is for all nodes, also for those
// without such a disk.
func TestNoConditionIsReportedForAPatternThatMatchesNoDisk(t *testing.T) {
	for name, file := range map[string]string{
		"no disk with this path":                     strings.Replace(ofSDA, "/dev/sda", `"/dev/nvme*"`, 1),
		"only disks of another model with this path": strings.NewReplacer("/dev/sda", `"/dev/sd*"`, "Fast SSD", "Other").Replace(ofSDA),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, costed(t), classes.ContainerScope).apply(inline(file))
			if condition := f.condition("CostModelsApplied"); condition.Type != "" {
				t.Errorf("the condition is %+v, want none", condition)
			}
			f.wantCosts("", "")
		})
	}
}

func TestProblemsOfACostModelNameTheField(t *testing.T) {
	for _, test := range []struct{ name, file, want string }{
		{"no values for writes", strings.Replace(ofSDA, ", wbps: 16000000", "", 1),
			"line 6: CostModels[0].model: wbps is missing; measure it with calibrate-io --write or --directory"},
		{"no device", strings.Replace(ofSDA, "path: /dev/sda, ", "", 1), "line 4: CostModels[0].device: path is missing"},
		{"a speed of zero", strings.Replace(ofSDA, "rseqiops: 400", "rseqiops: 0", 1), `line 6: CostModels[0].model.rseqiops: "0" is too small; the minimum is 1`},
		{"more than 100 percent", strings.Replace(ofSDA, "wpct: 95.5", "wpct: 101", 1), `line 7: CostModels[0].qos.wpct: "101" is not a number of percent between 0 and 100`},
		{"a latency with a unit", strings.Replace(ofSDA, "rlat: 5000", "rlat: 5ms", 1),
			`line 7: CostModels[0].qos.rlat: "5ms" is not a number of microseconds between 0 and 2147483647`},
		{"a minimum above the maximum", strings.Replace(ofSDA, "min: 60", "min: 101", 1), "line 7: CostModels[0].qos.min: 101 is more than max"},
		{"no maximum", strings.Replace(ofSDA, ", max: 100", "", 1), "line 7: CostModels[0].qos: max is missing"},
		{"an unknown field", strings.Replace(ofSDA, "qos:", "quality:", 1), "line 4: CostModels[0]: qos is missing\n" +
			"line 7: CostModels[0].quality: unknown field; the known fields are device, measured, model, qos"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := parseConfig(inline(test.file)); err == nil || err.Error() != test.want {
				t.Errorf("got\n%v\nwant\n%s", err, test.want)
			}
		})
	}
}

func TestOnlyOneResourceHasCostModels(t *testing.T) {
	f := newFixture(t, costed(t), classes.ContainerScope)
	section := "{CostModels: [/etc/sda.yaml]}"
	text := strings.Replace(byFile, "{configFile: /etc/blockio.yaml}", section, 1) +
		"- {name: vendor.example/pods, scope: pod, blockio: " + section + "}\n"
	_, err := classes.Parse([]classes.File{{Name: "a.yaml", Data: []byte(text)}}, []classes.Kind{Kind(f.backend.cgroups)},
		func(string) ([]byte, error) { return []byte(ofSDA), nil })
	const want = "a.yaml:7: resources[1].blockio: has cost models, and so does k8s.io/blockio at a.yaml:5; let only one resource have them"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
