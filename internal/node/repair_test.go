// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

func (f *fixture) wantCorrections(t *testing.T, want map[state.Correction]uint64) {
	t.Helper()
	if diff := cmp.Diff(want, f.Status().Corrections); diff != "" {
		t.Errorf("corrections (-want +got):\n%s", diff)
	}
}

// resource returns the status of a resource.
func (f *fixture) resource(t *testing.T, name string) state.ResourceStatus {
	t.Helper()
	for _, r := range f.Status().Resources {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("the status does not have the resource %s", name)
	return state.ResourceStatus{}
}

func TestAContainerOutsideItsClassIsMovedBack(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", requesting("test.example/cache=gold")), container("c-a"))
	f.mustRun(t, pod("b", nil), container("c-b"))
	f.Repair(t.Context())
	f.wantCorrections(t, map[state.Correction]uint64{})
	f.backends[cache].Lose("c-a")
	f.backends[cache].Lose("c-b")
	f.Repair(t.Context())
	f.wantClass(t, "c-a", cache, "gold/pod")
	f.wantClass(t, "c-b", cache, "bronze/default")
	f.wantCorrections(t, map[state.Correction]uint64{{Resource: cache, What: state.AssignmentDrift}: 2})
}

// TestAContainerThatCannotBeMovedBackIsReportedInItsObservedClassAndKeepsItsSlot: the correction is counted when the
// container has been moved.
func TestAContainerThatCannotBeMovedBackIsReportedInItsObservedClassAndKeepsItsSlot(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", requesting("test.example/cache=gold")), container("c-a"))
	f.backends[cache].Lose("c-a")
	f.backends[cache].Fail("enforce gold", errors.New("refused"))
	for range 2 {
		f.Repair(t.Context())
		f.wantClass(t, "c-a", cache, "/adopted")
	}
	if used := f.resource(t, cache).InUse["gold"]; used != 1 {
		t.Errorf("%d slots of gold are in use, want 1", used)
	}
	f.wantCorrections(t, map[state.Correction]uint64{})
	f.backends[cache].Fail("enforce gold", nil)
	f.Repair(t.Context())
	f.wantClass(t, "c-a", cache, "gold/pod")
	f.wantCorrections(t, map[state.Correction]uint64{{Resource: cache, What: state.AssignmentDrift}: 1})
}

func TestDriftOfAConfigurationIsReported(t *testing.T) {
	f := newFixture(t)
	f.backends[disk].Damage(classes.Drift{Found: []string{"disk vdb is gone", "disk vdc is new"}})
	for range 2 {
		f.Repair(t.Context())
	}
	f.wantCorrections(t, map[state.Correction]uint64{{Resource: disk, What: state.ConfigurationDrift}: 1})
	conditions := f.resource(t, disk).Conditions
	if len(conditions) != 1 || conditions[0].Type != "KernelStateInSync" || !conditions[0].Healthy ||
		!strings.HasPrefix(conditions[0].Message, "drift corrected; drifts found: 1, the last at ") || !strings.HasSuffix(conditions[0].Message, "disk vdb is gone; disk vdc is new") {
		t.Errorf("conditions %v, want one: healthy, with one corrected drift", conditions)
	}
}

func TestAResourceThatFailsIsUnavailableUntilItIsRepaired(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", requesting("test.example/cache=gold")), container("c-a"))
	f.mustRun(t, pod("b", nil), container("c-b"))
	for _, failure := range []error{
		&classes.Unavailable{Reason: "NotMounted", Message: "resctrl is not mounted"}, errors.New("the kernel refused a group"),
	} {
		f.backends[cache].Fail("repair", failure)
		f.backends[cache].Fail("check", failure)
		f.backends[cache].Lose("c-a")
		f.backends[cache].Lose("c-b")
		changed := f.Changed()
		f.Repair(t.Context())
		unavailable := f.resource(t, cache).Unavailable
		if unavailable == nil || !strings.Contains(unavailable.Message, failure.Error()) {
			t.Errorf("unavailable: %v, want %v", unavailable, failure)
		}
		wantClosed(t, changed, "the resource is unavailable")
		f.wantClass(t, "c-a", cache, "/adopted")
		f.wantClass(t, "c-b", cache, "/") // requests nothing, and an unavailable resource has no default
		if _, _, err := f.CreateContainer(in(pod("c", requesting("test.example/cache=silver")), container("c-c"))); !errors.Is(err, classes.ErrUnavailable) {
			t.Errorf("the creation of a container that requests silver returned %v, want ErrUnavailable", err)
		}
		if _, _, err := f.CreateContainer(in(pod("d", nil), container("c-d"))); err != nil {
			t.Errorf("the creation of a container that requests nothing returned %v", err)
		}
		f.Stop("c-d")

		f.backends[cache].Fail("repair", nil)
		f.backends[cache].Fail("check", nil)
		f.Repair(t.Context())
		if unavailable := f.resource(t, cache).Unavailable; unavailable != nil {
			t.Errorf("after the repair, the resource is unavailable: %v", unavailable)
		}
		f.wantClass(t, "c-a", cache, "gold/pod")
		f.wantClass(t, "c-b", cache, "bronze/default")
	}
}

// TestAnUnavailableResourceIsOfferedOnceItIsAvailable simulates a machine on which resctrl is mounted later.
func TestAnUnavailableResourceIsOfferedOnceItIsAvailable(t *testing.T) {
	f := newFixture(t)
	f.restart(t)
	f.backends[cache].Lack(&classes.Unavailable{Reason: "NotMounted", Message: "resctrl is not mounted"})
	f.mustConfigure(t, files)
	f.Repair(t.Context())
	if f.resource(t, cache).Unavailable == nil {
		t.Error("the resource is offered before resctrl is mounted")
	}
	f.backends[cache].Lack(nil)
	f.Repair(t.Context())
	f.mustRun(t, pod("a", requesting("test.example/cache=gold")), container("c-a"))
	f.wantClass(t, "c-a", cache, "gold/pod")
}

// TestStoredValuesOfLostDevicesAreReplaced loses a device while the runtime has stored values of the resource for two of three
// containers: for c-a those of its class, and for c-c those of the change to no class. The runtime could write these values again, and they
// name the lost device.
func TestStoredValuesOfLostDevicesAreReplaced(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", requesting("test.example/disk=slow")), container("c-a"))
	f.mustRun(t, pod("b", nil), container("c-b"))
	f.mustRun(t, pod("c", requesting("test.example/disk=slow")), container("c-c"))
	f.mustUpdate(t, qos.Subject{PodUID: "uid-c", Container: "main"}, map[string]string{disk: ""})
	clear(f.unified)
	f.Repair(t.Context())
	if len(f.unified) > 0 {
		t.Errorf("the runtime got %v, want nothing, because no device was lost", f.unified)
	}
	f.backends[disk].Damage(classes.Drift{Found: []string{"disk vdb is gone"}, DevicesGone: true})
	f.Disconnected() // the first Repair finds the loss, and cannot call the runtime
	f.Repair(t.Context())
	f.Connected(f, state.RuntimeInfo{Name: "test"})
	f.Repair(t.Context())
	want := map[string]map[string]string{"c-a": {"test.class": "slow"}, "c-c": {"test.class": ""}}
	if diff := cmp.Diff(want, f.unified); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}

	clear(f.unified)
	f.Repair(t.Context())
	if len(f.unified) > 0 {
		t.Errorf("the runtime got %v again", f.unified)
	}
	f.wantClass(t, "c-a", disk, "slow/pod")
	f.wantClass(t, "c-c", disk, "/update")
}

