// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
)

// duringARefusedChange starts a change of a container's class to silver, and calls the function `do` while the change waits for the
// kernel. The kernel then refuses the change.
func (f *fixture) duringARefusedChange(t *testing.T, do func()) error {
	t.Helper()
	released := make(chan struct{})
	reached := f.backends[cache].Stick("enforce silver", released)
	f.backends[cache].Fail("enforce silver", errors.New("no space left on device"))
	done := make(chan error, 1)
	go func() { done <- f.Update(t.Context(), ownerA, map[string]string{cache: "silver"}) }()
	<-reached
	do()
	close(released)
	return <-done
}

// wantObserved checks the class that is reported for a container outside of its desired class.
func (f *fixture) wantObserved(t *testing.T, id, class string) {
	t.Helper()
	if got := f.has(id, cache); got != class+"/adopted" {
		t.Errorf("%s is reported in %q, want %q", id, got, class+"/adopted")
	}
}

func (f *fixture) inUse(class string) int { return nodetest.InUse(f.Status(), cache, class) }

// TestNoOtherContainerGetsAClassThatAChangeMayReturnTo requests class gold, which has a capacity of 1, for a second
// container, while a change moves the only container in gold to class silver.
func TestNoOtherContainerGetsAClassThatAChangeMayReturnTo(t *testing.T) {
	for name, synchronize := range map[string]bool{
		"the runtime stays connected": false, "the runtime reconnects during the change": true,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			a := pod("a", requesting(cache+"=gold"))
			c := f.mustRun(t, a, container("c-a"))
			err := f.duringARefusedChange(t, func() {
				if synchronize {
					f.Synchronize([]classes.Holder{a}, []state.Existing{running(a, c)})
				}
				if _, err := f.run(t, pod("b", requesting(cache+"=gold")), container("c-b")); !errors.Is(err, classes.ErrClassFull) {
					t.Errorf("the creation of another container returned %v, want ErrClassFull", err)
				}
			})
			if err == nil {
				t.Error("the change succeeded")
			}

			f.wantClass(t, "c-a", cache, "gold/pod")
			if gold, silver := f.inUse("gold"), f.inUse("silver"); gold != 1 || silver != 0 {
				t.Errorf("%d assignments of gold and %d of silver, want 1 and 0", gold, silver)
			}
		})
	}
}

// TestAContainerThatCannotLeaveAClassKeepsItsSlotThere simulates a change to class gold, which has a capacity of 1. The
// change fails, and the kernel refuses to move the container back.
func TestAContainerThatCannotLeaveAClassKeepsItsSlotThere(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", requesting(cache+"=silver,"+disk+"=slow")), container("c-a"))
	f.backends[disk].Fail("enforce fast", errors.New("no such device"))
	f.backends[cache].Fail("enforce silver", errors.New("no space left on device"))
	if err := f.Update(t.Context(), ownerA, map[string]string{cache: "gold", disk: "fast"}); err == nil {
		t.Fatal("the change succeeded")
	}

	f.wantObserved(t, "c-a", "gold")
	b := pod("b", requesting(cache+"=gold"))
	if _, err := f.run(t, b, container("c-b")); !errors.Is(err, classes.ErrClassFull) {
		t.Errorf("the creation of another container returned %v, want ErrClassFull", err)
	}

	f.backends[cache].Fail("enforce silver", nil)
	f.Reconcile(t.Context())
	f.wantClass(t, "c-a", cache, "silver/pod")
	f.mustRun(t, b, container("c-b"))
}

// TestVolumesThatWereCreatedWithoutThePluginStayWithinTheCapacity: the plugin is away for a moment, e.g. during an
// upgrade. Meanwhile, containers start whose volumes request a class of capacity 1.
func TestVolumesThatWereCreatedWithoutThePluginStayWithinTheCapacity(t *testing.T) {
	f, volumes := newVolumeFixture(t)
	var all []state.Existing
	for _, id := range []string{"c1", "c2", "c3"} {
		c := withVolumes(id, "/data=rare")
		c.PID = 1
		all = append(all, state.Existing{Holder: c, Started: true})
	}

	for range 2 { // the second connection finds what the first one left
		f.Synchronize(nil, all)
		f.Reconcile(t.Context())
		if diff := cmp.Diff(map[string]string{"c1:/data": "rare"}, volumes.Enforced()); diff != "" {
			t.Errorf("classes of volumes (-want +got):\n%s", diff)
		}
		if used, refused := nodetest.InUse(f.Status(), volumeIO, "rare"), f.Refused(); used != 1 || len(refused) != 2 {
			t.Errorf("%d slots of rare are in use, and %d volumes are refused; want 1 and 2", used, len(refused))
		}
	}

	f.Stop("c1") // another container gets the slot
	f.Reconcile(t.Context())
	if used, refused := nodetest.InUse(f.Status(), volumeIO, "rare"), f.Refused(); used != 1 || len(refused) != 1 {
		t.Errorf("after the first container ended, %d slots of rare are in use, and %d volumes are refused; want 1 and 1", used, len(refused))
	}
}

