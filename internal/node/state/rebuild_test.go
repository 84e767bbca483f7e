// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// TestRebuild checks which classes pods and containers have after a start of the plugin, from what the runtime lists. For the
// form of `want`, see wantHolders.
func TestRebuild(t *testing.T) {
	gold, iron := assigned(cache, "gold", classes.SourcePod), assigned(cache, "iron", classes.SourceDefault)
	silver := []classes.Assignment{assigned(cache, "silver", classes.SourceUpdate)}

	for name, test := range map[string]struct {
		pods       []classes.Holder
		containers []state.Existing
		changes    changes
		want       []string
		refused    []string
	}{
		"recorded containers keep their classes, also over capacity": {
			containers: []state.Existing{existing(container("a-1", "cache=gold"), gold), existing(container("b-1", "cache=gold"), gold)},
			want:       []string{"a-1 cache=gold", "b-1 cache=gold"},
		},
		"a recorded class that does not exist any more is kept": {
			containers: []state.Existing{existing(container("a-1", "cache=lead"), assigned(cache, "lead", classes.SourcePod))},
			want:       []string{"a-1 cache=lead"},
		},
		"a removed class leaves the default of another resource as it is": {
			containers: []state.Existing{
				existing(container("a-1", "disk=tape"), assigned(disk, "tape", classes.SourcePod), assigned(cache, "bronze", classes.SourceDefault)),
			},
			want: []string{"a-1 disk=tape cache=bronze"},
		},
		"a recorded default is replaced by the present default": {
			containers: []state.Existing{existing(container("a-1", ""), iron)},
			want:       []string{"a-1 cache=bronze(iron)"},
		},
		"a change after the creation is kept": {
			containers: []state.Existing{existing(container("a-1", "cache=gold"), gold)}, changes: changes{"a-1": silver},
			want: []string{"a-1 cache=silver(gold)"},
		},
		"a record that is also an annotation of the pod is ignored": {
			containers: []state.Existing{existing(forged(container("a-1", "cache=silver"), gold), gold)},
			want:       []string{"a-1 cache=silver()"},
		},
		"an unrecorded container gets what it requests if there is room": {
			containers: []state.Existing{existing(container("a-1", "cache=gold"))},
			want:       []string{"a-1 cache=gold()"},
		},
		"an unrecorded container without room gets the defaults": {
			containers: []state.Existing{existing(container("a-1", "cache=gold")), existing(container("b-1", "cache=gold"), gold)},
			want:       []string{"a-1 cache=bronze()", "b-1 cache=gold"}, refused: []string{"a ClassFull"},
		},
		"an unrecorded container that requests an unknown class gets the defaults": {
			containers: []state.Existing{existing(container("a-1", "cache=lead"))},
			want:       []string{"a-1 cache=bronze()"}, refused: []string{"a UnknownClass"},
		},
		"an unrecorded container keeps the class of an update, and is not refused if there is no room for its request": {
			containers: []state.Existing{existing(container("a-1", "cache=gold")), existing(container("b-1", "cache=gold"), gold)},
			changes:    changes{"a-1": silver},
			want:       []string{"a-1 cache=silver()", "b-1 cache=gold"},
		},
		"an unrecorded container that has not started is left to its start": {
			containers: []state.Existing{{Holder: container("a-1", "cache=gold")}},
		},
		"a pod gets what it requests": {
			pods: []classes.Holder{pod("a-1", "net=high")},
			want: []string{"a-1 net=high"},
		},
		"a running pod gets a full class": {
			pods: []classes.Holder{pod("a-1", "net=high"), pod("b-1", "net=high")},
			want: []string{"a-1 net=high", "b-1 net=high"},
		},
		"a pod that requests an unknown class gets the defaults": {
			pods: []classes.Holder{pod("a-1", "net=lead")},
			want: []string{"a-1"}, refused: []string{"a UnknownClass"},
		},
		"a stopped sandbox is left out": {
			pods: []classes.Holder{pod("a-2", "net=high"), stopped(pod("a-1", "net=low"))},
			want: []string{"a-2 net=high"},
		},
		"a sandbox without a process is kept if a container of it runs": {
			pods: []classes.Holder{stopped(pod("a-1", "net=low"))}, containers: []state.Existing{existing(within("a-1", container("a-2", "cache=gold")), gold)},
			want: []string{"a-1 net=low", "a-2 cache=gold"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			for id, changed := range test.changes {
				f.changes[id] = changed
			}
			var failed []string
			for _, a := range f.Rebuild(test.pods, test.containers) {
				failed = append(failed, a.ID)
			}
			if len(failed) != len(test.refused) {
				t.Errorf("the requests of %v were not admitted, want those of %v", failed, test.refused)
			}
			f.wantHolders(t, test.want...)
			f.wantRefused(t, test.refused...)
		})
	}
}

