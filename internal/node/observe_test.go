// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// TestAnUnknownStartTimeDoesNotEndAContainer has a repair in which the start time of the container's process is unknown (0).
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
}

// TestDriftOfARemovedResourceIsRepairedAfterAFailedRepair removes a resource from the class files while a container has
// one of its classes.
func TestDriftOfARemovedResourceIsRepairedAfterAFailedRepair(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", requesting("test.example/disk=slow")), container("c-a"))
	f.mustConfigure(t, withoutResource(disk))
	f.backends[disk].Fail("repair", errors.New("input/output error"))
	f.Repair(t.Context())
	f.backends[disk].Fail("repair", nil)
	f.backends[disk].Lose("c-a")
	f.Repair(t.Context())
	f.wantClass(t, "c-a", disk, "slow/pod")
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

// TestValuesOfAFailedChangeAreReplacedWhenTheirDeviceIsLost: the runtime stored the values of a change that then
// failed. The container has no class of the resource, but the values that the runtime still stores may name the lost
// device.
func TestValuesOfAFailedChangeAreReplacedWhenTheirDeviceIsLost(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", nil), container("c-a"))
	f.backends[disk].Fail("enforce fast", errors.New("no space left on device"))
	if err := f.Update(t.Context(), ownerA, map[string]string{disk: "fast"}); err == nil {
		t.Fatal("the change succeeded")
	}

	delete(f.unified, "c-a")
	f.backends[disk].Damage(classes.Drift{DevicesGone: true})
	f.Repair(t.Context())
	if _, replaced := f.unified["c-a"]; !replaced {
		t.Error("the values that the runtime has stored were not replaced")
	}
}

func TestAnUnavailableResourceIsLoggedOnce(t *testing.T) {
	f := newFixture(t)
	var log bytes.Buffer
	f.restart(t, func(o *node.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	f.mustConfigure(t, files)

	f.backends[disk].Fail("repair", errors.New("no such device"))
	f.backends[disk].Fail("apply", errors.New("no such device"))
	for range 3 {
		f.Repair(t.Context())
	}
	f.backends[disk].Fail("repair", nil)
	f.backends[disk].Fail("apply", nil)
	for range 3 {
		f.Repair(t.Context())
	}
	for _, message := range []string{"resource unavailable", "resource available again"} {
		if count := strings.Count(log.String(), message); count != 1 {
			t.Errorf("%q is logged %d times, want once:\n%s", message, count, log.String())
		}
	}
}
