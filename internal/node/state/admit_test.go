// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"errors"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
)

// errNoRoom simulates an error of the kernel.
var errNoRoom = errors.New("no space left on device")

// TestAdmit checks which classes a new holder gets, or why it is refused. For the form of `want`, see wantHolders.
func TestAdmit(t *testing.T) {
	for name, test := range map[string]struct {
		before func(*fixture, *testing.T)
		holder classes.Holder
		err    error
		want   []string
	}{
		"a container gets what it requests": {
			holder: container("a-1", "cache=gold,disk=fast"), want: []string{"a-1 cache=gold disk=fast"},
		},
		"a container that requests nothing gets the defaults": {
			holder: container("a-1", ""), want: []string{"a-1 cache=bronze"},
		},
		"a full class is refused, and the container gets no other class either": {
			before: func(f *fixture, t *testing.T) { f.run(t, container("a-1", "cache=gold")) },
			holder: container("b-1", "cache=gold,disk=fast"), err: classes.ErrClassFull, want: []string{"a-1 cache=gold"},
		},
		"a restarted container does not compete with its predecessor": {
			before: func(f *fixture, t *testing.T) { f.run(t, container("a-1", "cache=gold")) },
			holder: container("a-2", "cache=gold"), want: []string{"a-1 cache=gold", "a-2 cache=gold"},
		},
		"an unknown class is refused": {
			holder: container("a-1", "cache=lead"), err: classes.ErrUnknownClass,
		},
		"a class of an unavailable resource is refused": {
			before: func(f *fixture, _ *testing.T) { f.lackCache() },
			holder: container("a-1", "cache=gold"), err: classes.ErrUnavailable,
		},
		"an unavailable resource has no default": {
			before: func(f *fixture, _ *testing.T) { f.lackCache() },
			holder: container("a-1", ""), want: []string{"a-1"},
		},
		"a class that the backend cannot enforce is refused": {
			before: func(f *fixture, _ *testing.T) { f.backends[cache].Fail("adjust", errNoRoom) },
			holder: container("a-1", "cache=gold"), err: errNoRoom,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			if test.before != nil {
				test.before(f, t)
			}
			_, _, err := f.Admit(test.holder)
			if !errors.Is(err, test.err) {
				t.Errorf("error %v, want %v", err, test.err)
			}
			f.wantHolders(t, test.want...)
		})
	}
}

func TestAdmitReturnsWhatTheRuntimeMustSet(t *testing.T) {
	f := newFixture()
	adjustment, assignments, err := f.Admit(container("a-1", "cache=gold"))
	if err != nil {
		t.Fatal(err)
	}
	if adjustment[classes.Setting{Name: classes.SettingClosID}] != "test-gold" || adjustment[classes.Unified("test.class")] != "gold" {
		t.Errorf("adjustment %+v, want that of class gold", adjustment)
	}
	if got := classes.ClassOf(assignments, cache); got != "gold" {
		t.Errorf("assigned class %q", got)
	}
}

// TestRelease releases holders by their IDs, and counts the slots that are still in use.
func TestRelease(t *testing.T) {
	for name, test := range map[string]struct {
		release []string
		inUse   int
	}{
		"a slot is free once all containers of its owner are released": {[]string{"a-1", "a-2"}, 0},
		"the slot stays while another container of its owner runs":     {[]string{"a-1"}, 1},
		"a second release changes nothing":                             {[]string{"a-1", "a-1"}, 1},
		"an unknown ID changes nothing":                                {[]string{"x"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			f.run(t, container("a-1", "cache=gold"))
			f.run(t, container("a-2", "cache=gold"))
			for _, id := range test.release {
				f.Release(id)
			}
			if got := nodetest.InUse(f.Status(), cache, "gold"); got != test.inUse {
				t.Errorf("%d slots of gold are in use, want %d", got, test.inUse)
			}
		})
	}
}

func TestReleaseForgetsChanges(t *testing.T) {
	f := newFixture()
	f.run(t, container("a-1", ""))
	f.changes["a-1"] = []classes.Assignment{assigned(cache, "silver", classes.SourceUpdate)}
	f.Release("a-1")
	if len(f.changes) != 0 {
		t.Errorf("saved changes: %v, want none", f.changes)
	}
}

func TestANewSandboxReplacesThatOfTheSamePod(t *testing.T) {
	f := newFixture()
	f.run(t, pod("a-1", "net=high"))
	f.run(t, pod("a-2", "net=high"))
	f.wantHolders(t, "a-2 net=high")
}

// TestAContainerThatWasCreatedWithoutThePluginIsAdmittedAtItsStart starts a container that is in the system default, which
// wantHolders shows as "()" beside another class.
func TestAContainerThatWasCreatedWithoutThePluginIsAdmittedAtItsStart(t *testing.T) {
	for name, test := range map[string]struct {
		request string
		err     bool
		want    []string
	}{
		"a requested class is assigned, and not enforced yet": {"cache=gold", false, []string{"a-1 cache=gold()"}},
		"a request for an unknown class is pending":           {"cache=lead", true, []string{"a-1 cache=bronze()"}},
		"a default is assigned, and not enforced yet":         {"", false, []string{"a-1 cache=bronze()"}},
		"a request for the system default changes nothing":    {"cache=", false, []string{"a-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			if _, err := f.Start(container("a-1", test.request)); (err != nil) != test.err {
				t.Errorf("the start returned the error %v", err)
			}
			f.wantHolders(t, test.want...)
		})
	}
}