func TestAContainerThatEndedWithoutAnEventIsReleased(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", requesting("test.example/cache=gold")), container("c-a"))
	f.backends[disk].Fail("observe", classes.ErrEnded)
	f.Repair(t.Context())
	if left := f.Assignments(); len(left) > 0 {
		t.Errorf("the ended container is still reported: %v", left)
	}

	f.backends[disk].Fail("observe", nil)
	f.mustRun(t, pod("b", requesting("test.example/cache=gold")), container("c-b")) // gets the only slot of gold
	f.Stop("c-a")                                                                   // a late event changes nothing
	f.wantClass(t, "c-b", cache, "gold/pod")
}

// TestMoveThreadsAllocatesLittleForUnchangedContainers measures the allocations of MoveThreads, which runs twice a
// second.
func TestMoveThreadsAllocatesLittleForUnchangedContainers(t *testing.T) {
	const containers, calls = 100, 20
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for i := range containers {
			name := strconv.Itoa(i)
			f.mustRun(t, pod(name, requesting("test.example/cache=silver")), container("c-"+name))
		}
		synctest.Wait() // the pods have been read

		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range calls {
			f.MoveThreads(t.Context(), false)
		}
		runtime.ReadMemStats(&after)
		if bytes := (after.TotalAlloc - before.TotalAlloc) / calls / containers; bytes > 50 {
			t.Errorf("MoveThreads allocates %d bytes for each container", bytes)
		}
	})
}

