// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
)

// TestEvictions checks which holders are to be evicted after the edit of the class files; "" means none. In the class files, cache has
// onClassRemoved: evict, and a test can set this for the other resources.
func TestEvictions(t *testing.T) {
	const goldOfMain = "ns/a main test.example/cache gold"
	withoutHigh := func(policy classes.Removal) func([]classes.Resource) []classes.Resource {
		return func(r []classes.Resource) []classes.Resource {
			r[2].Classes, r[2].OnClassRemoved = r[2].Classes[1:], policy
			return r
		}
	}
	for name, test := range map[string]struct {
		holder classes.Holder
		edit   func([]classes.Resource) []classes.Resource
		want   string
	}{
		"nothing while the class is there":                {holder: container("a-1", "cache=gold")},
		"a holder that requested a class that is gone":    {holder: container("a-1", "cache=gold"), edit: withoutGold, want: goldOfMain},
		"a holder that requested a resource that is gone": {holder: container("a-1", "cache=gold"), edit: withoutCache, want: goldOfMain},
		"a pod that requested a class that is gone": {
			holder: pod("a-1", "net=high"), edit: withoutHigh(classes.Evict), want: "ns/a  test.example/net high",
		},
		"no pod if its resource has onClassRemoved: drain": {holder: pod("a-1", "net=high"), edit: withoutHigh(classes.Drain)},
		"no holder of another class":                       {holder: container("a-1", "cache=silver"), edit: withoutGold},
		"no holder of a default that is gone":              {holder: container("a-1", ""), edit: withoutCache},
		"no holder if its resource has no onClassRemoved": {
			holder: container("a-1", "disk=fast"), edit: func(r []classes.Resource) []classes.Resource { return r[:1] },
		},
		"nothing if the same edit sets onClassRemoved to drain": {
			holder: container("a-1", "cache=gold"),
			edit: func(r []classes.Resource) []classes.Resource {
				r[0].OnClassRemoved = classes.Drain
				return withoutGold(r)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			f.run(t, test.holder)
			if test.holder.Container != "" { // both containers have the same owner, so there is only one target
				test.holder.ID = "a-2"
				f.run(t, test.holder)
			}
			f.offer(test.edit)
			if got := f.evicted(); got != test.want {
				t.Errorf("targets %q, want %q", got, test.want)
			}

			f.offer(nil)
			if got := f.evicted(); got != "" {
				t.Errorf("%s is to be evicted, although the class exists again", got)
			}
		})
	}
}

// evicted returns the eviction targets as texts of pod, container, resource and class.
func (f *fixture) evicted() (targets string) {
	for _, e := range f.Evictions() {
		targets += e.PodNamespace + "/" + e.PodName + " " + e.Subject.Container + " " + e.Resource + " " + e.Class
	}
	return targets
}

// TestAContainerIsEvictedUntilItLeavesTheRemovedClass covers classes that the pod does not request.
func TestAContainerIsEvictedUntilItLeavesTheRemovedClass(t *testing.T) {
	for name, begin := range map[string]func(*fixture, *testing.T){
		"a class that the container got by an update": func(f *fixture, t *testing.T) {
			f.run(t, container("a-1", ""))
			f.change(t, "a", "gold")
			f.offer(withoutGold)
		},
		"a class of the container's RecordAnnotation, removed before the plugin started": func(f *fixture, _ *testing.T) {
			f.offer(withoutGold)
			f.Rebuild(nil, []state.Existing{existing(container("a-1", "cache=gold"), assigned(cache, "gold", classes.SourcePod))})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			begin(f, t)
			if got, want := f.evicted(), "ns/a main test.example/cache gold"; got != want {
				t.Errorf("targets %q, want %q", got, want)
			}
			f.change(t, "a", "silver")
			if got := f.evicted(); got != "" {
				t.Errorf("%s is to be evicted, although it was changed to another class", got)
			}
		})
	}
}

// TestWithoutAnyClassFileThereAreNoEvictions removes all class files. As a comparison, it then has a class file without
// resources, for which the container is evicted.
func TestWithoutAnyClassFileThereAreNoEvictions(t *testing.T) {
	f := newFixture()
	f.run(t, container("a-1", "cache=gold"))
	for _, test := range []struct {
		files   []string
		targets int
	}{{nil, 0}, {[]string{"a.yaml"}, 1}} {
		f.GoLive(classes.FileSet{Config: &classes.Config{}, Files: test.files}, map[string]state.Resource{}, true)
		if got := f.Evictions(); len(got) != test.targets {
			t.Errorf("with the files %q, the eviction targets are %v, want %d", test.files, got, test.targets)
		}
	}
}

