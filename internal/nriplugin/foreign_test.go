// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/shell"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
	"github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// theirs is a container ID, and the name of a group that runc creates. runc names a group after the container if the
// container's spec has schemata but no group.
const theirs = "4f1d6a0c2b9e8d7f6a5b4c3d2e1f00112233445566778899aabbccddeeff0011"

// populate creates groups of other programs: an exclusive group, a group without threads, a group that runc made for a
// container, and a group in which runc monitors a container.
func populate(t *testing.T, m *sim.Machine) {
	t.Helper()
	write := func(file, text string) {
		t.Helper()
		must(t, m.WriteFile(resctrl.MountPoint+"/"+file, []byte(text)))
	}

	for _, group := range []string{"/alone", "/idle", "/" + theirs, "/" + theirs + "/mon_groups/m"} {
		must(t, m.Mkdir(resctrl.MountPoint+group))
	}

	write("schemata", "L3:0=1ff;1=1ff\nL2:0=7ffff;1=7ffff\n")
	write(theirs+"/schemata", "L3:0=3;1=3\nL2:0=3ff;1=3ff\n")
	write("idle/schemata", "L3:0=3;1=3\nL2:0=3ff;1=3ff\n")
	write("alone/schemata", "L3:0=200;1=200\nL2:0=80000;1=80000\n")
	write("alone/mode", "exclusive\n")
	for i, group := range []string{"alone", theirs, theirs + "/mon_groups/m", ""} {
		m.Resctrl().AddTask(50+i, group)
	}

	must(t, m.MakePodCgroup("/kubepods/podm"))

	watched := nriruntime.Spec{ID: "monitored", CgroupsPath: "/kubepods/podm/monitored", Monitoring: true}
	if _, err := m.Create(t.Context(), watched); err != nil {
		t.Fatal(err)
	}
}

// withSharedMask returns class files whose partition "shared" has this L3 bit mask. The foreign group "alone" has the mode exclusive and the
// L3 bit 0x200. No other bit mask in these files overlaps this group.
func withSharedMask(mask string) string {
	return strings.NewReplacer(`exclusive: {l3Allocation: "50%"`, `exclusive: {l2Allocation: "0x3ff", l3Allocation: "0x3f"`,
		`shared: {l3Allocation: "50%"`, `shared: {l2Allocation: "0x7fc00", l3Allocation: "`+mask+`"`).Replace(machineFiles)
}

func TestForeignGroupsAreNeverChanged(t *testing.T) {
	m := newMachine(simcgroup.New())
	populate(t, m)
	r := newMachineRigOn(t, m, withSharedMask("0x1c0"), nriruntime.Options{})
	r.world.ForeignFiles = []string{resctrl.MountPoint + "/mon_groups/monitored/tasks"}
	for _, file := range r.world.ForeignFiles {
		text, err := r.host.ReadFile(file)
		must(t, err)
		r.world.Before[file] = string(text)
	}

	id := r.mustRun(t, r.pod(t, "a", "rdt=gold"))
	r.world.Hold(t)

	t.Run("a class that overlaps an exclusive group is refused, and the error names the group", func(t *testing.T) {
		err := r.configure(t, withSharedMask("0x3c0")) // includes the bit 0x200 of the exclusive group
		if !errors.Is(err, rdt.ErrExclusive) || !strings.Contains(err.Error(), "overlaps group alone, whose mode is exclusive") {
			t.Errorf("error is %v, want ErrExclusive with the name of the group", err)
		}
		r.mustStop(t, r.mustRun(t, r.pod(t, "b", "rdt=gold")))
		r.world.Hold(t)
	})
	t.Run("other masks and classes", func(t *testing.T) {
		for _, text := range []string{withSharedMask("0xc0"), strings.ReplaceAll(withSharedMask("0x1c0"), "gold", "platinum"), withSharedMask("0x1c0")} {
			r.mustConfigure(t, text)
			r.world.Hold(t)
		}
	})
	t.Run("a move", func(t *testing.T) {
		for _, class := range []string{"bronze", "", "gold"} {
			r.change(t, id, "rdt", class)
			r.world.Hold(t)
		}
	})
	t.Run("no classes at all", func(t *testing.T) {
		r.mustStop(t, id)
		r.mustConfigure(t, without(t, groups))
		if err := r.node.ReleaseUnused(t.Context()); err != nil {
			t.Error(err)
		}
		r.world.Hold(t)
	})
}

