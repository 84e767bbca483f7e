// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"syscall"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// TestHasChangedIsTrueUntilTheNewValuesAreApplied changes the values of a class. The first attempt to apply them fails.
func TestHasChangedIsTrueUntilTheNewValuesAreApplied(t *testing.T) {
	f := newFixture(t, disks(simcgroup.NewLegacy()), classes.ContainerScope).apply(throttling)
	wantChanged := func(want bool, when string) {
		t.Helper()
		if got := f.backend.HasChanged(container(), "slow"); got != want {
			t.Errorf("%s: HasChanged is %t, want %t", when, got, want)
		}
	}
	f.holds("slow")
	f.enforce(container(), "", "slow")
	wantChanged(false, "before the change")
	f.apply("Classes: {slow: [{Devices: [/dev/sda], ThrottleReadBps: 7M, ThrottleWriteIOPS: 30}]}")
	wantChanged(true, "after the change")

	f.machine.Inject(simcgroup.Fault{Op: "write", File: "blkio.throttle.write_iops_device", Err: syscall.EIO})
	if f.backend.Enforce(t.Context(), container(), "slow", "slow") == nil {
		t.Error("no error, although a write has failed")
	}
	wantChanged(true, "after a failure")
	f.enforce(container(), "slow", "slow")
	wantChanged(false, "at the end")
}

// TestHasChangedIsFalseIfTheRuntimeMustStoreTheValues changes a class on a machine with cgroup v2, where the runtime
// stores the values. The core then observes the values of the container before it enforces the class again.
func TestHasChangedIsFalseIfTheRuntimeMustStoreTheValues(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	f.holds("slow")
	f.enforce(container(), "", "slow")
	f.apply("Classes: {slow: [{Devices: [/dev/sda], ThrottleReadBps: 7M}]}")
	if f.backend.HasChanged(container(), "slow") {
		t.Error("the backend would write values that the runtime must store")
	}
}

// holds makes the container a holder of the class.
func (f fixture) holds(class string) {
	f.backend.ShareWith(func(string) []classes.Holding {
		return []classes.Holding{{Holder: container(), Assignments: []classes.Assignment{{Resource: "k8s.io/blockio", Class: class}}}}
	})
}