// slowRuntime records the calls of SetUnified. For a container in the map `errs`, SetUnified returns this error.
type slowRuntime struct {
	calls []string
	errs  map[string]error
}

func (r *slowRuntime) SetUnified(_ context.Context, id string, _ map[string]string) error {
	r.calls = append(r.calls, id)
	return r.errs[id]
}

// withStaleValues returns a node whose runtime has stored values of a lost device for three containers, and returns errors
// when they are replaced.
func withStaleValues(t *testing.T, errs map[string]error) (*fixture, *slowRuntime) {
	t.Helper()
	f, runtime := newFixture(t), &slowRuntime{errs: errs}
	for _, name := range []string{"a", "b", "c"} {
		f.mustRun(t, pod(name, requesting("test.example/disk=slow")), container("c-"+name))
	}
	f.Connected(runtime, state.RuntimeInfo{Name: "test"})
	f.backends[disk].Damage(classes.Drift{Found: []string{"disk vdb is gone"}, DevicesGone: true})
	return f, runtime
}

func TestARuntimeThatTimesOutIsCalledOnceInARound(t *testing.T) {
	f, runtime := withStaleValues(t, map[string]error{"c-a": state.ErrUnanswered, "c-b": state.ErrUnanswered, "c-c": state.ErrUnanswered})
	f.Repair(t.Context())
	if len(runtime.calls) != 1 {
		t.Errorf("the runtime was called for %v, want one container", runtime.calls)
	}
	runtime.calls, runtime.errs = nil, nil
	f.Repair(t.Context())
	if diff := cmp.Diff([]string{"c-a", "c-b", "c-c"}, runtime.calls); diff != "" {
		t.Errorf("in the next round, containers for which the runtime was called (-want +got):\n%s", diff)
	}
}

func TestOnlyTheContainerForWhichTheRuntimeFailsIsRetried(t *testing.T) {
	f, runtime := withStaleValues(t, map[string]error{"c-b": errors.New("no such task")})
	for range 2 {
		f.Repair(t.Context())
	}
	if diff := cmp.Diff([]string{"c-a", "c-b", "c-c", "c-b"}, runtime.calls); diff != "" {
		t.Errorf("containers for which the runtime was called in two rounds (-want +got):\n%s", diff)
	}
}

// TestStaleStoredValuesAreReplacedAfterARestart has a runtime that has stored values of a lost device for container a, the
// values of its class for b, and no values for c. Only those of a are replaced.
func TestStaleStoredValuesAreReplacedAfterARestart(t *testing.T) {
	f := newFixture(t)
	var exist []state.Existing
	for name, stored := range map[string]map[string]string{"a": {"test.class": "slow gone"}, "b": {"test.class": "slow"}, "c": nil} {
		p := pod(name, requesting("test.example/disk=slow"))
		c := f.mustRun(t, p, container("c-"+name))
		e := running(p, c)
		e.Stored = stored
		exist = append(exist, e)
	}
	f.restart(t)
	f.mustConfigure(t, files)
	f.Synchronize(nil, exist)
	clear(f.unified)
	for range 2 {
		f.Reconcile(t.Context())
	}
	if diff := cmp.Diff(map[string]map[string]string{"c-a": {"test.class": "slow"}}, f.unified); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
}

