// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
	"github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// movedFiles has a default and two more classes.
const movedFiles = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/rdt
  defaultClass: bronze
  rdt: {partitions: {p: {l3Allocation: "100%", classes: {gold: {l3Allocation: "50%"}, silver: {l3Allocation: "75%"}, bronze: {}}}}}
`

// moving is a node with resctrl's backend, and on it a container of several processes, which was created in the class gold.
type moving struct {
	*node.Node
	host   mortalHost
	path   string // of the checkpoint
	killer *killer
	text   string
	pod    classes.Holder
	ctr    classes.Holder
	pids   []int
}

const movedPath = "/kubepods/poduid-a/c1"

func newMoving(t *testing.T, request string) *moving {
	t.Helper()
	spec := resctrl.IntelSpec()
	f := &moving{killer: &killer{}, text: movedFiles, path: filepath.Join(t.TempDir(), "changes.json"), pids: []int{100, 101, 102, 103}}
	f.host = mortalHost{sim.New(sim.Options{RDT: &spec}), f.killer}
	f.pod = pod("a", nil)
	if request != "" {
		f.pod.PodAnnotations = asking(request)
	}
	f.reborn(t)
	f.ctr = classes.Holder{ID: "c1", Container: "main", CgroupsPath: movedPath}
	adjustment, assigned, err := f.CreateContainer(in(f.pod, f.ctr))
	if err != nil {
		t.Fatal(err)
	}
	record, err := state.Record(assigned)
	if err != nil {
		t.Fatal(err)
	}
	f.ctr.ContainerAnnotations, f.ctr.PID = map[string]string{state.RecordAnnotation: record}, f.pids[0]
	f.host.Cgroups().AddCgroup(movedPath)
	for i, pid := range f.pids {
		f.host.Cgroups().AddProcess(movedPath, pid)
		f.host.Resctrl().AddTask(pid, adjustment.ClosID)
		if i == 0 {
			if err := finish(t)(f.StartContainer(in(f.pod, f.ctr))); err != nil {
				t.Fatal(err)
			}
		}
	}
	return f
}

// reborn makes the process anew. It has not seen yet what runs.
func (f *moving) reborn(t *testing.T) {
	t.Helper()
	f.Node = restarted(t, nil, f.path, f.text, rdtOn(t, f.host))
}

func (f *moving) configure(t *testing.T) {
	t.Helper()
	configureWith(t, f.Node, f.text, rdtOn(t, f.host))
}

// recover is a new process that has seen what runs, and has had the time to bring it into its classes.
func (f *moving) recover(t *testing.T) {
	t.Helper()
	f.reborn(t)
	f.Synchronize([]classes.Holder{f.pod}, []state.Existing{running(f.pod, f.ctr)})
	f.Reconcile(t.Context())
	f.Repair(t.Context())
}

// groups are those that the processes are in.
func (f *moving) groups() []string {
	var all []string
	for _, pid := range f.pids {
		all = append(all, f.host.Resctrl().GroupOf(pid))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestNoProcessIsLeftInAnotherClassWhenThePluginWasKilledInAMove kills it around every write of a move.
func TestNoProcessIsLeftInAnotherClassWhenThePluginWasKilledInAMove(t *testing.T) {
	update := func(class string) func(*testing.T, *moving) {
		return func(t *testing.T, f *moving) {
			if err := f.Update(t.Context(), ownerA, map[string]string{"rdt": class}); err != nil {
				t.Error(err)
			}
		}
	}
	turn := func(class string) func(*testing.T, *moving) {
		return func(t *testing.T, f *moving) {
			f.text = strings.Replace(movedFiles, "defaultClass: bronze", "defaultClass: "+class, 1)
			f.configure(t)
			f.Reconcile(t.Context())
		}
	}
	for _, test := range []struct {
		name, request string
		before, do    func(*testing.T, *moving)
		// may are the classes in which it can be afterwards.
		may []string
	}{
		{"by an update", "rdt=gold", nil, update("silver"), []string{"gold", "silver"}},
		{"by an update back to the class of its creation", "rdt=gold", update("silver"), update("gold"), []string{"gold", "silver"}},
		{"by an update to the system default", "rdt=gold", nil, update(""), []string{"gold", ""}},
		{"by an update back to the system default", "rdt=", update("silver"), update(""), []string{"silver", ""}},
		{"by another default", "", nil, turn("silver"), []string{"silver"}},
		{"by another default, back to the first", "", turn("silver"), turn("bronze"), []string{"bronze"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := 1
			for died := true; died; n++ {
				f := newMoving(t, test.request)
				if test.before != nil {
					test.before(t, f)
				}
				*f.killer = killer{at: n}
				died = !f.killer.survives(func() { test.do(t, f) })
				*f.killer = killer{}
				f.recover(t)
				reported := classOf(t, f.Node)
				if !slices.Contains(test.may, reported) {
					t.Errorf("killed at step %d: it is reported in %q", n, reported)
				}
				if got, want := f.groups(), rdt.GroupOf(reported); len(got) != 1 || got[0] != want {
					t.Errorf("killed at step %d: reported in %q, and its processes are in %q", n, reported, got)
				}
			}
			if n < 8 {
				t.Errorf("only %d steps", n-1)
			}
		})
	}
}

// classOf is the class in which the one container is reported.
func classOf(t *testing.T, n *node.Node) string {
	t.Helper()
	pods := n.Assignments()
	if len(pods) != 1 || len(pods[0].Containers) != 1 || len(pods[0].Containers[0].Assignments) != 1 {
		t.Fatalf("assignments are %+v", pods)
	}
	return pods[0].Containers[0].Assignments[0].Class
}
