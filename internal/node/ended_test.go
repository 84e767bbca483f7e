// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"log/slog"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/blockio"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// ioMachine is a node with a pod on simulated cgroups. The container "one" of the pod requests the class "class-one", and the
// container "two" the class "class-two". The cgroup of a container that ends is removed before the runtime reports the end,
// as with the systemd cgroup driver and with CRI-O.
type ioMachine struct {
	*fixture
	host *simcgroup.Machine
	pod  classes.Holder
}

const podPath = "/kubepods/poduid-a"

// onIOMachine runs a test with a simulated clock.
func onIOMachine(t *testing.T, m *simcgroup.Machine, test func(*testing.T, *ioMachine)) {
	t.Helper()
	m.AddDisk("sda", 8, 0)
	synctest.Test(t, func(t *testing.T) {
		kind := blockio.Kind(ioapply.New(ioapply.Options{FS: m, Tree: treeOf(t, m), Log: slog.New(slog.DiscardHandler)}))
		f := &ioMachine{fixture: newFixtureOf(t, kind), host: m}
		f.pod = pod("a", map[string]string{
			classes.ContainerKeyPrefix + "one": "blockio=class-one", classes.ContainerKeyPrefix + "two": "blockio=class-two",
		})
		f.pod.CgroupsPath, f.pod.PodCgroupsPath = podPath, podPath
		f.restart(t)
		f.Synchronize(nil, nil)
		f.newSandbox("pause")
		test(t, f)
	})
}

func (f *ioMachine) restart(t *testing.T) {
	t.Helper()
	f.fixture.restart(t)
	f.mustConfigure(t, `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/blockio
  blockio: {Classes: {class-one: [], class-two: []}}
`)
}

// newSandbox makes a pause container for the pod. The pause container reads 5 bytes from the disk.
func (f *ioMachine) newSandbox(name string) {
	f.host.AddCgroup(podPath + "/" + name)
	f.read(name, 5)
}

// starts runs a new container, and returns it. The ID of the container is its name.
func (f *ioMachine) starts(t *testing.T, name string) classes.Holder {
	t.Helper()
	f.host.AddCgroup(podPath + "/" + name)
	f.host.AddProcess(podPath+"/"+name, 1)
	started := f.mustRun(t, f.pod, classes.Holder{ID: name, Container: name, CgroupsPath: podPath + "/" + name})
	synctest.Wait() // the pod has been read
	return started
}

// read simulates a container that reads bytes from the disk.
func (f *ioMachine) read(name string, bytes uint64) {
	f.host.Transfer(podPath+"/"+name, "sda", bytes, 0)
}

// exits ends the process of a container, and removes its cgroup. The runtime has not reported the end yet.
func (f *ioMachine) exits(t *testing.T, name string) {
	t.Helper()
	f.host.RemoveProcess(1)
	for _, root := range f.host.Roots() {
		if err := f.host.Remove(root + podPath + "/" + name); err != nil {
			t.Fatal(err)
		}
	}
}

func (f *ioMachine) ends(t *testing.T, name string) {
	t.Helper()
	f.exits(t, name)
	f.Stop(name)
}

// wantRead waits a second, so that the last sample is too old, and compares the bytes that each class has read.
func (f *ioMachine) wantRead(t *testing.T, want map[string]float64) {
	t.Helper()
	<-time.After(time.Second)
	sample, err := f.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	got := map[string]float64{}
	for _, class := range sample.Classes {
		if value := class.Reading[classes.Series{Measure: "fs_reads_bytes_total", Part: "sda"}]; value > 0 {
			got[class.Class] = value
		}
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bytes that the classes have read (-want +got):\n%s", diff)
	}
}

// onCgroupV2 runs a test on a machine with cgroup v2.
func onCgroupV2(t *testing.T, test func(*testing.T, *ioMachine)) {
	t.Helper()
	onIOMachine(t, simcgroup.New(), test)
}