// forged returns a container whose pod has an annotation with the same name and value as the record of the plugin.
func forged(h classes.Holder, record ...classes.Assignment) classes.Holder {
	h.PodAnnotations[state.RecordAnnotation] = existing(h, record...).ContainerAnnotations[state.RecordAnnotation]
	return h
}

func stopped(pod classes.Holder) classes.Holder {
	pod.PID = 0
	return pod
}

func within(sandbox string, container classes.Holder) classes.Holder {
	container.SandboxID = sandbox
	return container
}

func TestRebuildForgetsWhatDoesNotExist(t *testing.T) {
	f := newFixture()
	f.run(t, container("a-1", "cache=gold"))
	f.changes["a-1"] = []classes.Assignment{assigned(cache, "gold", classes.SourceUpdate)}
	f.Rebuild(nil, nil)
	f.wantHolders(t)
	if len(f.changes) != 0 {
		t.Errorf("saved changes: %v, want none", f.changes)
	}
}

func TestRebuildForgetsThePendingRequestsOfEndedContainers(t *testing.T) {
	f := newFixture()
	// There is no class lead, so the request is pending, which is reported as a refusal.
	f.Rebuild(nil, []state.Existing{existing(container("a-1", "cache=lead"))})
	f.wantRefused(t, "a UnknownClass")
	f.Rebuild(nil, nil) // the container has ended
	f.wantNoneRefused(t)
}

func TestPodsAreTrackedWhileAResourceOfPodsIsConfiguredOrInUse(t *testing.T) {
	f := newFixture()
	pods := []classes.Holder{pod("a-1", "net=high")}
	f.Rebuild(pods, nil)
	f.offer(withoutNet)
	if !f.HasPodScope() {
		t.Error("a resource that is in use is not tracked")
	}
	f.Release("a-1")
	if f.HasPodScope() {
		t.Error("a resource that is not in use is tracked")
	}
	f.Rebuild(pods, nil)
	f.wantHolders(t)
}

func TestAPodIsUnverifiedUntilItIsVerifiedOnce(t *testing.T) {
	f := newFixture()
	wantAfterRebuild := func(unverified bool) {
		t.Helper()
		f.Rebuild([]classes.Holder{pod("a-1", "net=high")}, nil)
		if got := f.Where(isUnverified) != nil; got != unverified {
			t.Errorf("the pod is unverified: %v, want %v", got, unverified)
		}
	}
	wantAfterRebuild(true)
	wantAfterRebuild(true)
	f.Verified([]string{"a-1"}, nil)
	wantAfterRebuild(false)
}

// TestPodsGetTheirClassesAfterTheVerificationIfThereIsRoom has two pods that request class high of capacity 1. The kernel shows
// those in `inClass` in this class, and those in `elsewhere` in another one.
func TestPodsGetTheirClassesAfterTheVerificationIfThereIsRoom(t *testing.T) {
	for name, test := range map[string]struct {
		inClass, elsewhere, want, refused []string
	}{
		"pods in their classes stay, also over capacity": {
			inClass: []string{"a-1", "b-1"}, want: []string{"a-1 net=high", "b-1 net=high"},
		},
		"a pod that is elsewhere does not displace one that is in its class": {
			inClass: []string{"b-1"}, elsewhere: []string{"a-1"}, want: []string{"a-1", "b-1 net=high"}, refused: []string{"a ClassFull"},
		},
		"of pods that are elsewhere the first gets the last slot": {
			elsewhere: []string{"a-1", "b-1"}, want: []string{"a-1 net=high", "b-1"}, refused: []string{"b ClassFull"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			f.Rebuild([]classes.Holder{pod("a-1", "net=high"), pod("b-1", "net=high")}, nil)
			var elsewhere []state.Shown
			for _, id := range test.elsewhere {
				elsewhere = append(elsewhere, state.Shown{ID: id})
			}
			if failed := f.Verified(test.inClass, elsewhere); len(failed) != len(test.refused) {
				t.Errorf("the requests of %v were not admitted", failed)
			}
			f.wantHolders(t, test.want...)
			f.wantRefused(t, test.refused...)
			if f.Where(isUnverified) != nil {
				t.Error("unverified pods are left")
			}
		})
	}
}

