// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"errors"
	"log/slog"
	"path"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/iodisks"
	"github.com/qos-nri/qos-nri-plugin/test/iotest"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

const (
	groupPath = "/kubepods/pod1/c1"
	// sda1 is a partition of sda. dm-0 and loop0 count as whole disks.
	throttling = `
Classes:
  slow:
  - Devices: [/dev/sda]
    ThrottleReadBps: 10M
    ThrottleWriteBps: 5M
  slower:
  - Devices: ["/dev/sd?"]
    ThrottleReadBps: 1M
    ThrottleReadIOPS: 100
  free: []
`
	slowLine = "8:0 rbps=10000000 wbps=5000000 riops=max wiops=max"
)

func disks(m *simcgroup.Machine) *simcgroup.Machine {
	m.AddCgroup(groupPath)
	return iotest.AddDisks(m)
}

type fixture struct {
	t       *testing.T
	machine *simcgroup.Machine
	backend *Backend
}

func newFixture(t *testing.T, m *simcgroup.Machine, scope classes.Scope) fixture {
	t.Helper()
	return newFixtureOn(t, m, m, scope, iotest.NewMemory())
}

// newFixtureOn returns a fixture with a memory. `host` is the machine, or wraps the machine.
func newFixtureOn(t *testing.T, host iodisks.FS, m *simcgroup.Machine, scope classes.Scope, saved *iotest.Memory) fixture {
	t.Helper()
	tree, err := cgroup.Detect(m)
	must(t, err)
	kind := Kind(ioapply.New(ioapply.Options{FS: host, Tree: tree, Log: slog.New(slog.DiscardHandler)}))
	f := fixture{t, m, kind.New("k8s.io/blockio", scope).(*Backend)}
	f.remember(saved)
	return f
}

// must fails the test if there is an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func parseConfig(section string) (classes.BackendConfig, error) {
	return classes.ParseSection(classes.File{Data: []byte(section)}, ParseConfig)
}

func (f fixture) parse(section string) classes.BackendConfig {
	f.t.Helper()
	config, err := parseConfig(section)
	must(f.t, err)
	return config
}

func (f fixture) apply(section string) fixture {
	f.t.Helper()
	must(f.t, f.backend.Apply(f.t.Context(), f.parse(section)))
	return f
}

func container() classes.Holder {
	return classes.Holder{PodName: "pod", PodUID: "1", ID: "c1", Container: "main", CgroupsPath: groupPath}
}

func pod() classes.Holder {
	return classes.Holder{PodName: "pod", PodUID: "1", CgroupsPath: path.Dir(groupPath)}
}

func (f fixture) enforce(target classes.Holder, from, to string) {
	f.t.Helper()
	must(f.t, f.backend.Enforce(f.t.Context(), target, from, to))
}

// runtime simulates the container runtime, which writes the adjusted values when it creates or updates a container.
func (f fixture) runtime(from, to string) {
	f.t.Helper()
	adjustment, err := f.backend.Adjust(container(), from, to)
	must(f.t, err)
	if from != "" {
		f.backend.Record(container(), to)
	}
	must(f.t, f.machine.SetUnified(groupPath, adjustment.Unified()))
	f.backend.IsStale(container(), to, adjustment.Unified())
}

