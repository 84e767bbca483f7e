// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"errors"
	"sync"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

const other = "Classes: {other: [{Devices: [/dev/sda], ThrottleReadBps: 3M}]}"

func TestARemovedClassIsKeptUntilItIsReleased(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	f.runtime("", "slower")
	f.apply(other)
	inUse := func(class string) bool { return class == "slower" }
	must(t, f.backend.Release(t.Context(), inUse))

	if _, err := f.backend.Adjust(classes.Holder{}, "", "slow"); !errors.Is(err, classes.ErrUnknownClass) {
		t.Errorf("a class that was released returns %v, want ErrUnknownClass", err)
	}

	f.enforce(container(), "", "slower") // after a resize, the plugin enforces the removed class again
	f.runtime("slower", "other")
	f.enforce(container(), "slower", "other")
	f.want(v2Dir+"/io.max", "8:0 rbps=3000000 wbps=max riops=max wiops=max\n")
	must(t, f.backend.Release(t.Context(), func(string) bool { return false }))

	if _, err := f.backend.Adjust(classes.Holder{}, "", "slower"); !errors.Is(err, classes.ErrUnknownClass) {
		t.Errorf("the error is %v, want classes.ErrUnknownClass", err)
	}
}

func TestAChangedClassClearsItsFormerValues(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	f.runtime("", "slower")
	f.apply("Classes: {slower: [{Devices: [/dev/sda], ThrottleReadBps: 2M}]}") // without sdb
	f.runtime("slower", "slower")
	f.enforce(container(), "slower", "slower")
	f.want(v2Dir+"/io.max", "8:0 rbps=2000000 wbps=max riops=max wiops=max\n")
}

// TestAllValuesOfAClassFromBeforeARestartAreCleared restarts the plugin with class files that no longer have the
// container's class.
func TestAllValuesOfAClassFromBeforeARestartAreCleared(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	f.runtime("", "slower")
	stored, err := f.backend.Adjust(container(), "", "slower")
	must(t, err)
	restarted := newFixture(t, f.machine, classes.ContainerScope).apply(other)
	if !restarted.backend.IsStale(container(), "other", stored.Unified()) {
		t.Error("IsStale is false for the values of a class of a former run")
	}
	restarted.enforce(container(), "slower", "other")
	restarted.want(v2Dir+"/io.max", "8:0 rbps=3000000 wbps=max riops=max wiops=max\n")
	restarted.enforce(container(), "slower", "")
	restarted.want(v2Dir+"/io.max", "")
}

func TestHooksAndReloadsMayRunAtTheSameTime(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	configs := []classes.BackendConfig{f.parse(throttling), f.parse(other)}
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for range 50 {
				_, _ = f.backend.Adjust(classes.Holder{}, "", "slow")
				_ = f.backend.Enforce(t.Context(), container(), "", "slow")
				f.backend.Status()
			}
		})
	}

	for i := range 50 {
		if err := f.backend.Apply(t.Context(), configs[i%2]); err != nil {
			t.Error(err)
		}
		if err := f.backend.Release(t.Context(), func(class string) bool { return class == "slow" }); err != nil {
			t.Error(err)
		}
	}

	running.Wait()
	// Release has kept slow as a class in use, although the last configuration does not have it.
	if _, err := f.backend.Adjust(classes.Holder{}, "", "slow"); err != nil {
		t.Error(err)
	}
}
