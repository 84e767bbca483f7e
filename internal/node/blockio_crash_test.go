// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/blockio"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// blockioFiles has three classes over other disks and weights.
const blockioFiles = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/blockio
  blockio:
    Classes:
      first: [{Weight: 300}, {Devices: [/dev/sda, /dev/sdb], ThrottleReadBps: 1M, ThrottleWriteIOPS: 50, Weight: 500}]
      second: [{Devices: [/dev/sdc], ThrottleReadBps: 2M, Weight: 700}]
      third: [{Weight: 200}, {Devices: [/dev/sda], ThrottleReadBps: 10M, Weight: 50}]
`

// throttled is a node with a real backend on a simulated machine, and one container on it.
type throttled struct {
	*node.Node
	host   mortalHost
	path   string // of the checkpoint
	killer *killer
	pod    classes.Holder
	ctr    classes.Holder
	legacy bool // cgroup v1
}

const throttledPath = "/kubepods/poduid-a/c1"

// newThrottled runs a container in a class, on a machine with three disks that act on weights.
func newThrottled(t *testing.T, legacy bool, class string) *throttled {
	t.Helper()
	m := simcgroup.New()
	if legacy {
		m = simcgroup.NewLegacy()
	}
	for i, name := range []string{"sda", "sdb", "sdc"} {
		m.AddDisk(name, 8, uint32(16*i))
		if err := m.WriteFile("/sys/block/"+name+"/queue/scheduler", []byte("bfq")); err != nil {
			t.Fatal(err)
		}
	}
	m.AddCgroup(throttledPath)
	f := &throttled{killer: &killer{}, legacy: legacy, path: filepath.Join(t.TempDir(), "changes.json")}
	f.pod = pod("a", asking("blockio="+class))
	f.host = mortalHost{sim.New(sim.Options{Cgroups: m}), f.killer}
	f.ctr = classes.Holder{ID: "c1", Container: "main", CgroupsPath: throttledPath}
	f.reborn(t)
	adjustment, assigned, err := f.CreateContainer(in(f.pod, f.ctr))
	if err != nil {
		t.Fatal(err)
	}
	record, err := state.Record(assigned)
	if err != nil {
		t.Fatal(err)
	}
	f.ctr.ContainerAnnotations, f.ctr.PID = map[string]string{state.RecordAnnotation: record}, 1
	if err := m.SetUnified(throttledPath, adjustment.Unified); err != nil {
		t.Fatal(err)
	}
	if err := finish(t)(f.StartContainer(in(f.pod, f.ctr))); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *throttled) reborn(t *testing.T) {
	t.Helper()
	kind := blockio.Kind(blockio.Options{FS: f.host, Tree: treeOf(t, f.host), Log: slog.New(slog.DiscardHandler)})
	f.Node = restarted(t, f, f.path, blockioFiles, kind)
}

// SetUnified is part of reconcile.Runtime. The runtime writes one file after another, and goes on when the plugin dies.
func (f *throttled) SetUnified(_ context.Context, _ string, unified map[string]string) error {
	f.killer.step()
	defer f.killer.step()
	return f.host.Cgroups().SetUnified(throttledPath, unified)
}

// files are the cgroup's, which are to be exactly those of its class.
func (f *throttled) files(t *testing.T) map[string]string {
	t.Helper()
	dir := "/sys/fs/cgroup" + throttledPath
	if f.legacy {
		dir = "/sys/fs/cgroup/blkio" + throttledPath
	}
	names, err := f.host.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, name := range names {
		if !strings.HasPrefix(name, "io.") && !strings.HasPrefix(name, "blkio.") {
			continue
		}
		data, err := f.host.ReadFile(dir + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(data)
	}
	return files
}

func (f *throttled) class() string {
	return f.Assignments()[0].Containers[0].Assignments[0].Class
}

// TestAContainerHasNothingOfOtherClassesWhenTheProcessWasKilledInAnUpdate kills it around every write of the last of several updates.
// With cgroup v1 the plugin writes one file after another.
func TestAContainerHasNothingOfOtherClassesWhenTheProcessWasKilledInAnUpdate(t *testing.T) {
	for _, test := range []struct {
		name    string
		legacy  bool // cgroup v1
		updates []string
	}{
		{"the second update with cgroup v2", false, []string{"second", "third"}},
		{"the first update", true, []string{"third"}},
		{"the second update, to the system default", true, []string{"second", ""}},
		{"the second update, back to the class of its creation", true, []string{"second", "first"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := newThrottled(t, test.legacy, test.updates[len(test.updates)-1]).files(t)
			n := 1
			for ; killBlockIOAt(t, n, test.legacy, test.updates, want); n++ {
			}
			if n < 3 {
				t.Errorf("only %d steps", n-1)
			}
		})
	}
}

// killBlockIOAt kills the process at step n of the last update, and says whether there was such a step.
func killBlockIOAt(t *testing.T, n int, legacy bool, updates []string, want map[string]string) (died bool) {
	t.Helper()
	f, last := newThrottled(t, legacy, "first"), len(updates)-1
	for i, class := range updates {
		*f.killer = killer{}
		if i == last {
			f.killer.at = n
		}
		died = !f.killer.survives(func() {
			if err := f.Update(t.Context(), ownerA, map[string]string{"blockio": class}); err != nil {
				t.Error(err)
			}
		})
	}
	*f.killer = killer{}
	f.reborn(t)
	f.Synchronize([]classes.Holder{f.pod}, []state.Existing{running(f.pod, f.ctr)})
	f.Reconcile(t.Context())
	if got := f.class(); got != updates[last] {
		t.Errorf("killed at step %d: it is in class %q", n, got)
	}
	if diff := cmp.Diff(want, f.files(t)); diff != "" {
		t.Errorf("killed at step %d: in class %q it has (-want +got):\n%s", n, updates[last], diff)
	}
	return died
}