func (f fixture) want(file, text string) {
	f.t.Helper()
	data, err := f.machine.ReadFile(file)
	must(f.t, err)
	if diff := cmp.Diff(text, string(data)); diff != "" {
		f.t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

const (
	v2Dir = "/sys/fs/cgroup" + groupPath
	v1Dir = "/sys/fs/cgroup/blkio" + groupPath
)

// TestAdjust checks which cgroup values the runtime must set when a holder changes from one class to another.
func TestAdjust(t *testing.T) {
	for _, test := range []struct {
		name, from, to string
		machine        *simcgroup.Machine
		scope          classes.Scope
		want           map[string]string
	}{
		{"A new container gets one line for each disk", "", "slower", simcgroup.New(), classes.ContainerScope, map[string]string{
			iocgroup.IOMax: "8:0 rbps=1000000 wbps=max riops=100 wiops=max\n8:16 rbps=1000000 wbps=max riops=100 wiops=max"}},
		{"A change clears the disks that the new class does not limit", "slower", "slow", simcgroup.New(), classes.ContainerScope,
			map[string]string{iocgroup.IOMax: slowLine + "\n8:16 rbps=max wbps=max riops=max wiops=max"}},
		{"A change to the system default clears everything", "slow", "", simcgroup.New(), classes.ContainerScope,
			map[string]string{iocgroup.IOMax: "8:0 rbps=max wbps=max riops=max wiops=max"}},
		{"A class without effect sets nothing", "", "free", simcgroup.New(), classes.ContainerScope, nil},
		{"Pods are not set by the runtime", "", "slow", simcgroup.New(), classes.PodScope, nil},
		{"Cgroup v1 is not set by the runtime", "", "slow", simcgroup.NewLegacy(), classes.ContainerScope, nil},
		{"A hybrid machine is not set by the runtime", "", "slow", simcgroup.NewHybrid(), classes.ContainerScope, nil},
		{"A hybrid machine with the io controller in v2 is not set by the runtime", "", "slow", simcgroup.NewHybridIO(), classes.ContainerScope, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, disks(test.machine), test.scope).apply(throttling)
			got, err := f.backend.Adjust(classes.Holder{}, test.from, test.to)
			must(t, err)
			if diff := cmp.Diff(test.want, got.Unified(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheErrorOfAnUnknownClassListsTheClasses(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	const want = `unknown QoS class "fast"; available: free, slow, slower`
	_, err := f.backend.Adjust(classes.Holder{}, "", "fast")
	if !errors.Is(err, classes.ErrUnknownClass) || err.Error() != want {
		t.Errorf("Adjust: %v, want %s", err, want)
	}
	if err := f.backend.Enforce(t.Context(), container(), "", "fast"); !errors.Is(err, classes.ErrUnknownClass) {
		t.Errorf("Enforce: %v", err)
	}
}

func TestBeforeAConfigurationIsAppliedThereAreNoClasses(t *testing.T) {
	_, err := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).backend.Adjust(classes.Holder{}, "", "fast")
	if err == nil || err.Error() != `unknown QoS class "fast"; available: none` {
		t.Errorf("got %v", err)
	}
}

func TestValuesThatTheRuntimeSetAreReadBackAndNotWrittenAgain(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	const slowerLimits = " rbps=1000000 wbps=max riops=100 wiops=max\n"
	for _, change := range []struct{ from, to, ioMax string }{
		{"", "slower", "8:16" + slowerLimits + "8:0" + slowerLimits}, {"slower", "slow", slowLine + "\n"}, {"slow", "", ""},
	} {
		f.runtime(change.from, change.to)
		f.machine.Writes() // forgets the writes so far
		f.enforce(container(), change.from, change.to)
		if writes := f.machine.Writes(); len(writes) > 0 {
			t.Errorf("from %q to %q, Enforce made the writes %v, want none", change.from, change.to, writes)
		}
		f.want(v2Dir+"/io.max", change.ioMax)
	}
}

func TestValuesThatTheRuntimeDidNotSetAreWritten(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	f.enforce(container(), "", "slow")
	f.want(v2Dir+"/io.max", slowLine+"\n")
}

func TestForeignLimitsStay(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	const foreign = "253:0 rbps=7000 wbps=max riops=max wiops=max"
	must(t, f.machine.WriteFile(v2Dir+"/io.max", []byte(foreign)))
	f.enforce(container(), "", "slow")
	f.want(v2Dir+"/io.max", slowLine+"\n"+foreign+"\n")
	f.enforce(container(), "slow", "")
	f.want(v2Dir+"/io.max", foreign+"\n")
}

func TestPodScopeSetsTheCgroupOfThePod(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.PodScope).apply(throttling)
	f.enforce(pod(), "", "slow")
	f.want("/sys/fs/cgroup/kubepods/pod1/io.max", slowLine+"\n")
	f.want(v2Dir+"/io.max", "")
	f.enforce(pod(), "slow", "")
	f.want("/sys/fs/cgroup/kubepods/pod1/io.max", "")
}

func TestPodScopeIsUnavailableInCgroupV1(t *testing.T) {
	f := newFixture(t, disks(simcgroup.NewLegacy()), classes.PodScope)
	err := f.backend.Check(t.Context(), f.parse(throttling))
	var unavailable *classes.Unavailable
	if !errors.As(err, &unavailable) || unavailable.Reason != "NoHierarchyInV1" {
		t.Errorf("got %v", err)
	}
}

func TestThePluginWritesTheLimitsOfCgroupV1(t *testing.T) {
	for name, machine := range map[string]*simcgroup.Machine{"v1": simcgroup.NewLegacy(), "hybrid": simcgroup.NewHybrid()} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, disks(machine), classes.ContainerScope).apply(throttling)
			f.enforce(container(), "", "slower")
			f.want(v1Dir+"/blkio.throttle.read_bps_device", "8:16 1000000\n8:0 1000000\n")
			f.want(v1Dir+"/blkio.throttle.read_iops_device", "8:16 100\n8:0 100\n")
			f.enforce(container(), "slower", "slow")
			f.want(v1Dir+"/blkio.throttle.read_bps_device", "8:0 10000000\n")
			f.want(v1Dir+"/blkio.throttle.write_bps_device", "8:0 5000000\n")
			f.want(v1Dir+"/blkio.throttle.read_iops_device", "")
			f.enforce(container(), "slow", "")
			f.want(v1Dir+"/blkio.throttle.read_bps_device", "")
			f.want(v1Dir+"/blkio.throttle.write_bps_device", "")
		})
	}
}

