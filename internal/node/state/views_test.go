// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// TestAnObservedClassIsReported records one observed class after another. For the form of `want`, see wantHolders.
func TestAnObservedClassIsReported(t *testing.T) {
	for name, test := range map[string]struct {
		id      string
		classes []string
		want    string
		changed bool
	}{
		"another class than the desired one is kept":      {"a-1", []string{"silver"}, "a-1 cache=bronze(silver)", true},
		"the last observation counts":                     {"a-1", []string{"silver", ""}, "a-1 cache=bronze()", true},
		"the desired class again":                         {"a-1", []string{"silver", "bronze"}, "a-1 cache=bronze", true},
		"an observation of the desired class is not kept": {"a-1", []string{"bronze"}, "a-1 cache=bronze", false},
		"an unknown ID changes nothing":                   {"x", []string{"silver"}, "a-1 cache=bronze", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			f.run(t, container("a-1", ""))
			before := f.Changed()
			for _, class := range test.classes {
				f.Observe(test.id, cache, class)
			}
			f.wantHolders(t, test.want)
			if got := signalled(before); got != test.changed {
				t.Errorf("a change was signalled: %v, want %v", got, test.changed)
			}
		})
	}
}

func TestAReturnedHoldingIsACopy(t *testing.T) {
	f := newFixture()
	f.run(t, container("a-1", ""))
	f.Observe("a-1", cache, "silver")
	e, _ := f.Get("a-1")
	f.Observe("a-1", cache, "gold")
	if got := e.ObservedClass(cache); got != "silver" {
		t.Errorf("the copy has the observed class %q, want silver", got)
	}
}

