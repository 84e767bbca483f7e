// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// wantRefused compares the reported refusals with texts of the form "pod reason" or "pod/container reason".
func (f *fixture) wantRefused(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, r := range f.Refused() {
		holder := r.PodName
		if r.Subject.Container != "" {
			holder += "/" + r.Subject.Container
		}
		got = append(got, holder+" "+r.Reason)
		if !strings.Contains(r.Message, "created without the class, because qos-nri-plugin was not connected to the runtime") {
			t.Errorf("refused with %q, want that the plugin was not connected", r.Message)
		}
	}

	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("refused: %q, want %q", got, want)
	}
}

// wantNoneRefused checks that no refusal is reported.
func (f *fixture) wantNoneRefused(t *testing.T) {
	t.Helper()
	f.wantRefused(t)
}

// withPending returns a node with two containers that were created while the plugin was not connected, and that request
// a class of capacity 1. The container of pod a has the class. The request of the container of pod b is pending.
func withPending(t *testing.T) (f *fixture, first, second state.Existing) {
	t.Helper()
	f = newFixture(t)
	first = running(pod("a", requesting(cache+"=gold")), container("c1"))
	second = running(pod("b", requesting(cache+"=gold,"+disk+"=fast")), container("c2"))
	f.Synchronize(nil, []state.Existing{first, second})
	f.Reconcile(t.Context())
	f.wantClass(t, "c1", cache, "gold/pod")
	f.wantClass(t, "c2", cache, "bronze/default")
	f.wantRefused(t, "b/main ClassFull")
	return f, first, second
}

// TestARunningContainerGetsAPendingClassOnceThereIsRoom: its refusal is reported until then, and counted once.
func TestARunningContainerGetsAPendingClassOnceThereIsRoom(t *testing.T) {
	f, first, second := withPending(t)
	f.Repair(t.Context())
	f.wantRefused(t, "b/main ClassFull")
	if got := f.Status().Refusals["ClassFull"]; got != 1 {
		t.Errorf("the refusal is counted %d times, want once", got)
	}

	f.Synchronize(nil, []state.Existing{first, second}) // the runtime restarts
	f.Reconcile(t.Context())
	f.wantRefused(t, "b/main ClassFull")

	f.Stop("c1")
	f.Repair(t.Context())
	f.wantClass(t, "c2", cache, "gold/pod")
	f.wantClass(t, "c2", disk, "fast/pod")
	f.wantNoneRefused(t)
	if _, err := f.run(t, pod("c", requesting(cache+"=gold")), container("c3")); err == nil {
		t.Error("a third container got a class of capacity 1")
	}
}

func TestARunningPodGetsAPendingClassOnceThereIsRoom(t *testing.T) {
	f := bounded(t)
	f.Synchronize([]classes.Holder{sandbox("a", "a-1"), sandbox("b", "b-1")}, nil)
	f.Reconcile(t.Context())
	f.wantRefused(t, "b ClassFull")
	f.Stop("a-1")
	f.Repair(t.Context())
	if got := f.backends[net].Enforced(); got["b-1"] != "high" {
		t.Errorf("the classes of pods are %v, want high for b-1", got)
	}
	f.wantNoneRefused(t)
}

func TestLargePendingRequestsAreReportedWithABoundedSize(t *testing.T) {
	f := newFixture(t)
	p := pod("a", requesting(cache+"=none-such"))
	p.PodAnnotations["other"] = strings.Repeat("x", 1<<20)
	q := pod("b", requesting(strings.Repeat("x", 1<<20)))
	f.Synchronize(nil, []state.Existing{running(p, container("c1")), running(q, container("c2"))})
	if got := len(f.Refused()); got != 2 {
		t.Errorf("%d refusals are reported, want 2", got)
	}

	f.Repair(t.Context())
	for _, r := range f.Refused() {
		if len(r.Message) > 1<<10 {
			t.Errorf("a message of %d bytes is reported", len(r.Message))
		}
	}
}

// TestTheReconcilerDoesNotChangeAContainerThatIsBeingKilled runs the reconciler between a refused start and the end of
// the container's processes. It must neither admit the container nor clear its refusal. If the container runs although it was killed,
// the reconciler then does both.
func TestTheReconcilerDoesNotChangeAContainerThatIsBeingKilled(t *testing.T) {
	for name, c := range map[string]struct {
		refuse func(*fixture, *testing.T, classes.Holder) error
		reason string
	}{
		"the class was full": {func(f *fixture, t *testing.T, p classes.Holder) error {
			holds := pod("b", requesting(cache+"=gold"))
			f.mustRun(t, holds, container("c-b"))
			_, err := f.StartContainer(in(p, container("c-a"))) // was created without the plugin
			f.Stop("c-b")
			return err
		}, "ClassFull"},
		"the class could not be enforced": {func(f *fixture, t *testing.T, p classes.Holder) error {
			created, _, err := f.create(t, p, container("c-a"))
			if err != nil {
				t.Fatal(err)
			}
			f.backends[cache].Fail("enforce", errors.New("no space left on device"))
			defer f.backends[cache].Fail("enforce", nil)
			return finish(t)(f.StartContainer(in(p, created)))
		}, "EnforcementFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			p := pod("a", requesting(cache+"=gold"))
			if err := c.refuse(f, t, p); err == nil {
				t.Fatal("the start was not refused")
			}
			f.Repair(t.Context())
			if refused := f.Refused(); len(refused) != 1 || refused[0].Reason != c.reason {
				t.Errorf("before the kill, the refusals are %+v", refused)
			}
			if class := f.backends[cache].Enforced()["c-a"]; class != "" {
				t.Errorf("a dying container was moved to class %q", class)
			}

			// The container runs on, because the node of this test has no function that ends processes (Options.Kill).
			if err := f.Kill(t.Context(), in(p, container("c-a"))); err != nil {
				t.Fatal(err)
			}
			f.Repair(t.Context())
			f.wantClass(t, "c-a", cache, "gold/pod")
			if refused := f.Refused(); len(refused) != 0 {
				t.Errorf("in its class, the container is reported as refused: %+v", refused)
			}
		})
	}
}