// TestARefusedPodIsReportedInTheClassThatTheKernelShows has a pod that requests class high, which is full, and is then assigned the default
// class low. Until the kernel shows the pod in low, it is reported in the system default, which wantHolders shows as "()".
func TestARefusedPodIsReportedInTheClassThatTheKernelShows(t *testing.T) {
	for name, test := range map[string]struct {
		shown map[string]string
		want  string
	}{
		"no class yet":       {nil, "a-1 net=low()"},
		"the system default": {map[string]string{net: ""}, "a-1 net=low()"},
		"the default class":  {map[string]string{net: "low"}, "a-1 net=low"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			f.offer(func(r []classes.Resource) []classes.Resource {
				r[2].DefaultClass = "low" // r[2] is net
				return r
			})
			f.Rebuild([]classes.Holder{pod("a-1", "net=high"), pod("b-1", "net=high")}, nil)
			f.Verified([]string{"b-1"}, []state.Shown{{ID: "a-1", Classes: test.shown}}) // b-1 has the only slot of high, so a-1 is refused
			f.wantHolders(t, test.want, "b-1 net=high")
			if h, _ := f.Get("a-1"); test.want == "a-1 net=low" && len(h.Observed) > 0 {
				t.Errorf("the field Observed is %v, want none, because a-1 is in its class", h.Observed)
			}
		})
	}
}

// TestStoredValuesOfAnotherClassAreStaleUntilTheyAreReplaced has the stored value "gone", which is stale for the test backend. If the
// container never had a class, another program has stored it.
func TestStoredValuesOfAnotherClassAreStaleUntilTheyAreReplaced(t *testing.T) {
	gold := assigned(cache, "gold", classes.SourcePod)
	for name, test := range map[string]struct {
		container state.Existing
		stored    string
		want      bool
	}{
		"values of another class":                {existing(container("a-1", "cache=gold"), gold), "gone", true},
		"values of its class":                    {existing(container("a-1", "cache=gold"), gold), "gold", false},
		"values that another program has stored": {existing(container("a-1", "cache=")), "gone", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			test.container.Stored = map[string]string{"test.class": test.stored}
			f.Rebuild(nil, []state.Existing{test.container})
			if e, _ := f.Get("a-1"); (e.Stored == state.StoredStale) != test.want {
				t.Errorf("the stored values are %v, want stale: %v", e.Stored, test.want)
			}
			f.Modify("a-1", func(h *state.Holding) { h.Stored = state.StoredByUpdate })
			if e, _ := f.Get("a-1"); e.Stored == state.StoredStale {
				t.Error("the stored values are stale after they were replaced")
			}
		})
	}
}

func TestTheRuntimeMayStoreValuesOfContainersThatHadAClass(t *testing.T) {
	f := newFixture()
	f.run(t, container("a-1", "disk=fast"))
	f.run(t, container("b-1", ""))
	f.run(t, container("c-1", "")) // its class was changed by an update before
	f.Modify("c-1", (*state.Holding).AskedToStore)
	for id, want := range map[string]bool{"a-1": true, "b-1": false, "c-1": true} {
		if h, _ := f.Get(id); h.MayStore(disk) != want {
			t.Errorf("container %s: MayStore is %v", id, !want)
		}
	}
}

func TestTheNodeIsSynchronizedFromRebuildToTheEndOfTheConnection(t *testing.T) {
	f := newFixture()
	if f.Runtime().Synchronized || !f.Runtime().Since.IsZero() {
		t.Error("synchronized before the runtime has reported anything")
	}
	f.Rebuild(nil, nil)
	if !f.Runtime().Synchronized || !f.Status().Runtime.Since.Equal(f.time) {
		t.Errorf("after a synchronization, the status of the runtime is %+v", f.Status().Runtime)
	}
	f.UpdateRuntime(func(r *state.RuntimeInfo) { r.Synchronized = false })
	if f.Runtime().Synchronized || f.Runtime().Since.IsZero() {
		t.Error("after the runtime disconnected: Synchronized is true, or Since is zero")
	}
}

func TestContainersThatWereCreatedWithoutThePluginAreCountedOnce(t *testing.T) {
	f := newFixture()
	containers := []state.Existing{
		existing(container("a-1", "cache=gold")), existing(container("b-1", "cache=lead")), // b is counted, too, although it is refused
		// c has a record, so it was created with the plugin, and d requests nothing.
		existing(container("c-1", "cache=silver"), assigned(cache, "silver", classes.SourcePod)), existing(container("d-1", "")),
	}
	for range 2 {
		f.Rebuild(nil, containers)
		if got := f.Status().Adopted; got != 2 {
			t.Errorf("%d containers are counted as adopted, want 2", got)
		}
	}
}
