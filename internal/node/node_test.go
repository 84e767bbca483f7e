// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

func TestAContainerGetsItsRequestsAndDefaultsForTheRest(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", requesting("test.example/disk=fast")), container("c1"))
	f.wantClass(t, "c1", disk, "fast/pod")
	f.wantClass(t, "c1", cache, "bronze/default")
}

func TestARefusedContainerTakesNoSlots(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", requesting("test.example/cache=gold")), container("c1"))
	_, err := f.run(t, pod("b", requesting("test.example/cache=gold,test.example/disk=fast")), container("c2"))
	if !errors.Is(err, classes.ErrClassFull) {
		t.Fatalf("error is %v, want ErrClassFull", err)
	}

	for _, part := range []string{"ns/b", "main", cache, `"gold"`} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not name %s", err, part)
		}
	}

	if got := f.Status().Resources[1].InUse["fast"]; got != 0 {
		t.Errorf("the refused container holds %d slots of another resource", got)
	}
}

func TestASlotIsFreeWhenItsContainerStops(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", requesting("test.example/cache=gold")), container("c1"))
	f.Stop("c1")
	f.Stop("c1")
	f.mustRun(t, pod("b", requesting("test.example/cache=gold")), container("c2"))
}

// TestARestartedContainerGetsAFullClassBesideItsPredecessor runs a container three times in class gold, which has a
// capacity of 1. The former containers have not ended yet.
func TestARestartedContainerGetsAFullClassBesideItsPredecessor(t *testing.T) {
	f := newFixture(t)
	p := pod("a", requesting("test.example/cache=gold"))
	for _, id := range []string{"c1", "c2", "c3"} {
		f.mustRun(t, p, container(id))
	}
	f.Stop("c1")
	f.Stop("c2")
	if _, err := f.run(t, pod("b", requesting("test.example/cache=gold")), container("d")); !errors.Is(err, classes.ErrClassFull) {
		t.Errorf("error is %v, want ErrClassFull while the newest container runs", err)
	}
}

func TestAContainerWhoseClassCannotBeEnforcedIsNotStarted(t *testing.T) {
	f := newFixture(t)
	f.backends[disk].Fail("enforce", errors.New("no such device"))
	_, err := f.run(t, pod("a", requesting("test.example/disk=fast")), container("c1"))
	if err == nil || !strings.Contains(err.Error(), `pod ns/a container main: class "fast" of test.example/disk: no such device`) {
		t.Errorf("error is %v", err)
	}
}

func TestAContainerCreatedWithoutThePluginStartsInItsClass(t *testing.T) {
	f := newFixture(t)
	for id, p := range map[string]classes.Holder{"c1": pod("a", requesting("test.example/cache=gold")), "c2": pod("b", nil)} {
		if err := f.start(t, p, container(id)); err != nil {
			t.Error(err)
		}
	}
	f.wantClass(t, "c1", cache, "gold/pod")
	f.wantClass(t, "c2", cache, "bronze/default")
	if got := f.Status().Adopted; got != 1 {
		t.Errorf("%d containers are counted as adopted, want 1: the one that requests a class", got)
	}
}

func TestAPodGetsPodScopeClasses(t *testing.T) {
	f := newFixture(t)
	if err := f.runPod(t, pod("a", requesting("test.example/net=high"))); err != nil {
		t.Fatal(err)
	}
	if got := f.backends[net].Enforced()["sandbox-a"]; got != "high" {
		t.Errorf("the pod is in class %q", got)
	}
	if got := f.Assignments()[0].Assignments; len(got) != 1 || got[0].Class != "high" {
		t.Errorf("reported as %v", got)
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
