// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// during starts a change of a container's class to silver, and calls the function do while the change waits for the
// kernel. If refused is true, the kernel then refuses the change. Otherwise the change succeeds.
func (f *fixture) during(t *testing.T, refused bool, do func()) error {
	t.Helper()
	released := make(chan struct{})
	reached := f.backends[cache].Stick("enforce silver", released)
	if refused {
		f.backends[cache].Fail("enforce silver", errors.New("no space left on device"))
	}
	done := make(chan error, 1)
	go func() { done <- f.Update(t.Context(), ownerA, map[string]string{cache: "silver"}) }()
	<-reached
	do()
	close(released)
	return <-done
}

func (f *fixture) wantObserved(t *testing.T, id, class string) {
	t.Helper()
	if got := f.has(id, cache); got != class+"/adopted" {
		t.Errorf("%s is reported in %q, want %q", id, got, class+"/adopted")
	}
}

func (f *fixture) inUse(class string) int { return f.InUse(cache, class) }

// TestNoOtherContainerGetsAClassThatAChangeMayReturnTo requests class gold, which has a capacity of 1, for a second
// container, while a change moves the only container in gold to class silver.
func TestNoOtherContainerGetsAClassThatAChangeMayReturnTo(t *testing.T) {
	for name, synchronize := range map[string]bool{"": false, "and the runtime reconnects during the change": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			a := pod("a", requesting(cache+"=gold"))
			c := f.mustRun(t, a, container("c-a"))
			err := f.during(t, true, func() {
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

func TestAConfirmedChangeFreesTheSlotOfTheClassBefore(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", requesting(cache+"=gold")), container("c-a"))
	if err := f.during(t, false, func() {}); err != nil {
		t.Fatal(err)
	}
	f.mustRun(t, pod("b", requesting(cache+"=gold")), container("c-b"))
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
