// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
	"github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// rdtFiles has three classes, one of them the default class.
const rdtFiles = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/rdt
  defaultClass: bronze
  rdt: {partitions: {p: {l3Allocation: "100%", classes: {gold: {l3Allocation: "50%"}, silver: {l3Allocation: "75%"}, bronze: {}}}}}
`

// rdtMachine is a machine with resctrl, and a container of several processes.
type rdtMachine struct {
	*machine
	pids []int
}

func newRDTMachine(t *testing.T, request string) *rdtMachine {
	t.Helper()
	spec := resctrl.IntelSpec()
	on := func(host crashHost) classes.Kind { return rdtOn(t, host) }
	f := &rdtMachine{newMachine(t, sim.New(sim.Options{RDT: &spec}), on, rdtFiles, request), []int{100, 101, 102, 103}}
	f.restart(t)
	f.Synchronize(nil, nil)

	adjustment := f.create(t, f.pids[0])
	f.host.Cgroups().AddCgroup(machinePath)
	for i, pid := range f.pids {
		f.host.Cgroups().AddProcess(machinePath, pid)
		f.host.Resctrl().AddTask(pid, adjustment[classes.Setting{Name: classes.SettingClosID}])
		if i == 0 {
			f.start(t)
		}
	}

	return f
}

// groups returns the resctrl groups that have processes of the container.
func (f *rdtMachine) groups() []string {
	var all []string
	for _, pid := range f.pids {
		all = append(all, f.host.Resctrl().GroupOf(pid))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestACrashDuringAMoveLeavesNoProcessInAnotherClass kills the plugin before and after every write of a move.
func TestACrashDuringAMoveLeavesNoProcessInAnotherClass(t *testing.T) {
	update := func(class string) func(*testing.T, *rdtMachine) {
		return func(t *testing.T, f *rdtMachine) {
			if err := f.Update(t.Context(), ownerA, map[string]string{"rdt": class}); err != nil {
				t.Error(err)
			}
		}
	}

	setDefault := func(class string) func(*testing.T, *rdtMachine) {
		return func(t *testing.T, f *rdtMachine) {
			f.text = strings.Replace(rdtFiles, "defaultClass: bronze", "defaultClass: "+class, 1)
			f.mustConfigure(t, f.text)
			f.Reconcile(t.Context())
		}
	}

	for _, test := range []struct {
		name, request string
		before, do    func(*testing.T, *rdtMachine)
		// The field `may` lists the allowed classes after the recovery.
		may []string
	}{
		{name: "by an update", request: "rdt=gold", do: update("silver"), may: []string{"gold", "silver"}},
		{
			name: "by an update back to the class of its creation", request: "rdt=gold", before: update("silver"), do: update("gold"),
			may: []string{"gold", "silver"},
		},
		{name: "by an update to the system default", request: "rdt=gold", do: update(""), may: []string{"gold", ""}},
		{name: "by an update back to the system default", request: "rdt=", before: update("silver"), do: update(""), may: []string{"silver", ""}},
		{name: "by another default", do: setDefault("silver"), may: []string{"silver"}},
		{name: "by another default, back to the first", before: setDefault("silver"), do: setDefault("bronze"), may: []string{"bronze"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := 1
			for died := true; died; n++ {
				f := newRDTMachine(t, test.request)
				if test.before != nil {
					test.before(t, f)
				}
				*f.killer = killer{at: n}
				died = !f.killer.survives(func() { test.do(t, f) })
				*f.killer = killer{}
				f.recover(t)
				f.Repair(t.Context())
				reported := f.class(t)
				if !slices.Contains(test.may, reported) {
					t.Errorf("killed at step %d: the container is reported in class %q", n, reported)
				}
				if got, want := f.groups(), groups.Of(reported); len(got) != 1 || got[0] != want {
					t.Errorf("killed at step %d: the container is reported in class %q, but its processes are in %q", n, reported, got)
				}
			}

			if n < 8 {
				t.Errorf("the process has only %d steps", n-1)
			}
		})
	}
}

// TestAllThreadsAreInTheReportedClassAfterTheirClassIsLost kills the plugin during a change to class silver. While the
// plugin is not running, silver is removed from the class files, and its group is removed. It does not matter to which
// class the container returns.
func TestAllThreadsAreInTheReportedClassAfterTheirClassIsLost(t *testing.T) {
	f := newRDTMachine(t, "rdt=gold")
	if err := f.Update(t.Context(), ownerA, map[string]string{"rdt": "silver"}); err != nil {
		t.Fatal(err)
	}

	f.host.Resctrl().AddTask(f.pids[2], groups.Of("gold")) // back to its former group, as if the change had not moved it yet
	if err := f.host.Remove("/sys/fs/resctrl/" + groups.Of("silver")); err != nil {
		t.Fatal(err)
	}

	f.text = strings.Replace(rdtFiles, `silver: {l3Allocation: "75%"}, `, "", 1)
	f.recover(t)
	f.Repair(t.Context())
	if reported, got := f.class(t), f.groups(); len(got) != 1 || got[0] != groups.Of(reported) {
		t.Errorf("the container is reported in class %q, but its processes are in %q", reported, got)
	}
}
