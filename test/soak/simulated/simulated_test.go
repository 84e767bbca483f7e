// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/invariant"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
	"github.com/qos-nri/qos-nri-plugin/test/soak/steps"
)

const classFile = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- {name: k8s.io/rdt, rdt: {partitions: {p: {l3Allocation: "100%", classes: {gold: {l3Allocation: "50%"}, silver: {l3Allocation: "25%"}}}}}}
`

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newSite makes a site with a running plugin.
func newSite(t *testing.T) *Site {
	t.Helper()
	s, err := New(slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	must(t, s.WriteClasses(classFile))
	must(t, s.StartPlugin(t.Context()))
	s.hold(t)
	return s
}

func (s *Site) hold(t *testing.T) {
	t.Helper()
	invariant.Machine{API: s.API(), Host: s.Host(), Live: s.Live}.Hold(t)
}

// runGold runs a container in class gold. The container's first process has forked several times.
func (s *Site) runGold(t *testing.T) (uid string) {
	t.Helper()
	pod := steps.Pod{Name: "a", UID: "uid-a", Annotations: map[string]string{"qos.noderesource.dev/pod": "rdt=gold"}}
	id, err := s.RunPod(t.Context(), pod)
	must(t, err)
	ctr, err := s.CreateContainer(t.Context(), id, steps.Container{Name: "main"})
	must(t, err)
	must(t, s.StartContainer(t.Context(), ctr))
	for range 3 {
		must(t, s.Fork(t.Context(), ctr))
	}
	return pod.UID
}

func (s *Site) toSilver(t *testing.T, uid string) error {
	t.Helper()
	_, err := s.API().UpdateContainerQOSResources(t.Context(), &qosv1alpha1.UpdateContainerQOSResourcesRequest{
		PodUid: uid, Container: "main", QosResources: []*qosv1alpha1.ContainerQOSResource{{Name: "rdt", Class: "silver"}},
	})
	return err
}

// TestAKilledPluginWritesNothingMoreAndTheNextOneRecovers kills the plugin at its second write, which moves a thread.
// If `late` is true, the write takes effect before the kill.
func TestAKilledPluginWritesNothingMoreAndTheNextOneRecovers(t *testing.T) {
	for _, late := range []bool{false, true} {
		s := newSite(t)
		uid := s.runGold(t)
		s.late = !late // KillPlugin inverts it
		must(t, s.KillPlugin(t.Context(), 2))
		if err := s.toSilver(t, uid); err == nil {
			t.Error("the update succeeded, although the plugin was killed during it")
		}
		if runs, err := s.PluginRuns(); runs || err != nil {
			t.Errorf("the plugin runs: %t, %v", runs, err)
		}
		tasks, err := s.Host().ReadFile("/sys/fs/resctrl/qos-silver/tasks")
		must(t, err)
		if got, want := len(strings.Fields(string(tasks))), map[bool]int{false: 1, true: 2}[late]; got != want {
			t.Errorf("killed at the second write, late: %t: %d threads were moved, want %d", late, got, want)
		}
		must(t, s.StartPlugin(t.Context()))
		s.hold(t)
	}
}

func TestAPluginThatIsKilledOrStoppedCanBeStartedAgain(t *testing.T) {
	s := newSite(t)
	uid := s.runGold(t)
	must(t, s.toSilver(t, uid))
	for _, end := range []func() error{
		func() error { return s.KillPlugin(t.Context(), 0) },
		func() error { return s.StopPlugin(t.Context()) },
	} {
		must(t, end())
		if runs, _ := s.PluginRuns(); runs {
			t.Error("the plugin still runs after it was killed or stopped")
		}
		must(t, s.StartPlugin(t.Context()))
		s.hold(t)
		list, err := s.API().ListAssignments(t.Context(), &qosv1alpha1.ListAssignmentsRequest{})
		must(t, err)
		if got := list.GetPods()[0].GetContainers()[0].GetQosResources()[0].GetClass(); got != "silver" {
			t.Errorf("the container is in %q, but was changed to silver", got)
		}
	}
}

// awaitMonitors waits until the plugin has a number of monitoring groups.
func (s *Site) awaitMonitors(t *testing.T, want int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for ; ; s.hold(t) {
		kernel, err := invariant.KernelOf(s.Host(), invariant.Live{})
		must(t, err)
		switch groups := kernel.OwnMonitors(); {
		case len(groups) == want:
			return
		case ctx.Err() != nil:
			t.Fatalf("monitoring groups are %q, want %d", groups, want)
		}
	}
}

// TestMonitoringGroupsAreRemovedWhenAWrongClassFileIsReplaced starts the plugin with a wrong class file. The plugin then
// does not know whether RDT is configured, so it does not remove the monitoring group of a container that ends.
func TestMonitoringGroupsAreRemovedWhenAWrongClassFileIsReplaced(t *testing.T) {
	s := newSite(t)
	restartWith := func(classes string) {
		must(t, s.StopPlugin(t.Context()))
		must(t, s.WriteClasses(classes))
		must(t, s.StartPlugin(t.Context()))
		s.hold(t)
	}

	restartWith(strings.Replace(classFile, "rdt: {", "rdt: {monitoring: containers, ", 1))
	s.runGold(t)
	s.awaitMonitors(t, 1)
	restartWith("resources: [")
	live, err := s.Live(t.Context())
	must(t, err)
	must(t, s.RemovePod(t.Context(), live.Pods[0].ID))
	s.awaitMonitors(t, 1)
	must(t, s.WriteClasses(classFile))
	must(t, s.Hangup())
	s.awaitMonitors(t, 0)
}

func TestAPlannedKillWaitsForItsWrite(t *testing.T) {
	died := 0
	m := &mortal{machine: sim.New(sim.Options{}), died: func() { died++ }}
	must(t, m.Mount("resctrl", "/sys/fs/resctrl", "resctrl", ""))
	const late = false // the process dies before the write takes effect
	m.kill(2, late)
	must(t, m.Mkdir("/sys/fs/resctrl/a"))
	if _, err := m.ReadDir("/sys/fs/resctrl/a"); err != nil || died != 0 {
		t.Errorf("the process died before the second write: %v", err)
	}

	for range 2 {
		if m.Mkdir("/sys/fs/resctrl/b") == nil {
			t.Error("the second write succeeded, want the process killed before it")
		}
	}

	if _, err := m.ReadDir("/sys/fs/resctrl"); err == nil || died != 1 {
		t.Errorf("the killed process can read, or died %d times instead of once", died)
	}

	if _, err := m.machine.ReadDir("/sys/fs/resctrl/b"); err == nil {
		t.Error("the second write has reached the machine")
	}
}

func TestCuttingACableClosesItsConnections(t *testing.T) {
	dir := t.TempDir()
	far, err := net.Listen("unix", filepath.Join(dir, "far"))
	must(t, err)
	defer far.Close()
	c, err := newCable(filepath.Join(dir, "near"), filepath.Join(dir, "far"))
	must(t, err)
	near, err := net.Dial("unix", filepath.Join(dir, "near"))
	must(t, err)
	defer near.Close()
	end, err := far.Accept()
	must(t, err)
	defer end.Close()
	_, err = near.Write([]byte("x"))
	must(t, err)
	if _, err := io.ReadFull(end, make([]byte, 1)); err != nil {
		t.Error(err)
	}

	c.cut()
	if _, err := near.Read(make([]byte, 1)); err == nil {
		t.Error("the near end is open")
	}

	if _, err := end.Read(make([]byte, 1)); err == nil {
		t.Error("the far end is open")
	}

	must(t, c.end())
	if _, err := net.Dial("unix", filepath.Join(dir, "near")); err == nil {
		t.Error("the socket still has a listener")
	}
}
