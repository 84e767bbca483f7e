// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

func TestAContainerWhoseClassCannotBeEnforcedIsNotStarted(t *testing.T) {
	f := newFixture(t)
	f.backends[disk].Fail("enforce", errors.New("no such device"))
	_, err := f.run(t, pod("a", requesting("test.example/disk=fast")), container("c1"))
	if err == nil || !strings.Contains(err.Error(), `pod ns/a container main: class "fast" of test.example/disk: no such device`) {
		t.Errorf("error is %v", err)
	}
}

// TestAContainerCreatedWithoutThePluginStartsInItsClass: if it requests a class, it is counted as adopted.
func TestAContainerCreatedWithoutThePluginStartsInItsClass(t *testing.T) {
	f := newFixture(t)
	for id, p := range map[string]classes.Holder{"c1": pod("a", requesting("test.example/cache=gold")), "c2": pod("b", nil)} {
		if err := f.start(t, p, container(id)); err != nil { // without a call of create
			t.Error(err)
		}
	}
	f.wantClass(t, "c1", cache, "gold/pod")
	f.wantClass(t, "c2", cache, "bronze/default")
	if got := f.Status().Adopted; got != 1 {
		t.Errorf("%d containers are counted as adopted, want only c1, which requests a class", got)
	}
}

func TestTheStateIsTheSameAfterARestart(t *testing.T) {
	f := newFixture(t)
	pods := []classes.Holder{pod("a", requesting("test.example/cache=gold,test.example/disk=slow,test.example/net=low")), pod("b", nil)}
	var exist []state.Existing
	for i, p := range pods {
		f.mustRunPod(t, p)
		exist = append(exist, running(p, f.mustRun(t, p, container([]string{"c1", "c2"}[i]))))
	}

	f.mustUpdate(t, qos.Subject{PodUID: "uid-b", Container: "main"}, map[string]string{disk: "fast"})
	before := f.Assignments()
	f.restart(t)
	f.mustConfigure(t, files)
	f.Synchronize(pods, exist)
	f.Reconcile(t.Context())
	if diff := cmp.Diff(before, f.Assignments()); diff != "" {
		t.Errorf("state differs after a restart (-before +after):\n%s", diff)
	}

	f.wantClass(t, "c2", disk, "fast/update")
}

// monotonic reports whether a time has a reading of the monotonic clock.
func monotonic(when time.Time) bool { return when != when.Round(0) }

// TestTimesAreMonotonic checks the times that the node later compares with the current time. With a monotonic reading,
// they do not depend on changes of the clock.
func TestTimesAreMonotonic(t *testing.T) {
	f := newFixture(t)
	if _, err := f.run(t, pod("a", requesting(cache+"=none-such")), container("c-a")); err == nil {
		t.Fatal("a container of an unknown class was created")
	}

	refused := f.Refused()
	if len(refused) != 1 {
		t.Errorf("%d refusals are reported, want one", len(refused))
	}
	for _, r := range refused {
		if !monotonic(r.First) || !monotonic(r.Last) {
			t.Errorf("the times of a refusal, %s and %s, have no monotonic reading", r.First, r.Last)
		}
	}

	if status := f.Status(); !monotonic(status.Config.Loaded) || !monotonic(status.Runtime.Since) {
		t.Errorf("loaded at %s, synchronized since %s; want readings of the monotonic clock", status.Config.Loaded, status.Runtime.Since)
	}
}
