// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
)

// TestAnUnknownStartTimeDoesNotEndAContainer changes the start time of a container's process. The start time 0 is unknown.
func TestAnUnknownStartTimeDoesNotEndAContainer(t *testing.T) {
	f := newFixture(t)
	at := uint64(500)
	f.restart(t, func(o *node.Options) { o.StartTime = func(int) (uint64, bool) { return at, true } })
	f.mustConfigure(t, files)
	f.mustRun(t, pod("a", requesting("test.example/cache=gold")), container("c-a"))
	for _, at = range []uint64{500, 0, 500} {
		f.Repair(t.Context())
		f.wantClass(t, "c-a", cache, "gold/pod")
	}

	at = 600
	f.Repair(t.Context())
	if got := f.has("c-a", cache); got != "not reported" {
		t.Errorf("the container is reported in %q, although its PID now belongs to another process", got)
	}
}

// TestDriftOfARemovedResourceIsRepairedAfterAFailedRepair removes a resource from the class files while a container has
// one of its classes.
func TestDriftOfARemovedResourceIsRepairedAfterAFailedRepair(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", requesting("test.example/disk=slow")), container("c-a"))
	const gone = "- name: test.example/disk\n  classes: [{name: fast, capacity: 2}, {name: slow}]\n  test: {names: [fast, slow]}\n"
	f.mustConfigure(t, strings.Replace(files, gone, "", 1))
	f.backends[disk].Fail("repair", errors.New("input/output error"))
	f.Repair(t.Context())
	f.backends[disk].Fail("repair", nil)
	f.backends[disk].Lose("c-a")
	f.Repair(t.Context())
	f.wantClass(t, "c-a", disk, "slow/pod")
	if got := f.backends[disk].Enforced()["c-a"]; got != "slow" {
		t.Errorf("the kernel has the container in class %q, want slow", got)
	}
}

// TestOtherClassesAreRestoredAlthoughOneCannotBeRestored loses all classes of a container. One of them can no longer be
// enforced, e.g. because another program has removed its resctrl group while the class drained.
func TestOtherClassesAreRestoredAlthoughOneCannotBeRestored(t *testing.T) {
	for broken, other := range map[string]string{cache: disk, disk: cache} {
		f := newFixture(t)
		f.mustRun(t, pod("a", requesting("test.example/cache=gold,test.example/disk=slow")), container("c-a"))
		for _, backend := range f.backends {
			backend.Lose("c-a")
		}
		f.backends[broken].Fail("enforce", errors.New("the group is gone"))
		f.Repair(t.Context())

		want := map[string]string{cache: "gold/pod", disk: "slow/pod"}
		want[broken] = "/adopted"
		for resource, class := range want {
			f.wantClass(t, "c-a", resource, class)
		}
		f.wantCorrections(t, map[state.Correction]uint64{{Resource: other, What: state.AssignmentDrift}: 1})
	}
}

func TestAllClassesOfAContainerAreRestoredInOneCallToTheRuntime(t *testing.T) {
	f := newFixture(t)
	runtime := &slowRuntime{errs: map[string]error{}}
	f.mustRun(t, pod("a", requesting("test.example/cache=gold,test.example/disk=slow")), container("c-a"))
	f.Connected(runtime, state.RuntimeInfo{Name: "test"})
	for _, backend := range f.backends {
		backend.Lose("c-a")
	}
	f.Repair(t.Context())
	if diff := cmp.Diff([]string{"c-a"}, runtime.calls); diff != "" {
		t.Errorf("calls to the runtime (-want +got):\n%s", diff)
	}
	f.wantClass(t, "c-a", cache, "gold/pod")
	f.wantClass(t, "c-a", disk, "slow/pod")
}
