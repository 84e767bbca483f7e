// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// refuse requests a class for a container, and fails the test if the request is not refused.
func (f *fixture) refuse(t *testing.T, id, class string) {
	t.Helper()
	if _, _, err := f.Admit(container(id, "cache="+class)); err == nil {
		t.Fatal("not refused")
	}
}

func TestARefusalIsReportedWithItsCountAndTimes(t *testing.T) {
	f := newFixture()
	first := f.time
	f.refuse(t, "a-1", "lead")
	f.time = f.time.Add(time.Minute)
	f.refuse(t, "a-2", "tin")

	want := []state.Refused{{
		Subject: qos.Subject{PodUID: "uid-a", Container: "main"}, PodNamespace: "ns", PodName: "a", Reason: "UnknownClass",
		Message: `pod ns/a container main: class "tin" of test.example/cache does not exist on this node; available: gold, silver, bronze ` +
			`(requested by annotation qos.noderesource.dev/pod)`,
		Count: 2, First: first, Last: f.time,
	}}

	if diff := cmp.Diff(want, f.Refused()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestARefusalForAnotherReasonIsCountedAnew(t *testing.T) {
	f := newFixture()
	for _, id := range []string{"a-1", "a-2"} {
		f.refuse(t, id, "lead")
	}
	f.time = f.time.Add(time.Minute)
	f.lackCache()
	f.refuse(t, "a-3", "gold")
	if r := f.Refused()[0]; r.Reason != "Unavailable" || r.Count != 1 || !r.First.Equal(f.time) {
		t.Errorf("a refusal for another reason is reported as %+v, want reason Unavailable and count 1", r)
	}

	// the sum over all refusals
	if diff := cmp.Diff(state.Refusals{"UnknownClass": 2, "Unavailable": 1}, f.Status().Refusals); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

func TestARefusalEndsWhenTheContainerRuns(t *testing.T) {
	f := newFixture()
	f.refuse(t, "a-1", "lead")
	if _, _, err := f.Admit(container("a-2", "cache=gold")); err != nil {
		t.Fatal(err)
	}
	f.wantRefused(t, "a UnknownClass")
	f.start(t, container("a-2", ""))
	f.wantNoneRefused(t)
}

func TestARefusalExpiresTenMinutesAfterTheLastAttempt(t *testing.T) {
	f := newFixture()
	f.refuse(t, "a-1", "lead")
	f.refuse(t, "b-1", "lead")
	f.time = f.time.Add(10 * time.Minute)
	f.refuse(t, "b-2", "lead")
	before := f.Changed()
	f.ExpireRefused()
	f.wantRefused(t, "a UnknownClass", "b UnknownClass")
	if signalled(before) {
		t.Error("a change was signalled, although no refusal has expired")
	}
	f.time = f.time.Add(1)
	f.ExpireRefused()
	f.wantRefused(t, "b UnknownClass")
	if !signalled(before) {
		t.Error("no change was signalled, although a refusal has expired")
	}
}

// TestRefusalsExpireAfterAClockThatWasSetBack sets the clock back by a day after a refusal. The kubelet then tries again.
func TestRefusalsExpireAfterAClockThatWasSetBack(t *testing.T) {
	f := newFixture()
	f.refuse(t, "a-1", "lead")
	f.time = f.time.Add(-24 * time.Hour)
	f.ExpireRefused()
	f.wantRefused(t, "a UnknownClass")

	f.refuse(t, "a-2", "lead")
	if got := f.Refused()[0]; got.Count != 2 || !got.Last.Equal(f.time) {
		t.Errorf("the refusal is reported as %+v, want count 2, and now as the last time", got)
	}
	f.time = f.time.Add(11 * time.Minute)
	f.ExpireRefused()
	f.wantNoneRefused(t)
}

func TestThePendingRequestOfARunningContainerDoesNotExpire(t *testing.T) {
	f := newFixture()
	pending(f, t)
	for range 3 {
		f.time = f.time.Add(6 * time.Minute)
		f.Refresh("b-1")
		f.ExpireRefused()
	}
	f.wantRefused(t, "b ClassFull")
	f.Release("b-1")
	f.wantNoneRefused(t)
}

// TestTheRefusalOfOneOfTwoWaitingContainersStays ends one of two containers of the same name that both wait for their
// class.
func TestTheRefusalOfOneOfTwoWaitingContainersStays(t *testing.T) {
	for name, ended := range map[string]string{"the older one ends": "b-1", "the newer one ends": "b-2"} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			f.run(t, container("a-1", "cache=gold"))
			a, older, newer := existing(container("a-1", "cache=gold")), existing(container("b-1", "cache=gold")), existing(container("b-2", "cache=gold"))
			f.Rebuild(nil, []state.Existing{a, older})
			f.Rebuild(nil, []state.Existing{a, older, newer})
			f.wantRefused(t, "b ClassFull")
			f.Release(ended)
			f.wantRefused(t, "b ClassFull")
		})
	}
}

// TestARefusalEndsIfTheSuccessorOfItsContainerRuns starts the successor while the plugin is not connected, so that no hook ends the
// refusal.
func TestARefusalEndsIfTheSuccessorOfItsContainerRuns(t *testing.T) {
	f := newFixture()
	f.refuse(t, "a-1", "lead")
	f.time = f.time.Add(time.Second) // the successor is newer than the refusal
	f.Rebuild(nil, []state.Existing{existing(container("a-2", "cache=gold"))})
	f.ExpireRefused() // also ends refusals that are not ten minutes old
	f.wantNoneRefused(t)
}

func TestTheNewestThousandRefusalsAreReported(t *testing.T) {
	f := newFixture()
	for i := range 1002 {
		f.refuse(t, fmt.Sprintf("p%04d-1", i), "lead")
		f.time = f.time.Add(1)
	}
	got := f.Refused()
	if len(got) != 1000 || got[0].PodName != "p0002" {
		t.Errorf("%d refusals are reported, the first of pod %s; want 1000 from p0002 on", len(got), got[0].PodName)
	}
}

func TestRefusalsOfVolumesAreSorted(t *testing.T) {
	f := newFixture()
	for _, path := range []string{"/d", "/b", "/a", "/c"} {
		volume := container("a-1", "")
		volume.Volume = path
		_ = f.Refuse(volume, classes.ErrSharedDisk)
	}

	for range 20 { // the order of a map would differ in some of the calls
		paths := ""
		for _, r := range f.Refused() {
			paths += r.Subject.Volume
		}
		if paths != "/a/b/c/d" {
			t.Fatalf("the refusals are in the order %s", paths)
		}
	}
}

func TestTheMessageOfARefusalIsOneLine(t *testing.T) {
	f := newFixture()
	e, err := f.AdmitPod(pod("a-1", "net=high"))
	if err != nil {
		t.Fatal(err)
	}
	err = f.Finish(e, fmt.Errorf("first\nsecond"))
	if want := "pod ns/a: first; second"; err == nil || err.Error() != want || f.Refused()[0].Message != want {
		t.Errorf("error %v, reported %q", err, f.Refused()[0].Message)
	}
}
