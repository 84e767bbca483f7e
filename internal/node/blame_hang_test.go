// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/blame"
	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// stuckReads is a host on which reads of some files do not return before a channel is closed.
type stuckReads struct {
	pressing
	hangs    func(name string) bool
	released chan struct{}
}

func (s stuckReads) ReadFile(name string) ([]byte, error) {
	if s.hangs(name) {
		<-s.released
	}
	return s.pressing.ReadFile(name)
}

// TestHungReadsOfTheHistoryDoNotStopTheHooks lets reads of the statistics of 120 containers hang. Hooks fail if 100 of
// their calls hang. The history has a limit of its own, 4, so a new container still starts.
func TestHungReadsOfTheHistoryDoNotStopTheHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlamed(t, blamedFiles)
		host := stuckReads{b.host, func(name string) bool { return path.Base(name) == "io.stat" && strings.Contains(name, "c-stuck") }, make(chan struct{})}
		b.fixture.restart(t, func(o *node.Options) {
			o.HistoryInterval, o.Counters = historyInterval, history.NewCounters(host, treeOf(t, b.host))
		})
		b.mustConfigure(t, blamedFiles)
		b.Synchronize(nil, nil)
		for i := range 120 {
			b.runs(t, fmt.Sprint("stuck", i), "")
		}
		for range 60 { // more than enough to reach the limit
			b.RecordHistory(t.Context())
		}
		b.wantBlocked(t, 4, "read the counters of pod ns/stuck")
		b.runs(t, "new", "blockio=fast")

		close(host.released)
		synctest.Wait()
		b.wantBlocked(t, 0, "")
	})
}

// newRecordedRDT returns a node that records the history of a container whose RDT class is monitored, on a host with stuckReads.
func newRecordedRDT(t *testing.T, hangs func(name string) bool, released chan struct{}) *machine {
	var host stuckReads
	f := newMonitoredOn(t, func(crash crashHost) classes.Kind {
		host = stuckReads{pressing{crashHost: crash}, hangs, released}
		return rdtOn(t, host)
	}, strings.Replace(rdtFiles, "rdt: {", "rdt: {monitoring: containers, ", 1), "rdt=gold")
	f.fixture.restart(t, func(o *node.Options) {
		o.HistoryInterval, o.Counters = historyInterval, history.NewCounters(host, treeOf(t, host))
	})
	f.mustConfigure(t, f.text)
	f.Synchronize([]classes.Holder{f.pod}, []state.Existing{running(f.pod, f.ctr)})
	return f
}

// TestASampleHasItsOtherValuesWhenResctrlHangs lets all reads of the monitoring counters of resctrl hang. The wait for
// all classes is longer than the time of a sample. The values that cgroups have are recorded nevertheless.
func TestASampleHasItsOtherValuesWhenResctrlHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := make(chan struct{})
		var begun atomic.Bool
		slow := func(name string) bool { return begun.Load() && strings.Contains(name, "/mon_data/") }
		f := newRecordedRDT(t, slow, released)
		begun.Store(true)
		f.RecordHistory(t.Context())
		<-time.After(historyInterval)
		f.RecordHistory(t.Context())
		if blocked := f.BlockedCalls(); len(blocked) < 3 {
			t.Fatalf("the blocked calls are %+v, want a read of resctrl for each of the 3 classes", blocked)
		}
		w := f.History()
		if len(w.Tracks) != 1 || w.Tracks[0].From != 0 || w.Tracks[0].To != 1 {
			t.Errorf("recorded is %+v, want the container in both samples", w)
		}
		close(released)
		synctest.Wait()
	})
}

// TestSamplesAtTheSameTimeReadResctrlOnce takes a sample of the history. Usage that is requested in the same second
// must not read the monitoring counters of resctrl again. Usage that is requested later must.
func TestSamplesAtTheSameTimeReadResctrlOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int64
		count := func(name string) bool {
			if strings.Contains(name, "/mon_data/") {
				reads.Add(1)
			}
			return false
		}
		f := newRecordedRDT(t, count, nil)

		usage := func() (more int64) {
			before := reads.Load()
			if _, err := f.Usage(t.Context()); err != nil {
				t.Fatal(err)
			}
			return reads.Load() - before
		}
		f.RecordHistory(t.Context())
		if more := usage(); more != 0 {
			t.Errorf("the usage has read %d counters again", more)
		}
		<-time.After(time.Second)
		if usage() == 0 {
			t.Error("the usage one second later has read no counters")
		}
	})
}

// TestARequestEndsWithItsClient cancels a request before it is answered.
func TestARequestEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlamed(t, blamedFiles)
		b.records(t, 12, map[string]uint64{b.runs(t, "db", ""): 1})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.Blame(ctx, blame.Request{}); !errors.Is(err, context.Canceled) {
			t.Errorf("error is %v, want %v", err, context.Canceled)
		}
	})
}

// TestRequestsForTheHistoryWaitForEachOther borrows the history. Requests of each kind then wait for it.
func TestRequestsForTheHistoryWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlamed(t, blamedFiles)
		b.records(t, 25, map[string]uint64{b.runs(t, "db", ""): 1})
		requests := func(ctx context.Context) []error {
			_, blamed := b.Blame(ctx, blame.Request{})
			_, recommended := b.Recommend(ctx, history.Selection{Namespace: "ns", Pod: "db"})
			return []error{blamed, recommended}
		}
		_, done, err := b.Borrow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, err := range requests(ctx) {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error is %v, want %v", err, context.DeadlineExceeded)
			}
		}
		done()
		if err := errors.Join(requests(t.Context())...); err != nil {
			t.Error(err)
		}
	})
}