func TestThePluginWritesTheLimitsOfAHybridMachineWithIOInV2(t *testing.T) {
	f := newFixture(t, disks(simcgroup.NewHybridIO()), classes.ContainerScope).apply(throttling)
	f.enforce(container(), "", "slow")
	f.want("/sys/fs/cgroup/unified"+groupPath+"/io.max", slowLine+"\n")
}

func TestAMachineWithoutCgroupsIsUnavailable(t *testing.T) {
	f := newFixture(t, simcgroup.NewBare(), classes.ContainerScope)
	err := f.backend.Check(t.Context(), f.parse(throttling))
	var unavailable *classes.Unavailable
	if !errors.As(err, &unavailable) || unavailable.Reason != "NoIOController" {
		t.Fatalf("got %v", err)
	}
	if got := f.backend.Status().Unavailable; got != unavailable {
		t.Errorf("the status has the error %v, want the error %v of Check", got, unavailable)
	}
}

func TestTheErrorOfADisabledIOControllerNamesTheAncestor(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	must(t, f.machine.WriteFile("/sys/fs/cgroup/kubepods/pod1/cgroup.subtree_control", []byte("-io")))
	err := f.backend.Enforce(t.Context(), container(), "", "slow")
	const want = `read the values of class "slow" back: the io controller is not enabled in /sys/fs/cgroup/kubepods/pod1/c1: ` +
		`/sys/fs/cgroup/kubepods/pod1/cgroup.subtree_control lacks io; run: echo +io > /sys/fs/cgroup/kubepods/pod1/cgroup.subtree_control`
	if !errors.Is(err, iocgroup.ErrNotEnabled) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	f.enforce(container(), "slow", "") // the cgroup has no values to clear
}

func TestTheReportedValuesOfAClassAreThoseOfItsFiles(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	want := map[string]map[string]string{"free": {}, "slow": {iocgroup.IOMax: slowLine},
		"slower": {iocgroup.IOMax: "8:0 rbps=1000000 wbps=max riops=100 wiops=max\n8:16 rbps=1000000 wbps=max riops=100 wiops=max"}}
	if diff := cmp.Diff(want, f.backend.Values()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// remember makes a backend use a memory instead of the one that it has.
func (f fixture) remember(m *iotest.Memory) {
	f.t.Helper()
	f.backend.cgroups.Records = ioapply.NewRecords(f.backend.cgroups.Log)
	f.backend.cgroups.Costs = ioapply.NewCosts(f.backend.cgroups.FS)
	must(f.t, f.backend.Remember(m))
}
