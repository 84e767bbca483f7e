// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/blame"
	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/internal/reports"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

const historyInterval = 15 * time.Second

const blamedFiles = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/blockio
  classes: [{name: slow, capacity: 1}, {name: medium}, {name: fast}, {name: other}]
  blockio:
    Classes:
      slow: [{Devices: [/dev/sda], ThrottleWriteBps: 10M}]
      medium: [{Devices: [/dev/sda], ThrottleWriteBps: 100M}]
      fast: [{Devices: [/dev/sda], ThrottleWriteBps: 300M}]
      other: [{Devices: [/dev/sdb], ThrottleWriteBps: 1M}]
`

// pressing is a host whose cgroups also have pressure stall information and statistics of the CPU and of memory.
type pressing struct {
	crashHost
	// `waited` is the time of waiting for I/O. `disks` is the number of disks that a container uses beside those of the
	// host. Both are by directory.
	waited map[string]time.Duration
	disks  map[string]int
}

func (p pressing) ReadFile(name string) ([]byte, error) {
	switch path.Base(name) {
	case "io.stat":
		data, err := p.crashHost.ReadFile(name)
		for minor := range p.disks[path.Dir(name)] {
			data = fmt.Appendf(data, "259:%d rbytes=1 wbytes=1 rios=1 wios=1\n", minor)
		}
		return data, err
	case "io.pressure":
		return fmt.Appendf(nil, "some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\n", p.waited[path.Dir(name)].Microseconds()), nil
	case "cpu.pressure", "memory.pressure":
		return []byte("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"), nil
	case "cpu.stat":
		return []byte("usage_usec 5000000\nthrottled_usec 0\n"), nil
	case "memory.stat":
		return []byte("anon 1000000\nfile 1000\nworkingset_refault_anon 0\nworkingset_refault_file 0\n"), nil
	case "memory.events", "memory.events.local":
		return []byte("low 0\nhigh 0\nmax 0\n"), nil
	}
	return p.crashHost.ReadFile(name)
}

func (p pressing) Readlink(name string) (string, error) {
	if minor, further := strings.CutPrefix(name, "/sys/dev/block/259:"); further {
		return "/sys/block/further" + minor, nil
	}
	return p.crashHost.Readlink(name)
}

// blamed is a node that records containers, in a bubble of synctest.
type blamed struct {
	*machine
	host pressing
}

func newBlamed(t *testing.T, files string) *blamed {
	t.Helper()
	m := newBlockIOMachine(t, cgroupV2, "first").machine
	b := &blamed{machine: m, host: pressing{m.host, map[string]time.Duration{}, map[string]int{}}}
	b.fixture.restart(t, func(o *node.Options) {
		o.HistoryInterval, o.Counters = historyInterval, history.NewCounters(b.host, treeOf(t, b.host))
	})
	b.mustConfigure(t, files)
	b.Synchronize(nil, nil)
	return b
}

// runs starts a container of a pod, and returns its cgroup.
func (b *blamed) runs(t *testing.T, name, request string) string {
	t.Helper()
	c := container("c-" + name)
	p := pod(name, nil)
	p.PodCgroupsPath = "/kubepods/poduid-" + name
	c.CgroupsPath = p.PodCgroupsPath + "/" + c.ID
	b.host.Cgroups().AddCgroup(c.CgroupsPath)
	if request != "" {
		p.PodAnnotations = requesting(request)
	}
	c, adjustment, err := b.fixture.create(t, p, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.host.Cgroups().SetUnified(c.CgroupsPath, adjustment.Unified()); err != nil {
		t.Fatal(err)
	}
	c.PID = 1
	if err := b.fixture.start(t, p, c); err != nil {
		t.Fatal(err)
	}
	return c.CgroupsPath
}

// pass lets an interval pass on the clock of synctest. So no reading takes too long because this machine is busy.
func (b *blamed) pass() {
	time.Sleep(historyInterval) //nolint:forbidigo // the clock of synctest advances at once
}

// records lets `n` intervals pass. In each of them, containers write `writes` MB/s to sda, and the containers in
// `waits` wait for half of the time.
func (b *blamed) records(t *testing.T, n int, writes map[string]uint64, waits ...string) {
	t.Helper()
	for range n {
		b.pass()
		for group, rate := range writes {
			b.host.Cgroups().Transfer(group, "sda", 0, rate*1_000_000*uint64(historyInterval.Seconds()))
		}
		for _, group := range waits {
			b.host.waited["/sys/fs/cgroup"+group] += historyInterval / 2
		}
		b.RecordHistory(t.Context())
	}
}

func blamedPod(namespace, pod, uid, container string) blame.Request {
	return blame.Request{Selection: history.Selection{Namespace: namespace, Pod: pod, PodUID: uid, Container: container}}
}

// TestBlameFindsTheContainerThatWritesToTheSameDisk: container db waits while batch writes 380 MB/s. Class medium is
// the smallest change that helps: fast removes less than half of the rise, slow is full, and other limits another disk.
func TestBlameFindsTheContainerThatWritesToTheSameDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlamed(t, blamedFiles)
		db, batch, idle := b.runs(t, "db", ""), b.runs(t, "batch", ""), b.runs(t, "idle", "blockio=slow")
		quiet := map[string]uint64{db: 5, batch: 2, idle: 8}
		b.records(t, 10, quiet)
		b.records(t, 4, map[string]uint64{db: 3, batch: 380, idle: 8}, db)
		b.records(t, 6, quiet)

		got, err := b.Blame(t.Context(), blamedPod("ns", "db", "", ""))
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Sufferers) != 1 || len(got.Sufferers[0].Findings) != 1 || len(got.Sufferers[0].Findings[0].Culprits) != 1 {
			t.Fatalf("found %+v", got)
		}
		f := got.Sufferers[0].Findings[0]
		c := f.Culprits[0]
		if f.Kind != reports.IO || f.Part != "sda" || f.To.Sub(f.From) != 4*historyInterval || len(f.Own) > 0 || c.Pod != "batch" || c.Name != "main" || c.During < 300e6 {
			t.Errorf("found %+v", f)
		}
		want := &reports.Offer{
			Resource: "k8s.io/blockio", Class: "medium", Name: "ThrottleWriteBps", Series: c.Series, Bound: 100e6, Mutable: true,
		}
		if diff := cmp.Diff(want, c.Suggestion); diff != "" {
			t.Errorf("suggestion (-want +got):\n%s", diff)
		}

		// no other container of the node has waited
		ofNode, err := b.Blame(t.Context(), blame.Request{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got.Sufferers, ofNode.Sufferers); diff != "" {
			t.Errorf("of the node (-want +got):\n%s", diff)
		}
		// db has not waited in the last 6 intervals, which are 90 seconds
		if recent, err := b.Blame(t.Context(), blame.Request{Since: time.Minute}); err != nil || len(recent.Sufferers) != 0 {
			t.Errorf("in the last minute: %+v, %v", recent, err)
		}
	})
}

// TestBlameFindsTheLimitOfTheOwnClass lets two pods write more. Pod db waits because of the limit of its class, or of the class of its
// container.
func TestBlameFindsTheLimitOfTheOwnClass(t *testing.T) {
	for _, ofPod := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b, request := newBlamed(t, blamedFiles), "blockio=slow"
			if ofPod {
				b, _ = newBlamedPod(t, requesting("vendor.example/pods=slow"))
				request = ""
			}
			db, batch := b.runs(t, "db", request), b.runs(t, "batch", "")
			b.records(t, 10, map[string]uint64{db: 2, batch: 2})
			b.records(t, 5, map[string]uint64{db: 10, batch: 200}, db)
			b.records(t, 5, map[string]uint64{db: 2, batch: 2})
			got, err := b.Blame(t.Context(), blamedPod("ns", "db", "", "main"))
			if err != nil || len(got.Sufferers) != 1 || len(got.Sufferers[0].Findings) != 1 {
				t.Fatalf("found %+v, error %v", got, err)
			}
			f := got.Sufferers[0].Findings[0]
			if len(f.Culprits) != 0 || len(f.Own) != 1 || f.Own[0].Reason != reports.OwnClassLimit || f.Own[0].Limit != 10e6 || f.Own[0].Pod != ofPod {
				t.Errorf("class of the pod: %t: found %+v", ofPod, f)
			}
		})
	}
}

// TestACulpritThatHasEndedGetsNoSuggestion ends the container that writes to the same disk.
func TestACulpritThatHasEndedGetsNoSuggestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlamed(t, blamedFiles)
		db, batch := b.runs(t, "db", ""), b.runs(t, "batch", "")
		b.records(t, 10, map[string]uint64{db: 5, batch: 2})
		b.records(t, 4, map[string]uint64{db: 3, batch: 380}, db)
		b.Stop("c-batch")
		b.records(t, 6, map[string]uint64{db: 5})
		got, err := b.Blame(t.Context(), blamedPod("ns", "db", "", ""))
		if err != nil || len(got.Sufferers) != 1 || len(got.Sufferers[0].Findings) != 1 {
			t.Fatalf("found %+v, error %v", got, err)
		}
		if c := got.Sufferers[0].Findings[0].Culprits; len(c) != 1 || !c[0].Ended || c[0].Suggestion != nil {
			t.Errorf("the culprits are %+v, want one that has ended", c)
		}
	})
}

func wantOneLine(t *testing.T, name string, err, kind error, text string) {
	t.Helper()
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: error is %v, want %v with %q", name, err, kind, text)
	}
}

// TestAnErrorOfBlameIsOneLine also checks the kind of each error and a part of its text.
func TestAnErrorOfBlameIsOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlamed(t, blamedFiles)
		want := func(name string, r blame.Request, kind error, text string) {
			t.Helper()
			_, err := b.Blame(t.Context(), r)
			wantOneLine(t, name, err, kind, text)
		}
		db := b.runs(t, "db", "")
		want("nothing yet", blame.Request{}, blame.ErrTooShort, "0 of 9 samples")
		b.records(t, 4, map[string]uint64{db: 1}) // the first reading is only the beginning of the first sample
		want("just started", blame.Request{}, blame.ErrTooShort, "3 of 9 samples since the plugin started; ask again in 1m30s")
		b.records(t, 10, map[string]uint64{db: 1}, db)
		want("an unknown pod", blamedPod("ns", "web", "", ""), history.ErrUnknown, "pod ns/web has no running container on this node")
		want("another namespace", blamedPod("other", "db", "", ""), history.ErrUnknown, "pod other/db")
		want("another pod of this name", blamedPod("ns", "db", "x", ""), history.ErrUnknown, "pod ns/db")
		want("an unknown container", blamedPod("ns", "db", "", "x"), history.ErrUnknown, `pod ns/db has no container "x"`)
		want("a namespace without a pod", blamedPod("ns", "", "", ""), history.ErrInvalid, "name the pod, or nothing for the whole node")
		want("a container without a pod", blamedPod("", "", "", "main"), history.ErrInvalid, "name the pod, or nothing for the whole node")
		want("a UID without a pod", blamedPod("", "", "uid-db", ""), history.ErrInvalid, "name the pod, or nothing for the whole node")
		want("a pod without a namespace", blamedPod("", "db", "", ""), history.ErrInvalid, `name the namespace of pod "db", too`)
		want("the future", blame.Request{Since: -time.Minute}, history.ErrInvalid, "since is -1m0s")

		b.fixture.restart(t)
		b.RecordHistory(t.Context())
		want("without --history-interval", blame.Request{}, history.ErrNotRecorded, "--history-interval=15s")
	})
}

// TestBlameNeedsTheUIDOnlyIfTwoPodsHaveTheNameInTheNamespace has two pods ns/db, and a pod shop/db.
func TestBlameNeedsTheUIDOnlyIfTwoPodsHaveTheNameInTheNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlamed(t, blamedFiles)
		again, shop := pod("again", nil), pod("shop", nil)
		again.PodName, shop.PodName, shop.PodNamespace = "db", "db", "shop"
		b.records(t, 12, map[string]uint64{b.runs(t, "db", ""): 1, b.runsBeside(t, again, "again"): 1, b.runsBeside(t, shop, "shop"): 1})

		_, err := b.Blame(t.Context(), blamedPod("ns", "db", "", ""))
		wantOneLine(t, "two pods of one name", err, history.ErrAmbiguous, "pod ns/db ran twice on this node")
		for uid, request := range map[string]blame.Request{"uid-db": blamedPod("ns", "db", "uid-db", ""), "uid-shop": blamedPod("shop", "db", "", "")} {
			if got, err := b.Blame(t.Context(), request); err != nil || len(got.Sufferers) != 1 || got.Sufferers[0].PodUID != uid {
				t.Errorf("found %+v, %v; want only the pod with %s", got, err, uid)
			}
		}
	})
}

// TestWithCgroupV1TheHistoryIsUnavailable also tests machines that mount cgroup v2 beside v1, if the runtime uses v1.
func TestWithCgroupV1TheHistoryIsUnavailable(t *testing.T) {
	for name, kernel := range map[string]*simcgroup.Machine{"v1": simcgroup.NewLegacy(), "hybrid": simcgroup.NewHybrid()} {
		m := newMachine(t, sim.New(sim.Options{Cgroups: kernel}), func(crashHost) classes.Kind { return classes.Kind{} }, "", "")
		m.fixture.restart(t, func(o *node.Options) {
			o.HistoryInterval, o.Counters = historyInterval, history.NewCounters(m.host, treeOf(t, m.host))
		})
		m.RecordHistory(t.Context())
		_, err := m.Blame(t.Context(), blame.Request{})
		const want = "nothing is recorded: this node uses cgroup v1, which does not count how long a container waits; boot it with cgroup v2 (systemd.unified_cgroup_hierarchy=1)"
		if !errors.Is(err, history.ErrNotRecorded) || err.Error() != want {
			t.Errorf("%s: error is %v, want %s", name, err, want)
		}
	}
}

// TestBlameReportsNothingOnAnIdleNode uses a container that never waits, which the kernel shows as a pressure of 0.
func TestBlameReportsNothingOnAnIdleNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlamed(t, blamedFiles)
		b.runs(t, "db", "")
		b.records(t, 12, nil)
		if got, err := b.Blame(t.Context(), blame.Request{}); err != nil || len(got.Sufferers) > 0 {
			t.Errorf("found %+v, error %v", got, err)
		}
	})
}

// TestEachOf500ContainersIsRecorded also logs the CPU time of a sample. The simulated kernel reads about as fast as Linux.
func TestEachOf500ContainersIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const containers, rounds = 500, 8
		b := newBlamed(t, blamedFiles)
		writes := map[string]uint64{}
		for i := range containers {
			writes[b.runs(t, fmt.Sprint("p", i), "")] = uint64(i)
		}
		b.records(t, 1, writes) // is only the beginning of the first point
		used := time.Duration(0)
		for range rounds {
			b.pass()
			began := cpuTime(t)
			b.RecordHistory(t.Context())
			used += cpuTime(t) - began
		}
		t.Logf("a sample of %d containers takes %s of CPU time: %.2f%% of a CPU at an interval of %s", containers, used/rounds,
			100*float64(used/rounds)/float64(historyInterval), historyInterval)
		if w := b.History(); w.Points() != rounds || len(w.Tracks) != containers {
			t.Errorf("%d points of %d containers are recorded, want %d of %d", w.Points(), len(w.Tracks), rounds, containers)
		}
	})
}