// TestClassesOfTheRuntimeAreReported uses a runtime that has its own configurations of RDT and block I/O. The runtime
// writes its groups and limits into the spec before it calls the plugins. Pod classless keeps them, because it requests no class
// of the plugin. In pod classed, class gold replaces the group.
func TestClassesOfTheRuntimeAreReported(t *testing.T) {
	r := newMachineRig(t, simcgroup.New())
	must(t, r.host.Machine.Mkdir(resctrl.MountPoint+"/batch"))

	run := func(pod, request string, limits map[string]string) string {
		t.Helper()
		config := nriruntime.ContainerConfig{Name: "main", ClosID: "batch", Resources: &api.LinuxResources{Unified: limits}}
		return r.runWith(t, r.pod(t, pod, request), config)
	}

	classless := run("classless", "rdt=", map[string]string{"io.max": "254:16 rbps=4096"})
	run("classed", "rdt=gold", nil)
	r.node.Repair(t.Context())

	want := `
NAMESPACE  POD        CONTAINER  RESOURCE        CLASS                     SOURCE  REQUESTED BY
default    classed    main       k8s.io/rdt      gold                      pod     qos.noderesource.dev/pod
default    classed    main       k8s.io/blockio  <system default>          -
default    classless  main       k8s.io/rdt      <resctrl group batch>     pod     qos.noderesource.dev/pod
default    classless  main       k8s.io/blockio  <limits of 254:16 (vdb)>  -
`

	r.wantAssignments(t, want)
	r.change(t, classless, "rdt", "silver")
	inClass := "k8s.io/rdt      silver                    update\n"
	r.wantAssignments(t, strings.Replace(want, "k8s.io/rdt      <resctrl group batch>     pod     qos.noderesource.dev/pod\n", inClass, 1))
}

// wantAssignments compares the assignments with the table that the command "assignments" prints.
func (r *machineRig) wantAssignments(t *testing.T, want string) {
	t.Helper()
	list, err := r.world.API.ListAssignments(t.Context(), &qosv1alpha1.ListAssignmentsRequest{})
	lines := strings.FieldsFunc(shell.Assignments(list), func(r rune) bool { return r == '\n' })
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(want), "\n"), lines); err != nil || diff != "" {
		t.Errorf("error %v, assignments (-want +got):\n%s", err, diff)
	}
}

func TestReadOnlyResctrlIsReportedAndRunningContainersKeepTheirClasses(t *testing.T) {
	p := newPopulated(t)
	p.host.readOnly.Store(true)
	err := p.update(t, p.gold, "rdt", "silver")
	if !errors.Is(err, syscall.EROFS) {
		t.Errorf("an update returned %v, want EROFS", err)
	}

	p.world.Hold(t)
	p.wantReported(t, p.gold, groups, "gold/pod")

	// from the next load of class files on, the resource is unavailable
	p.mustConfigure(t, machineFiles)
	_, err = p.run(t, p.pod(t, "late", "rdt=gold"))
	if err == nil || !strings.Contains(err.Error(), "mount -o remount,rw /sys/fs/resctrl") {
		t.Errorf("a creation returned %v, want an error with the remedy", err)
	}

	p.mustRun(t, p.pod(t, "other", "blockio=fast"))
	p.world.Hold(t)
	p.wantReported(t, p.gold, groups, "gold/pod")

	p.host.readOnly.Store(false)
	p.mustConfigure(t, machineFiles)
	p.mustRun(t, p.pod(t, "again", "rdt=gold"))
	p.world.Hold(t)
}
