// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeio

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/blockio"
	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/pkg/iodisks"
	"github.com/qos-nri/qos-nri-plugin/test/iotest"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

const (
	podMax        = "/sys/fs/cgroup/kubepods/pod1/io.max"
	volumeSection = "classes: {silver: {maxReadBps: 10M, maxWriteBps: 5M}, gold: {maxReadBps: 20M, maxReadIops: 500}, any: {maxReadBps: 1M, sharedDisk: limit}}"
	silverLimits  = "rbps=10000000 wbps=5000000 riops=max wiops=max\n"
)

// volumes is the fixture for a pod with two containers that have volumes. It has a backend of pod scope and a backend of
// volume scope. Both set limits in the pod's cgroup.
type volumes struct {
	t       *testing.T
	machine *simcgroup.Machine
	cgroups *ioapply.Cgroups
	// backend is that of the class of the pod, and volume that of the classes of its volumes.
	backend, volume classes.Backend
	holdings        []classes.Holding
}

// must fails the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newVolumes(t *testing.T, m *simcgroup.Machine) *volumes {
	t.Helper()
	return newVolumesOn(t, m, m, slog.DiscardHandler)
}

// newVolumesOn works like newVolumes, but the backends use the parameter `host`. It wraps the machine `m`, e.g. to count the reads.
func newVolumesOn(t *testing.T, host iodisks.FS, m *simcgroup.Machine, log slog.Handler) *volumes {
	t.Helper()
	tree, err := cgroup.Detect(m)
	must(t, err)
	cgroups := ioapply.New(ioapply.Options{FS: host, Tree: tree, Log: slog.New(log)})
	v := &volumes{
		t: t, machine: m, cgroups: cgroups,
		backend: blockio.Kind(cgroups).New("pod-blockio", classes.PodScope), volume: Kind(cgroups).New("volume-io", classes.VolumeScope),
	}
	v.volume.(classes.Sharer).ShareWith(func(string) []classes.Holding { return v.holdings })
	v.remember(iotest.NewMemory())
	v.configure(volumeSection)
	return v
}

func (v *volumes) configure(section string) { v.applyTo(v.volume, section, ParseConfig) }

// apply configures the classes of pods.
func (v *volumes) apply(section string) { v.applyTo(v.backend, section, blockio.ParseConfig) }

func (v *volumes) applyTo(backend classes.Backend, section string, parse func(*classes.Field) classes.BackendConfig) {
	v.t.Helper()
	config, err := classes.ParseSection(classes.File{Data: []byte(section)}, parse)
	if err == nil {
		err = backend.Apply(v.t.Context(), config)
	}
	must(v.t, err)
}

// enforce enforces a class of a pod.
func (v *volumes) enforce(pod classes.Holder, from, to string) {
	v.t.Helper()
	must(v.t, v.backend.Enforce(v.t.Context(), pod, from, to))
}

// remember makes the backends use a memory instead of the one that they have.
func (v *volumes) remember(m *iotest.Memory) {
	v.t.Helper()
	v.cgroups.Records = ioapply.NewRecords(v.cgroups.Log)
	must(v.t, v.volume.(classes.Rememberer).Remember(m))
}

func (v *volumes) want(file, text string) {
	v.t.Helper()
	data, err := v.machine.ReadFile(file)
	must(v.t, err)
	if diff := cmp.Diff(text, string(data)); diff != "" {
		v.t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func pod() classes.Holder {
	return classes.Holder{PodName: "pod", PodUID: "1", CgroupsPath: "/kubepods/pod1"}
}

// disks adds disks and a cgroup to a machine.
func disks(m *simcgroup.Machine) *simcgroup.Machine {
	m.AddCgroup("/kubepods/pod1/c1")
	return iotest.AddDisks(m)
}

// mounted is a machine whose root filesystem is on a partition of sda, with more lines of mountinfo.
func mounted(lines ...string) *simcgroup.Machine {
	return iotest.Mount(disks(simcgroup.New()), lines...)
}

// hold records the class of a volume, as the ledger does.
func (v *volumes) hold(pid int, path, class string) classes.Holder {
	container := fmt.Sprint("c", pid)
	h := classes.Holder{
		ID: classes.VolumeID(container, path), ContainerID: container, PodName: "pod", PodUID: "1", Container: "main", Volume: path, PID: pid,
		CgroupsPath: "/kubepods/pod1",
	}
	v.release(h.ID)
	v.holdings = append(v.holdings, classes.Holding{Holder: h, Assignments: []classes.Assignment{{Resource: "volume-io", Class: class}}})
	return h
}

// holdPod records the pod of the volumes, without a class.
func (v *volumes) holdPod() {
	v.holdings = append(v.holdings, classes.Holding{Holder: classes.Holder{ID: "sandbox", PodUID: "1", CgroupsPath: "/kubepods/pod1"}})
}

func (v *volumes) release(id string) {
	var rest []classes.Holding
	for _, h := range v.holdings {
		if h.ID != id {
			rest = append(rest, h)
		}
	}
	v.holdings = rest
}

// start enforces the class of a volume of a container that starts.
func (v *volumes) start(pid int, path, class string) error {
	return v.volume.Enforce(v.t.Context(), v.hold(pid, path, class), class, class)
}

func (v *volumes) mustStart(pid int, path, class string) {
	v.t.Helper()
	must(v.t, v.start(pid, path, class))
}

// wantObserved checks the observed class of a volume.
func (v *volumes) wantObserved(pid int, path, desired, want string) {
	v.t.Helper()
	seen, err := v.volume.Observe(v.t.Context(), v.hold(pid, path, desired), desired)
	if err != nil || !seen.Known || seen.Class != want {
		v.t.Errorf("observed %+v, %v; want %q", seen, err, want)
	}
}

func (v *volumes) repair() {
	v.t.Helper()
	if drift, err := v.volume.Repair(v.t.Context()); err != nil || len(drift.Found) > 0 {
		v.t.Errorf("Repair returns %+v, %v, want no drift", drift, err)
	}
}

// withMounts is a machine whose processes 10 and 11, of two containers, have these mounts.
func withMounts(lines ...string) *simcgroup.Machine {
	m := mounted()
	m.AddFile("/proc/10/mountinfo", strings.Join(lines, "\n")+"\n")
	m.AddFile("/proc/11/mountinfo", strings.Join(lines, "\n")+"\n")
	return m
}
