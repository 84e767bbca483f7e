// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

func TestAnUnrecordedContainerIsMovedToItsClass(t *testing.T) {
	f := newFixture(t)
	p := pod("a", requesting("test.example/cache=gold"))
	f.Synchronize(nil, []state.Existing{running(p, container("c1"))})
	if got := f.has("c1", cache); got != "/adopted" {
		t.Errorf("the container is reported as %q before it was moved, want /adopted", got)
	}
	f.Reconcile(t.Context())
	f.wantClass(t, "c1", cache, "gold/pod")
}

func TestAContainerThatWasCreatedBeforeARestartMayStartAfterIt(t *testing.T) {
	f := newFixture(t)
	p := pod("a", requesting("test.example/cache=gold"))
	c, _, err := f.create(t, p, container("c1"))
	if err != nil {
		t.Fatal(err)
	}
	f.restart(t)
	f.mustConfigure(t, files)
	f.Synchronize(nil, []state.Existing{{Holder: in(p, c)}})
	if err := f.start(t, p, c); err != nil {
		t.Fatal(err)
	}

	f.wantClass(t, "c1", cache, "gold/pod")
}

func TestAContainerThatCannotBeObservedIsNotMoved(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", requesting("test.example/cache=gold")), container("c1"))
	f.backends[cache].Fail("observe", errors.New("input/output error"))
	f.backends[cache].Fail("enforce", errors.New("must not be called"))
	if got := f.Reconcile(t.Context()); got != 0 {
		t.Errorf("%d holders were moved, want none", got)
	}
	f.wantClass(t, "c1", cache, "gold/pod")
}

// TestAChangedPodKeepsItsClassWhileItsResourceIsRemoved changes a pod to class low, removes its resource from the class
// files, and adds the resource again.
func TestAChangedPodKeepsItsClassWhileItsResourceIsRemoved(t *testing.T) {
	f := newFixture(t)
	p := pod("a", requesting("test.example/net=high"))
	f.mustRunPod(t, p)
	f.mustUpdate(t, qos.Subject{PodUID: "uid-a"}, map[string]string{net: "low"})
	for _, text := range []string{fewer, files} {
		f.mustConfigure(t, text)
		f.Synchronize([]classes.Holder{p}, nil)
		f.Reconcile(t.Context())
	}
	if got := f.Assignments()[0].Assignments[0].Class; got != "low" {
		t.Errorf("the pod is reported in class %q, want low, to which it was changed", got)
	}
}

func TestAPodWithoutACgroupHoldsNothing(t *testing.T) {
	f := newFixture(t)
	f.backends[net].Fail("observe", fs.ErrNotExist)
	f.Synchronize([]classes.Holder{pod("a", requesting("test.example/net=high"))}, nil)
	f.Reconcile(t.Context())
	if got := f.Assignments(); len(got) > 0 {
		t.Errorf("assignments are %+v, want none", got)
	}
}

// TestTheChangeOfAnUnrecordedContainerIsKept changes the class of the resource disk to slow, for a container that was created while the
// plugin was not connected. Before a restart, the test removes the class `without` from the class files: the class that the container requests, the
// class slow, or none.
func TestTheChangeOfAnUnrecordedContainerIsKept(t *testing.T) {
	for name, test := range map[string]struct{ request, without string }{
		"the class that it requests is removed":     {request: "test.example/cache=gold", without: "gold"},
		"the class of its change is removed":        {request: "test.example/cache=silver", without: "slow"},
		"no class is removed":                       {request: "test.example/cache=silver", without: "none"},
		"it requests another class of the resource": {request: "test.example/disk=fast", without: "none"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			p, c := pod("a", requesting(test.request)), container("c-a")
			c.PID = 1
			exist := []state.Existing{{Holder: in(p, c), Started: true}}
			f.Synchronize(nil, exist)
			f.Reconcile(t.Context())
			f.mustUpdate(t, ownerA, map[string]string{disk: "slow"})
			f.restart(t)
			without := strings.NewReplacer("{name: "+test.without+", capacity: 1}, ", "", ", {name: "+test.without+"}", "").Replace(files)
			f.mustConfigure(t, without)
			f.Synchronize(nil, exist)
			f.Reconcile(t.Context())
			f.wantClass(t, "c-a", disk, "slow/update")
		})
	}
}