// TestAClassIsEnforcedAgainIfTheValuesMatchNoClass makes the values of the container's cgroup match no
// class. The container is reported without a class until the plugin can enforce its class again.
func TestAClassIsEnforcedAgainIfTheValuesMatchNoClass(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", requesting("test.example/disk=slow")), container("c-a"))
	f.backends[disk].Blur(true)
	f.backends[disk].Fail("enforce slow", errors.New("refused"))
	for range 2 {
		f.Repair(t.Context())
		if got := f.has("c-a", disk); got != "/adopted" {
			t.Errorf("the container is reported in %q, want /adopted", got)
		}
	}
	f.backends[disk].Fail("enforce slow", nil)
	f.Repair(t.Context())
	f.wantClass(t, "c-a", disk, "slow/pod")
}

func TestAContainerIsReleasedIfItsProcessIsGoneOrIsAnother(t *testing.T) {
	for name, later := range map[string]map[int]uint64{"gone": {}, "another process has its PID": {1: 700}} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			processes := map[int]uint64{1: 500}
			f.restart(t, func(o *node.Options) {
				o.StartTime = func(pid int) (uint64, bool) {
					at, exists := processes[pid]
					return at, exists
				}
			})
			f.mustConfigure(t, files)
			f.mustRun(t, pod("a", requesting("test.example/cache=gold")), container("c-a"))
			f.Repair(t.Context())
			f.wantClass(t, "c-a", cache, "gold/pod")
			processes = later
			f.Repair(t.Context())
			if left := f.Assignments(); len(left) > 0 {
				t.Errorf("the ended container is still reported: %v", left)
			}
		})
	}
}

// TestAPodThatCouldNotBeVerifiedIsVerifiedAgain has two pods that request a class with one slot. Both have the class until
// the plugin can observe that neither is in it.
func TestAPodThatCouldNotBeVerifiedIsVerifiedAgain(t *testing.T) {
	f := bounded(t)
	f.Synchronize([]classes.Holder{sandbox("a", "a-1"), sandbox("b", "b-1")}, nil)
	f.backends[net].Fail("observe", errors.New("not now"))
	f.Reconcile(t.Context())
	f.backends[net].Fail("observe", nil)
	for id := range f.backends[net].Enforced() {
		f.backends[net].Lose(id)
	}
	f.Reconcile(t.Context())
	if got := f.Status().Resources[2].InUse["high"]; got != 1 {
		t.Errorf("%d slots of class high are in use, want 1", got)
	}
}

// TestThreadsThatCannotBeMovedAreLoggedOnce has two failures, a success and a failure. The second failure is not
// logged, because the first one was.
func TestThreadsThatCannotBeMovedAreLoggedOnce(t *testing.T) {
	f := newFixture(t)
	var log strings.Builder
	f.restart(t, func(o *node.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	f.mustConfigure(t, files)
	f.Synchronize(nil, nil)
	f.mustRun(t, pod("a", requesting("test.example/cache=silver")), container("c-a"))
	f.mustUpdate(t, ownerA, map[string]string{cache: "gold"})
	for _, failure := range []error{errors.New("no group"), errors.New("no group"), nil, errors.New("no group")} {
		f.backends[cache].Fail("moveThreads", failure)
		f.MoveThreads(t.Context(), false)
	}
	if logged := strings.Count(log.String(), "cannot move threads to the class of their container"); logged != 2 {
		t.Errorf("logged %d times:\n%s", logged, &log)
	}
}

func TestAChangeThatWaitsForAnotherTimesOut(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", nil), container("c-a"))
	released := make(chan struct{})
	reached := f.backends[cache].Stick("repair", released)
	repaired := make(chan struct{})
	go func() { f.Repair(t.Context()); close(repaired) }()
	<-reached
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	err := f.Update(ctx, ownerA, map[string]string{cache: "gold"})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "another change is still in progress") {
		t.Errorf("error is %v, want that another change is in progress", err)
	}
	close(released)
	<-repaired
	f.wantClass(t, "c-a", cache, "bronze/default")
}
