// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// TestStoredValuesAreStaleExceptForTheirOwnClass stores what Adjust returns for a change of class.
func TestStoredValuesAreStaleExceptForTheirOwnClass(t *testing.T) {
	for name, machine := range map[string]*simcgroup.Machine{"v2 without weights": disks(simcgroup.New()), "v2 with bfq": bfqOnAll(simcgroup.New())} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, machine, classes.ContainerScope).apply(everything)
			all := []string{"", "red", "blue"}
			for _, from := range all {
				for _, to := range all {
					stored, err := f.backend.Adjust(classes.Holder{}, from, to)
					must(t, err)
					for _, class := range all {
						if got, want := f.backend.IsStale(container(), class, stored.Unified()), class != to; got != want {
							t.Errorf("from %q to %q, %q is stale for the class %q: %t, want %t", from, to, stored.Unified(), class, got, want)
						}
					}
				}
			}
		})
	}
}

// TestStoredValuesOfAFormerConfigurationAreCleared stores limits and weights that no class sets any more. Adjust returns values that
// clear them, and Enforce clears them in the cgroup.
func TestStoredValuesOfAFormerConfigurationAreCleared(t *testing.T) {
	f := newFixture(t, bfqOnAll(simcgroup.New()), classes.ContainerScope).apply("Classes: {slow: [{Devices: [/dev/sda], ThrottleReadBps: 10M}]}")
	stored := map[string]string{iocgroup.IOMax: "8:0 rbps=10000000 wbps=max riops=max wiops=max\n8:16 rbps=5000000 wbps=max riops=max wiops=max",
		"io.bfq.weight": "default 400\n8:16 200"}
	must(t, f.machine.SetUnified(groupPath, stored))

	if !f.backend.IsStale(container(), "slow", stored) {
		t.Error("IsStale is false for values that no class sets, want true")
	}

	for _, from := range []string{"slow", "of-a-former-run"} {
		adjustment, err := f.backend.Adjust(container(), from, "slow")
		want := map[string]string{
			iocgroup.IOMax:  "8:0 rbps=10000000 wbps=max riops=max wiops=max\n8:16 rbps=max wbps=max riops=max wiops=max",
			"io.bfq.weight": "default 100\n8:16 default",
		}
		if diff := cmp.Diff(want, adjustment.Unified()); diff != "" || err != nil {
			t.Errorf("from %s: %v (-want +got):\n%s", from, err, diff)
		}
	}

	if got, err := f.backend.Observe(t.Context(), container(), "slow"); got.Known || err != nil {
		t.Errorf("a container with a limit on another disk is observed as %+v, %v, want an unknown class", got, err)
	}

	f.enforce(container(), "slow", "slow")
	f.wantObserved(container(), "slow", "slow")
}

// TestStoredValuesThatAreReportedDuringAReloadAreCleared: the runtime stores a limit of sdb, which IsStale records while Apply runs.
// Adjust clears this limit. The race detector checks IsStale and Apply.
func TestStoredValuesThatAreReportedDuringAReloadAreCleared(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply("Classes: {slow: [{Devices: [/dev/sda], ThrottleReadBps: 10M}]}")
	config := f.parse("Classes: {slow: [{Devices: [/dev/sda], ThrottleReadBps: 1M}]}")
	applied := make(chan error, 1)
	go func() { applied <- f.backend.Apply(t.Context(), config) }()
	f.backend.IsStale(container(), "slow", map[string]string{iocgroup.IOMax: "8:16 rbps=5000000 wbps=max riops=max wiops=max"})
	must(t, <-applied)
	got, err := f.backend.Adjust(container(), "slow", "slow")
	want := "8:0 rbps=1000000 wbps=max riops=max wiops=max\n8:16 rbps=max wbps=max riops=max wiops=max"
	if err != nil || got[classes.Unified(iocgroup.IOMax)] != want {
		t.Errorf("got %v, %v", got, err)
	}
}