func TestTheReconcilerSkipsAContainerWhileItsHookRuns(t *testing.T) {
	f := newFixture()
	if _, _, err := f.Admit(container("a-1", "cache=gold")); err != nil {
		t.Fatal(err)
	}

	e, err := f.Start(container("a-1", ""))
	if err != nil {
		t.Fatal(err)
	}

	if ids := f.Where(func(h *state.Holding) bool { return h.Phase.Reconciled() }); len(ids) != 0 {
		t.Errorf("the reconciler gets %v during the hook, want nothing", ids)
	}

	if err := f.Finish(e, nil); err != nil {
		t.Fatal(err)
	}

	if ids := f.Where(func(h *state.Holding) bool { return h.Phase.Reconciled() }); len(ids) != 1 {
		t.Errorf("the reconciler gets %v after the hook", ids)
	}
}

// TestOnlyContainersThatAreCreatedInTheirClassAreStarting: the plugin only verifies the class of a container that is Starting.
func TestOnlyContainersThatAreCreatedInTheirClassAreStarting(t *testing.T) {
	f := newFixture()
	if _, _, err := f.Admit(container("a-1", "cache=gold")); err != nil {
		t.Fatal(err)
	}
	if e, err := f.Start(container("a-1", "")); err != nil || !e.Starting {
		t.Errorf("a container that was created in its class: Starting is %v, the error is %v", e.Starting, err)
	}
	if e, err := f.Start(container("b-1", "")); err != nil || e.Starting {
		t.Errorf("a container that was created without the plugin: Starting is %v, the error is %v", e.Starting, err)
	}
}

func TestAnEnforcementThatFailedIsARefusalThatKeepsTheSlot(t *testing.T) {
	f := newFixture()
	e, err := f.AdmitPod(pod("a-1", "net=high"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Finish(e, errNoRoom); !errors.Is(err, errNoRoom) {
		t.Errorf("error %v, want errNoRoom", err)
	}
	f.wantRefused(t, "a EnforcementFailed")
	f.wantHolders(t, "a-1 net=high()")
}

// missed starts a container that was created while the plugin was not connected, and that requests an unknown class.
func missed(f *fixture, t *testing.T) {
	t.Helper()
	if _, err := f.Start(container("a-1", "cache=lead")); !errors.Is(err, classes.ErrUnknownClass) {
		t.Fatalf("error %v, want ErrUnknownClass", err)
	}
}

// TestARefusedStartIsReported refuses to start a container that requests an unknown class, and checks after which events the
// refusal is still reported.
func TestARefusedStartIsReported(t *testing.T) {
	for name, test := range map[string]struct {
		after  func(*fixture)
		refuse []string
	}{
		"when the runtime stops the container":                       {func(f *fixture) { f.Release("a-1") }, []string{"a UnknownClass"}},
		"while the container runs although it was refused":           {func(f *fixture) { f.Refresh("a-1") }, []string{"a UnknownClass"}},
		"when its request is retried before the container has ended": {func(f *fixture) { f.Refresh("a-1"); f.Release("a-1") }, []string{"a UnknownClass"}},
		"when the next synchronization does not list the container":  {func(f *fixture) { f.Rebuild(nil, nil) }, []string{"a UnknownClass"}},
		"until a synchronization lists its successor in its class": {func(f *fixture) {
			f.Rebuild(nil, []state.Existing{existing(container("a-2", "cache=gold"), assigned(cache, "gold", classes.SourcePod))})
		}, nil},
		"when its successor waits for its class": {func(f *fixture) {
			f.Rebuild(nil, []state.Existing{existing(container("a-2", "cache=lead"))})
		}, []string{"a UnknownClass"}},
		"while the container is in its default classes": {func(f *fixture) { f.Observe("a-1", cache, "bronze") }, []string{"a UnknownClass"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			missed(f, t)
			test.after(f)
			f.wantRefused(t, test.refuse...)
		})
	}
}

// TestARefusalOfAStartOutlivesTheAdmissionOfItsRequest admits the request of a container whose start was refused. The
// refusal is reported until the kernel shows the container in its class. If the container ends before that, the refusal
// stays, because it is the reason for the end.
func TestARefusalOfAStartOutlivesTheAdmissionOfItsRequest(t *testing.T) {
	for name, test := range map[string]struct {
		after  func(*fixture)
		refuse []string
	}{
		"the container ends, and the refusal stays":             {func(f *fixture) { f.Release("b-1") }, []string{"b ClassFull"}},
		"the container runs in its class, and the refusal ends": {func(f *fixture) { f.Observe("b-1", cache, "gold") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			f.run(t, container("a-1", "cache=gold"))
			if _, err := f.Start(container("b-1", "cache=gold")); !errors.Is(err, classes.ErrClassFull) {
				t.Fatalf("error %v", err)
			}
			f.Release("a-1")
			f.StartRefused("b-1")
			f.Refresh("b-1") // admits the request, because a-1 has ended
			test.after(f)
			f.wantRefused(t, test.refuse...)
		})
	}
}

func TestARefusalEndsWhenTheContainerRunsInItsClassNevertheless(t *testing.T) {
	for name, meanwhile := range map[string]func(*fixture){
		"without a synchronization": func(*fixture) {},
		"after a synchronization": func(f *fixture) {
			f.Rebuild(nil, []state.Existing{existing(container("a-1", "cache=gold"), assigned(cache, "gold", classes.SourcePod))})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			if _, _, err := f.Admit(container("a-1", "cache=gold")); err != nil {
				t.Fatal(err)
			}

			e, err := f.Start(container("a-1", "cache=gold"))
			if err != nil {
				t.Fatal(err)
			}

			if f.Finish(e, errNoRoom) == nil {
				t.Fatal("no error")
			}

			f.wantHolders(t, "a-1 cache=gold()")
			f.StartRefused("a-1")
			meanwhile(f)
			f.wantRefused(t, "a EnforcementFailed")
			f.Observe("a-1", cache, "gold")
			f.wantNoneRefused(t)
		})
	}
}
