// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

func TestAFaultAtAnyOperationIsRolledBack(t *testing.T) {
	for name, spec := range machines() {
		if spec.L3 == nil {
			continue
		}
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, late %v", name, late), func(t *testing.T) { faultAtAnyOperation(t, spec, late) })
		}
	}
}

// faultAtAnyOperation lets one operation after the other fail. If `late` is true, the operation takes effect before it
// fails.
func faultAtAnyOperation(t *testing.T, spec sim.Spec, late bool) {
	from := "options: {mb: {optional: true}}" + twoPartitions
	to := "options: {mb: {optional: true}}" + others
	for n := 1; ; n++ {
		fs := sim.New(spec)
		b := newBackend(fs, nil)
		apply(t, b, from)
		before, schemata := fs.Dump(), b.Schemata()
		fs.Inject(func(call sim.Call) *sim.Fault {
			if call.N != n {
				return nil
			}
			return &sim.Fault{Errno: syscall.EINVAL, Status: "The mask f0f has non-consecutive 1-bits", Late: late}
		})
		err := b.Apply(t.Context(), parse(t, to))
		if fs.Calls() < n {
			must(t, err)
			if n < 6 {
				t.Errorf("only %d operations", n-1)
			}
			return
		}
		if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "The mask f0f has non-consecutive 1-bits") {
			t.Errorf("operation %d: error without errno or status: %v", n, err)
		}
		if diff := cmp.Diff(before, fs.Dump()); diff != "" {
			t.Errorf("after a failure of operation %d, resctrl has changed: %s", n, diff)
		}
		if diff := cmp.Diff(schemata, b.Schemata()); diff != "" {
			t.Errorf("after a failure of operation %d, the reported schemata have changed: %s", n, diff)
		}
		if condition := b.Status().Conditions[0]; condition.Type != qos.ConditionConfigurationApplied || condition.Healthy || condition.Message != err.Error() {
			t.Errorf("operation %d: status is %+v", n, condition)
		}
		if _, err := b.Adjust(classes.Holder{}, "", "gold"); err != nil {
			t.Errorf("operation %d: the old configuration is not live: %v", n, err)
		}
		apply(t, b, to)
	}
}

func TestAFailedRollbackIsReported(t *testing.T) {
	fs := sim.New(sim.IntelSpec())
	b := newBackend(fs, nil)
	apply(t, b, twoPartitions)
	refuse(fs, syscall.EIO, func(call sim.Call) bool { return call.N >= 5 }) // one operation, and all those that would undo the others

	err := b.Apply(t.Context(), parse(t, others))
	if !errors.Is(err, ErrRollback) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("got %v", err)
	}

	if condition := b.Status().Conditions[0]; condition.Reason != "RollbackFailed" {
		t.Errorf("the condition is %+v, want the reason RollbackFailed", condition)
	}

	fs.Inject(nil)
	apply(t, b, others) // repairs what the rollback has left
	if condition := b.Status().Conditions[0]; !condition.Healthy {
		t.Errorf("the condition is %+v, want a healthy one", condition)
	}
}

// TestApplyCompletesWhatAKilledProcessBegan kills the plugin before each operation of a change. The next process must make the same
// groups as without the kill.
func TestApplyCompletesWhatAKilledProcessBegan(t *testing.T) {
	whole := sim.New(sim.IntelSpec())
	apply(t, newBackend(whole, nil), others)
	for n := 1; ; n++ {
		fs := sim.New(sim.IntelSpec())
		apply(t, newBackend(fs, nil), twoPartitions)
		fs.Inject(func(call sim.Call) *sim.Fault {
			if call.N < n {
				return nil
			}
			panic("killed")
		})
		died := func() (died bool) {
			defer func() { died = recover() != nil }()
			apply(t, newBackend(fs, nil), others)
			return false
		}()
		fs.Inject(nil)
		if !died {
			return
		}
		b := newBackend(fs, nil)
		apply(t, b, others)
		must(t, b.Release(t.Context(), nobody))
		if diff := cmp.Diff(schemataIn(t, whole), schemataIn(t, fs)); diff != "" {
			t.Fatalf("after a kill at operation %d, the restarted plugin sets other schemata than without the kill: %s", n, diff)
		}
	}
}

// TestARollbackWritesOnlyTheGroupsThatWereChanged lets the sixth operation of a configuration fail. The rollback must change exactly the
// groups of the first five operations: it removes the new groups, and restores the other ones.
func TestARollbackWritesOnlyTheGroupsThatWereChanged(t *testing.T) {
	fs := sim.New(sim.IntelSpec())
	b := newBackend(fs, nil)
	apply(t, b, twoPartitions)
	var there, back []string
	failed := false
	fs.Inject(func(call sim.Call) *sim.Fault {
		group := strings.TrimSuffix(call.Path, "/schemata")
		switch {
		case failed:
			back = append(back, group)
		case call.N == 6:
			failed = true
			return &sim.Fault{Errno: syscall.EIO}
		default:
			there = append(there, group)
		}
		return nil
	})

	if err := b.Apply(t.Context(), parse(t, others)); !errors.Is(err, syscall.EIO) {
		t.Fatalf("the error is %v, want syscall.EIO", err)
	}

	slices.Sort(there)
	slices.Sort(back)
	if diff := cmp.Diff(slices.Compact(there), slices.Compact(back)); diff != "" {
		t.Errorf("groups (-changed +restored):\n%s", diff)
	}
}

func TestValuesThatReadBackDifferentlyAreRolledBack(t *testing.T) {
	fs := sim.New(sim.IntelSpec())
	b := newBackend(faulty{fs, "qos-silver/schemata", "L3:0=3f", "L3:0=1f"}, nil)
	apply(t, b, twoPartitions)
	before := fs.Dump()
	err := b.Apply(t.Context(), parse(t, others))
	if err == nil || !strings.Contains(err.Error(), "read back resctrl group qos-silver: the kernel's values differ from the written values: L3 0 is 1f instead of 3f") {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff(before, fs.Dump()); diff != "" {
		t.Error(diff)
	}
}