func TestUsageIsCountedAlthoughTheCgroupOfTheContainerIsGone(t *testing.T) {
	onCgroupV2(t, func(t *testing.T, f *ioMachine) {
		f.starts(t, "one")
		f.read("one", 100)
		f.ends(t, "one")
		f.wantRead(t, map[string]float64{"class-one": 100})

		f.starts(t, "one")
		f.read("one", 10)
		f.wantRead(t, map[string]float64{"class-one": 110})
		f.read("one", 20)
		f.ends(t, "one")
		f.wantRead(t, map[string]float64{"class-one": 130})
	})
}

func TestUsageOfOtherContainersIsNotCountedTwiceWhenOneEnds(t *testing.T) {
	onCgroupV2(t, func(t *testing.T, f *ioMachine) {
		f.starts(t, "one")
		f.starts(t, "two")
		f.read("one", 100)
		f.read("two", 1000)
		f.wantRead(t, map[string]float64{"class-one": 100, "class-two": 1000})
		f.read("one", 7)
		f.read("two", 2000)
		f.ends(t, "one")
		f.wantRead(t, map[string]float64{"class-one": 107, "class-two": 3000})
		f.read("two", 4000)
		f.ends(t, "two")
		f.wantRead(t, map[string]float64{"class-one": 107, "class-two": 7000})
	})
}

// TestUsageOfContainersThatEndTogetherIsCountedOnce removes the cgroups of two containers before the runtime reports
// the first end. Only the pod's cgroup then has the sum of their usage. It is counted for the class of the container
// that is reported first.
func TestUsageOfContainersThatEndTogetherIsCountedOnce(t *testing.T) {
	onCgroupV2(t, func(t *testing.T, f *ioMachine) {
		f.starts(t, "one")
		f.starts(t, "two")
		f.read("one", 100)
		f.read("two", 1000)
		f.exits(t, "one")
		f.exits(t, "two")
		f.Stop("two")
		f.Stop("one")
		f.wantRead(t, map[string]float64{"class-two": 1100})
	})
}

// TestUsageIsCountedIfTheReconcilerRunsBeforeTheEndIsReported removes the cgroup of a container before the reconciler runs.
func TestUsageIsCountedIfTheReconcilerRunsBeforeTheEndIsReported(t *testing.T) {
	onCgroupV2(t, func(t *testing.T, f *ioMachine) {
		f.starts(t, "one")
		f.read("one", 100)
		f.exits(t, "one")
		f.Repair(t.Context())
		f.Stop("one")
		f.wantRead(t, map[string]float64{"class-one": 100})
	})
}

// TestUsageOfAPodBeforeTheFirstReadingAfterARestartIsNotCounted restarts the plugin while a container runs.
func TestUsageOfAPodBeforeTheFirstReadingAfterARestartIsNotCounted(t *testing.T) {
	onCgroupV2(t, func(t *testing.T, f *ioMachine) {
		one := f.starts(t, "one")
		f.read("one", 100)
		f.restart(t)
		f.Synchronize([]classes.Holder{f.pod}, []state.Existing{running(f.pod, one)})
		f.wantRead(t, map[string]float64{})
		f.read("one", 10)
		f.ends(t, "one")
		f.wantRead(t, map[string]float64{"class-one": 10})
	})
}

// TestUsageOfAnOldContainerIsNotCountedForANewContainerOfItsPod restarts the plugin while the container "two" runs, and then
// starts "one". The usage of "two" before its first reading is not counted.
func TestUsageOfAnOldContainerIsNotCountedForANewContainerOfItsPod(t *testing.T) {
	onCgroupV2(t, func(t *testing.T, f *ioMachine) {
		two := f.starts(t, "two")
		f.restart(t)
		f.Synchronize([]classes.Holder{f.pod}, []state.Existing{running(f.pod, two)})
		f.starts(t, "one")
		f.read("two", 1000)
		f.wantRead(t, map[string]float64{})
		f.read("one", 10)
		f.ends(t, "one")
		f.wantRead(t, map[string]float64{"class-one": 10})
	})
}

// TestTheUsageOfTheOCIRuntimeIsCountedOnce simulates an OCI runtime that reads from the disk, in the cgroup of a
// container, before it starts the container.
func TestTheUsageOfTheOCIRuntimeIsCountedOnce(t *testing.T) {
	onCgroupV2(t, func(t *testing.T, f *ioMachine) {
		f.host.AddCgroup(podPath + "/one")
		f.read("one", 3)
		f.starts(t, "one")
		f.read("one", 100)
		f.ends(t, "one")
		f.wantRead(t, map[string]float64{"class-one": 103})
	})
}

