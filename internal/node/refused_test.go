// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// clock is a clock that the test sets.
type clock struct{ time time.Time }

func (c *clock) now() time.Time { return c.time }

// timed returns a fixture, and the clock that its node uses.
func timed(t *testing.T) (*fixture, *clock) {
	t.Helper()
	f := newFixture(t)
	c := &clock{time: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	f.restart(t, func(o *node.Options) { o.Now = c.now })
	f.mustConfigure(t, files)
	return f, c
}

// wanting returns a pod with a request, and its container "main".
func wanting(name, id, request string) (classes.Holder, classes.Holder) {
	pod := classes.Holder{ID: "s-" + name, PodUID: "u-" + name, PodName: name, PodNamespace: "ns", PodAnnotations: map[string]string{"qos.noderesource.dev/pod": request}}
	return pod, classes.Holder{ID: id, Container: "main"}
}

// TestRefusalsAreReportedUntilTheContainerStarts refuses a container three times because its class is full, and then once
// because the kernel does not accept the class.
func TestRefusalsAreReportedUntilTheContainerStarts(t *testing.T) {
	f, c := timed(t)
	holder, first := wanting("a", "a1", cache+"=gold")
	if _, _, err := f.CreateContainer(in(holder, first)); err != nil {
		t.Fatal(err)
	}

	pod, second := wanting("b", "b1", cache+"=gold")
	var refusal error
	for range 3 {
		if _, _, refusal = f.CreateContainer(in(pod, second)); refusal == nil {
			t.Fatal("the second gold was admitted")
		}
		c.time = c.time.Add(time.Minute)
	}

	want := []state.Refused{{
		Subject: qos.Subject{PodUID: "u-b", Container: "main"}, PodNamespace: "ns", PodName: "b", Reason: "ClassFull", Message: refusal.Error(),
		Count: 3, First: c.time.Add(-3 * time.Minute), Last: c.time.Add(-time.Minute),
	}}

	if diff := cmp.Diff(want, f.Refused()); diff != "" {
		t.Errorf("refusals (-want +got):\n%s", diff)
	}

	f.Stop("a1")
	if _, _, err := f.CreateContainer(in(pod, second)); err != nil {
		t.Fatal(err)
	}

	if len(f.Refused()) != 1 {
		t.Error("the refusal is gone before the container has started")
	}

	f.backends[cache].Fail("enforce gold", errors.New("the kernel refuses"))
	if err := f.start(t, pod, second); err == nil {
		t.Fatal("the container started")
	}

	if got := f.Refused(); len(got) != 1 || got[0].Reason != "EnforcementFailed" || got[0].Count != 1 || !strings.Contains(got[0].Message, "the kernel refuses") {
		t.Errorf("after a failed start, the refusals are %+v, want one: EnforcementFailed with the kernel's error", got)
	}

	f.backends[cache].Fail("enforce gold", nil)
	if err := f.start(t, pod, second); err != nil {
		t.Fatal(err)
	}

	if got := f.Refused(); len(got) != 0 {
		t.Errorf("after the start, the refusals are %+v, want none", got)
	}
}

func TestRefusalsExpire(t *testing.T) {
	f, c := timed(t)
	pod, _ := wanting("a", "a1", net+"=none-such")
	if _, err := f.RunPod(pod); err == nil {
		t.Fatal("a pod of an unknown class runs")
	}

	if got := f.Refused(); len(got) != 1 || got[0].Reason != "UnknownClass" || got[0].Subject.Container != "" {
		t.Errorf("refusals: %+v; want the pod's", got)
	}

	changed := f.Changed()
	f.ExpireRefused()
	select {
	case <-changed:
		t.Error("a change was signalled, although no refusal expired")
	default:
	}

	c.time = c.time.Add(10*time.Minute + time.Second)
	f.ExpireRefused()
	<-changed
	if got := f.Refused(); len(got) != 0 {
		t.Errorf("refusals after ten minutes: %+v, want none", got)
	}
}

func TestTheNewestRefusalsAreKept(t *testing.T) {
	f, c := timed(t)
	for i := range 1100 {
		pod, ctr := wanting(fmt.Sprintf("p%04d", i), "c", cache+"=none-such")
		if _, _, err := f.CreateContainer(in(pod, ctr)); err == nil {
			t.Fatal("a container of an unknown class was created")
		}
		c.time = c.time.Add(time.Millisecond)
	}
	if got := f.Refused(); len(got) != 1000 || got[0].PodName != "p0100" {
		t.Errorf("%d refusals, beginning with %s; want 1000 from p0100 on", len(got), got[0].PodName)
	}
}

// TestTheReconcilerDoesNotChangeAContainerThatIsBeingKilled runs the reconciler between a refused start and the end of
// the container's processes. It must neither admit the container nor clear its refusal.
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

			if err := f.Kill(t.Context(), in(p, container("c-a"))); err != nil {
				t.Fatal(err)
			}
			f.Repair(t.Context()) // the runtime started the container nevertheless
			f.wantClass(t, "c-a", cache, "gold/pod")
			f.Repair(t.Context())
			if refused := f.Refused(); len(refused) != 0 {
				t.Errorf("in its class, the container is reported as refused: %+v", refused)
			}
		})
	}
}