// TestAVolumeKeepsItsClassWhenThePluginRestarts uses class rare, which has one slot. After the restart, the runtime lists
// another container that requests the class, before the one that has it.
func TestAVolumeKeepsItsClassWhenThePluginRestarts(t *testing.T) {
	f, volumes := newVolumeFixture(t)
	f.Synchronize(nil, nil)
	first, second := withVolumes("c1", "/data=rare"), withVolumes("c2", "/data=rare")
	second.PID = 2
	c := f.mustRun(t, pod("p-c1", first.PodAnnotations), container("c1"))

	f.restart(t)
	f.mustConfigure(t, volumeFiles)
	f.Synchronize(nil, []state.Existing{{Holder: second, Started: true}, running(pod("p-c1", first.PodAnnotations), c)})
	f.Reconcile(t.Context())
	if diff := cmp.Diff(map[string]string{"c1:/data": "rare"}, volumes.Enforced()); diff != "" {
		t.Errorf("classes of volumes (-want +got):\n%s", diff)
	}
}

// TestAVolumeTakesItsSlotWhenTheContainerStarts uses class rare, which has one slot.
func TestAVolumeTakesItsSlotWhenTheContainerStarts(t *testing.T) {
	f, _ := newVolumeFixture(t)
	c1, c2 := withVolumes("c1", "/data=rare"), withVolumes("c2", "/data=rare")
	c1.PID, c2.PID = 1, 2
	f.Synchronize(nil, []state.Existing{{Holder: c1, Started: true}, {Holder: c2}})
	f.Reconcile(t.Context())
	if err := finish(t)(f.StartContainer(c2)); !errors.Is(err, classes.ErrClassFull) {
		t.Errorf("the start returned %v, want ErrClassFull", err)
	}
	f.Stop("c1")
	if err := finish(t)(f.StartContainer(c2)); err != nil {
		t.Errorf("the start returned %v when the class had room", err)
	}
}

// TestALateStartGetsAClassOnlyWhenItHasRoom: a client of the runtime creates a container, and starts it more than five
// minutes later. containerd makes the cgroup only at the start, so the plugin has released the container meanwhile.
func TestALateStartGetsAClassOnlyWhenItHasRoom(t *testing.T) {
	now := time.Now()
	started := map[string]bool{}
	f := newFixture(t)
	f.restart(t, func(o *node.Options) {
		o.Now = func() time.Time { return now }
		o.HasCgroup = func(h classes.Holder) bool { return h.Container == "" || started[h.ID] } // pods have one
	})
	f.mustConfigure(t, files)
	f.Synchronize(nil, nil)

	a, b := pod("a", requesting(cache+"=gold")), pod("b", requesting(cache+"=gold"))
	first, _, err := f.create(t, a, container("c-a"))
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(6 * time.Minute)
	f.Reconcile(t.Context())
	started["c-b"] = true
	f.mustRun(t, b, container("c-b"))

	started["c-a"] = true
	f.wantRefusedUntilThereIsRoom(t, a, first)
}

// TestAContainerThatTheRuntimeDidNotListGetsAClassOnlyWhenItHasRoom: the plugin restarts while the runtime creates a
// container. The runtime does not list the container yet, so the new process gives its slot to another container.
func TestAContainerThatTheRuntimeDidNotListGetsAClassOnlyWhenItHasRoom(t *testing.T) {
	f := newFixture(t)
	a, b := pod("a", requesting(cache+"=gold")), pod("b", requesting(cache+"=gold"))
	first, _, err := f.create(t, a, container("c-a"))
	if err != nil {
		t.Fatal(err)
	}
	f.restart(t)
	f.mustConfigure(t, files)
	f.Synchronize(nil, nil)
	f.mustRun(t, b, container("c-b"))
	f.wantRefusedUntilThereIsRoom(t, a, first)
}

// wantRefusedUntilThereIsRoom starts container c-a, which was created in class gold, while c-b has the only slot. Some runtimes
// start the container although the plugin refuses it. It must then leave the class until c-b has ended.
func (f *fixture) wantRefusedUntilThereIsRoom(t *testing.T, p, c classes.Holder) {
	t.Helper()
	c.PID = 1
	if err := f.start(t, p, c); !errors.Is(err, classes.ErrClassFull) {
		t.Errorf("the late start returned %v, want ErrClassFull", err)
	}
	f.Reconcile(t.Context())
	f.wantClass(t, "c-b", cache, "gold/pod")
	f.wantClass(t, "c-a", cache, "bronze/default")
	if used := f.inUse("gold"); used != 1 {
		t.Errorf("%d slots of gold are in use, want 1", used)
	}

	f.Stop("c-b")
	f.Reconcile(t.Context())
	f.wantClass(t, "c-a", cache, "gold/pod")
}

// TestARefusalSaysThatThePodItselfRequestsMoreThanTheCapacity requests class rare, which has a capacity of 1, for three
// volumes of one pod.
func TestARefusalSaysThatThePodItselfRequestsMoreThanTheCapacity(t *testing.T) {
	f, _ := newVolumeFixture(t)
	f.Synchronize(nil, nil)
	const want = `is full: 1 of 1 in use, all by this pod itself, which requests more; available: gold`
	if _, _, err := f.CreateContainer(withVolumes("c1", "/a=rare,/b=rare,/c=rare")); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v; want %q in it", err, want)
	}
}