// TestAContainerThatEndsBeforeTheFirstReadingOfItsPodIsNotCounted restarts the plugin while a container runs.
func TestAContainerThatEndsBeforeTheFirstReadingOfItsPodIsNotCounted(t *testing.T) {
	onCgroupV2(t, func(t *testing.T, f *ioMachine) {
		one := f.starts(t, "one")
		f.read("one", 100)
		f.restart(t)
		f.Synchronize([]classes.Holder{f.pod}, []state.Existing{running(f.pod, one)})
		f.ends(t, "one")
		f.wantRead(t, map[string]float64{})
	})
}

// TestUsageIsNotCountedTwiceForANewSandboxOfAPod ends a pod's sandbox, and makes another one. The cgroup of the pod
// stays, with the usage of the first sandbox.
func TestUsageIsNotCountedTwiceForANewSandboxOfAPod(t *testing.T) {
	onCgroupV2(t, func(t *testing.T, f *ioMachine) {
		f.starts(t, "one")
		f.read("one", 100)
		f.ends(t, "one")
		f.StopPod(f.pod.ID)
		f.pod.ID, f.pod.SandboxID = "sandbox-new", "sandbox-new"
		f.newSandbox("new-pause")
		f.starts(t, "one")
		f.read("one", 20)
		f.ends(t, "one")
		f.wantRead(t, map[string]float64{"class-one": 120})
	})
}

// TestAnUnreadableNeighbourIsNotCountedForAnEndedContainer ends container one while the kernel cannot show the usage of container two. Then
// nothing is counted for container one, because the usage of container two cannot be subtracted from that of the pod.
func TestAnUnreadableNeighbourIsNotCountedForAnEndedContainer(t *testing.T) {
	onCgroupV2(t, func(t *testing.T, f *ioMachine) {
		f.starts(t, "one")
		f.starts(t, "two")
		f.read("one", 100)
		f.read("two", 1000)
		f.host.Inject(simcgroup.Fault{Op: "read", File: "io.stat", Skip: 1, Err: syscall.EIO}) // the pod is read first, and then container two
		f.ends(t, "one")
		f.wantRead(t, map[string]float64{"class-two": 1000})
	})
}

// TestCgroupV1KeepsNothingOfARemovedCgroup shows that a class has only the usage up to the last sample, because the
// pod's counters lose those of a removed cgroup.
func TestCgroupV1KeepsNothingOfARemovedCgroup(t *testing.T) {
	onIOMachine(t, simcgroup.NewLegacy(), func(t *testing.T, f *ioMachine) {
		f.starts(t, "one")
		f.starts(t, "two")
		f.read("one", 100)
		f.read("two", 1000)
		f.wantRead(t, map[string]float64{"class-one": 100, "class-two": 1000})
		f.read("one", 10)
		f.read("two", 5000)
		f.ends(t, "one")
		f.wantRead(t, map[string]float64{"class-one": 100, "class-two": 6000})
	})
}

// TestAContainerThatWasListedWithoutAPIDIsReleased: containerd can list an ending container as running, but without a PID.
// If the runtime has reported a PID of any container, here c-b, a container without a PID and without a cgroup has ended.
// This is still so after c-b has ended.
func TestAContainerThatWasListedWithoutAPIDIsReleased(t *testing.T) {
	f := newFixture(t)
	a, b := pod("a", requesting(cache+"=gold")), pod("b", nil)
	ending, other := f.mustRun(t, a, container("c-a")), f.mustRun(t, b, container("c-b"))

	f.restart(t, func(o *node.Options) { o.HasCgroup = func(h classes.Holder) bool { return h.Container == "" } })
	f.mustConfigure(t, files)
	ending.PID = 0
	f.Synchronize([]classes.Holder{a, b}, []state.Existing{running(a, ending), running(b, other)})
	f.Stop("c-b")
	f.Reconcile(t.Context())
	if used := f.inUse("gold"); used != 0 {
		t.Errorf("%d slots of gold are in use by a container that has ended", used)
	}
}