// TestAnEvictionNamesTheHolderAndTheReason removes a class, and then its resource.
func TestAnEvictionNamesTheHolderAndTheReason(t *testing.T) {
	f := newFixture()
	f.run(t, container("a-1", "cache=gold"))
	for _, test := range []struct {
		edit    func([]classes.Resource) []classes.Resource
		message string
	}{
		{withoutGold, `class "gold" of test.example/cache was removed from the class files, and its resource has onClassRemoved: evict`},
		{withoutCache, `resource test.example/cache and its class "gold" were removed from the class files, and onClassRemoved was evict`},
	} {
		f.offer(test.edit)
		want := []state.Eviction{{
			Subject: qos.Subject{PodUID: "uid-a", Container: "main"}, PodNamespace: "ns", PodName: "a", Resource: cache, Class: "gold",
			Reason: "ClassRemoved", Message: "pod ns/a container main: " + test.message,
		}}
		if diff := cmp.Diff(want, f.Evictions()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestTheEndOfADrainingAssignmentIsSignalled(t *testing.T) {
	for name, test := range map[string]struct {
		request string
		end     func(*fixture, *testing.T)
		want    bool
	}{
		"its holder is released": {"cache=gold", func(f *fixture, _ *testing.T) { f.Release("a-1") }, true},
		"its holder is changed":  {"cache=gold", func(f *fixture, t *testing.T) { f.change(t, "a", "silver") }, true},
		"its holder follows the default": {"", func(f *fixture, _ *testing.T) {
			// a-1 has the default, bronze. In place of the classes without gold, there are now those without bronze.
			f.offer(func(r []classes.Resource) []classes.Resource {
				r[0].Classes = r[0].Classes[:2]
				return silverByDefault(r)
			})
			f.Refresh("a-1")
		}, true},
		"another holder is released": {"cache=silver", func(f *fixture, _ *testing.T) { f.Release("a-1") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			f.run(t, container("a-1", test.request))
			f.offer(withoutGold)
			test.end(f, t)
			if got := signalled(f.Drained()); got != test.want {
				t.Errorf("the channel of Drained was signalled: %v, want %v", got, test.want)
			}
			if got := nodetest.Draining(f.Store); got != 0 {
				t.Errorf("%d assignments drain, want none", got)
			}
		})
	}
}

func TestDrainingAssignmentsAreCounted(t *testing.T) {
	f := newFixture()
	f.run(t, container("a-1", "cache=gold,disk=fast"))
	f.offer(withoutGold)
	if got := nodetest.Draining(f.Store); got != 1 {
		t.Errorf("%d assignments drain, want 1", got)
	}
}

// TestDrift records drift of the configuration, and checks the condition and the number of corrections. `corrected` has
// an element for each record of drift.
func TestDrift(t *testing.T) {
	const once, twice = "drifts found: 1, the last at 2030-01-01T12:00:00Z: a group", "drifts found: 2, the last at 2030-01-01T12:00:00Z: a group"
	for name, test := range map[string]struct {
		corrected []bool
		inSync    bool
		want      []classes.Condition
		count     uint64
	}{
		"none was found":                    {inSync: true},
		"corrected":                         {corrected: []bool{true}, want: drift(true, once), count: 1},
		"corrected twice":                   {corrected: []bool{true, true}, want: drift(true, twice), count: 2},
		"not corrected":                     {corrected: []bool{false}, want: drift(false, once)},
		"not corrected at first":            {corrected: []bool{false}, inSync: true, want: drift(true, once), count: 1},
		"corrected, and in sync since":      {corrected: []bool{true}, inSync: true, want: drift(true, once), count: 1},
		"corrected at first, but not later": {corrected: []bool{true, false}, want: drift(false, twice), count: 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			for _, corrected := range test.corrected {
				f.UpdateResource(cache, func(r *state.Resource) { r.Drift.ConfigurationDrifted("a group", corrected, f.time) })
			}

			if test.inSync {
				f.UpdateResource(cache, func(r *state.Resource) { r.Drift.ConfigurationInSync() })
			}

			f.offer(nil) // the count of drifts survives a change of the configuration
			if diff := cmp.Diff(test.want, f.Status().Resources[0].Conditions); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}

			if got := f.Status().Corrections[state.Correction{Resource: cache, What: state.ConfigurationDrift}]; got != test.count {
				t.Errorf("%d corrections, want %d", got, test.count)
			}
		})
	}
}

func drift(corrected bool, message string) []classes.Condition {
	if corrected {
		return []classes.Condition{{Type: "KernelStateInSync", Healthy: true, Reason: "DriftCorrected", Message: "drift corrected; " + message}}
	}
	return []classes.Condition{{Type: "KernelStateInSync", Reason: "DriftNotCorrected", Message: "drift not corrected; " + message}}
}

func TestCorrectionsAddUp(t *testing.T) {
	f := newFixture()
	for _, count := range []int{2, 1} {
		f.UpdateResource(cache, func(r *state.Resource) { r.Drift.Corrected(state.ThreadDrift, count) })
	}
	if diff := cmp.Diff(map[state.Correction]uint64{{Resource: cache, What: "threads"}: 3}, f.Status().Corrections); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