func TestAssignmentsReportTheClassOfEveryResource(t *testing.T) {
	bronze := classes.Assignment{Resource: cache, Class: "bronze", Source: classes.SourceDefault}
	for name, test := range map[string]struct {
		before func(*fixture)
		want   []classes.Assignment
		other  string // what another program has set for the resource disk
	}{
		"as assigned": {before: func(*fixture) {}, want: []classes.Assignment{bronze, {Resource: disk}}},
		"values of another program in place of the system default": {
			before: func(f *fixture) { f.setForeign("a-1", disk, "limits of sda") }, want: []classes.Assignment{bronze, {Resource: disk}},
			other: "limits of sda",
		},
		"values of another program are not reported for a holder with a class": {
			before: func(f *fixture) { f.setForeign("a-1", cache, "group b") }, want: []classes.Assignment{bronze, {Resource: disk}},
		},
		"values of another program are not reported after their removal": {
			before: func(f *fixture) { f.setForeign("a-1", disk, "limits of sda"); f.setForeign("a-1", disk, "") },
			want:   []classes.Assignment{bronze, {Resource: disk}},
		},
		"the observed class if it differs from the desired one": {
			before: func(f *fixture) { f.Observe("a-1", cache, "silver") },
			want:   []classes.Assignment{{Resource: cache, Class: "silver", Source: classes.SourceAdopted}, {Resource: disk}},
		},
		"the system default of a resource that was configured later": {
			before: func(f *fixture) {
				f.offer(func(r []classes.Resource) []classes.Resource {
					return append(r, classes.Resource{Name: "test.example/new", Scope: classes.ContainerScope})
				})
			},
			want: []classes.Assignment{bronze, {Resource: disk}, {Resource: "test.example/new"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			f.run(t, container("a-1", ""))
			test.before(f)
			var reported []state.Reported
			for _, a := range test.want {
				r := state.Reported{Assignment: a}
				if a.Resource == disk {
					r.Foreign = test.other
				}
				reported = append(reported, r)
			}

			want := []state.PodAssignments{{UID: "uid-a", Namespace: "ns", Name: "a", SandboxID: "sandbox",
				Containers: []state.ContainerAssignments{{ID: "a-1", Name: "main", Assignments: reported}}}}
			if diff := cmp.Diff(want, f.Assignments()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}

			got, ok := f.Container(qos.Subject{PodUID: "uid-a", Container: "main"})
			if diff := cmp.Diff(want[0].Containers[0], got); !ok || diff != "" {
				t.Errorf("assignments of the container (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAPodReportsItsNewestSandbox lists sandbox a-1 last, so it is the newest one.
func TestAPodReportsItsNewestSandbox(t *testing.T) {
	f := newFixture()
	f.Rebuild([]classes.Holder{pod("a-2", "net=low"), pod("a-1", "net=high")}, nil)
	got := f.Assignments()
	if len(got) != 1 || got[0].SandboxID != "a-1" || got[0].Assignments[0].Class != "high" {
		t.Errorf("reported %+v, want class high of the sandbox a-1", got)
	}
}

func TestAContainerWithoutAProcessIsNotReported(t *testing.T) {
	f := newFixture()
	if _, _, err := f.Admit(container("a-1", "")); err != nil {
		t.Fatal(err)
	}
	if got, ok := f.Container(qos.Subject{PodUID: "uid-a", Container: "main"}); ok {
		t.Errorf("reported %+v, although the container is not started", got)
	}
}

// TestAnotherStartTimeIsAnotherProcess sets the start times of one container in order. The start time 0 is unknown.
func TestAnotherStartTimeIsAnotherProcess(t *testing.T) {
	f := newFixture()
	f.run(t, container("a-1", ""))
	for i, test := range []struct {
		at      uint64
		differs bool
	}{{0, false}, {7, false}, {7, false}, {0, false}, {8, true}} {
		var got bool
		f.Modify("a-1", func(h *state.Holding) { got = h.SetStartTime(test.at) })
		if got != test.differs {
			t.Errorf("call %d of SetStartTime returned %v", i, got)
		}
	}
}

func TestResourcesAreReportedWhileTheyAreConfiguredOrInUse(t *testing.T) {
	f := newFixture()
	f.run(t, container("a-1", "disk=fast"))
	f.offer(func(r []classes.Resource) []classes.Resource { return r[:1] })
	if diff := cmp.Diff([]string{cache, disk}, f.reported()); diff != "" {
		t.Errorf("resources while slots are in use (-want +got):\n%s", diff)
	}
	f.Release("a-1")
	if diff := cmp.Diff([]string{cache, disk}, f.reported()); diff != "" {
		t.Errorf("resources while the container may be started again (-want +got):\n%s", diff)
	}
	f.ReleasePod("sandbox")
	if diff := cmp.Diff([]string{cache}, f.reported()); diff != "" {
		t.Errorf("resources after no slot is in use (-want +got):\n%s", diff)
	}
}

// reported returns the names of the resources in the status.
func (f *fixture) reported() (names []string) {
	for _, r := range f.Status().Resources {
		names = append(names, r.Name)
	}
	return names
}

func TestTheSameErrorOfAConfigurationIsNoChange(t *testing.T) {
	f := newFixture()
	failed := f.time
	f.RejectConfig(errNoRoom)
	f.time = f.time.Add(time.Minute)
	before := f.Changed()
	f.RejectConfig(errNoRoom)
	if config := f.Status().Config; signalled(before) || !config.Failed.Equal(failed) {
		t.Errorf("failed at %v, and signalled as a change: %t; want only the first failure, at %v", config.Failed, signalled(before), failed)
	}
}

func TestTheLiveConfigurationIsReportedWithTheErrorOfTheNextOne(t *testing.T) {
	f := newFixture()
	loaded := f.time
	f.time = f.time.Add(time.Minute)
	f.RejectConfig(errNoRoom)
	config := f.Status().Config
	if !errors.Is(config.Err, errNoRoom) || config.Generation != 1 || !config.Loaded.Equal(loaded) || !slices.Equal(config.Files, []string{"a.yaml"}) {
		t.Errorf("the live configuration is reported as %+v", config)
	}

	f.offer(nil)
	if config := f.Status().Config; config.Err != nil || config.Generation != 2 {
		t.Errorf("after the next configuration is live: %+v, want generation 2 without an error", config)
	}
}
