// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
)

// withThreads returns a node with two containers that request class silver, c-a and c-b, and one with the default class, c-c.
func withThreads(t *testing.T) (f *fixture, exist []state.Existing) {
	t.Helper()
	f = newFixture(t)
	for name, annotations := range map[string]map[string]string{
		"a": requesting("test.example/cache=silver"), "b": requesting("test.example/cache=silver"), "c": nil,
	} {
		p := pod(name, annotations)
		exist = append(exist, running(p, f.mustRun(t, p, container("c-"+name))))
	}
	f.backends[cache].Targets() // forgets the earlier calls
	return f, exist
}

// wantTargets compares the containers whose threads were checked since the last call, and the classes to which they belong.
func (f *fixture) wantTargets(t *testing.T, want ...string) {
	t.Helper()
	got := f.backends[cache].Targets()
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("containers whose threads were checked (-want +got):\n%s", diff)
	}
}

// TestThreadsOutsideTheClassOfTheirContainerAreMoved: MoveThreads checks the threads only of containers whose class has
// changed since their creation.
func TestThreadsOutsideTheClassOfTheirContainerAreMoved(t *testing.T) {
	f, _ := withThreads(t)
	f.MoveThreads(t.Context(), false)
	f.wantTargets(t)

	f.mustUpdate(t, ownerA, map[string]string{cache: "gold"})
	f.backends[cache].AddStray("c-a")
	for _, moved := range []int{1, 0} {
		if check := f.MoveThreads(t.Context(), false); check.Containers != 1 || check.Moved != moved {
			t.Errorf("%d of %d containers had threads outside their class, want %d of 1", check.Moved, check.Containers, moved)
		}
		f.wantTargets(t, "c-a gold")
	}
	if f.backends[cache].HasStray("c-a") {
		t.Error("the container still has a thread outside its class")
	}
	f.wantCorrections(t, map[state.Correction]uint64{{Resource: cache, What: state.ThreadDrift}: 1})
}

// TestThreadsAreCheckedAfterARestart changes a container, and the default class. The next process still knows the class in
// which each container was created.
func TestThreadsAreCheckedAfterARestart(t *testing.T) {
	f, exist := withThreads(t)
	f.mustUpdate(t, ownerA, map[string]string{cache: "gold"})
	silver := strings.ReplaceAll(files, "defaultClass: bronze", "defaultClass: silver")
	f.mustConfigure(t, silver)
	f.restart(t)
	f.mustConfigure(t, silver)
	f.Synchronize(nil, exist)
	f.Reconcile(t.Context())
	f.backends[cache].Targets() // forgets the earlier calls
	f.MoveThreads(t.Context(), false)
	f.wantTargets(t, "c-a gold", "c-c silver") // c-c has followed the default, and c-b still has the class of its creation
}

func TestRepairChecksTheThreadsOfAllContainers(t *testing.T) {
	f, _ := withThreads(t)
	f.Repair(t.Context())
	f.wantTargets(t, "c-a silver", "c-b silver", "c-c bronze")
}

func TestAContainerThatWasChangedHasLeftOnlyTheClassOfItsCreation(t *testing.T) {
	f, _ := withThreads(t)
	if f.HasLeft("silver") {
		t.Error("a container has left class silver, although no class was changed")
	}
	f.mustUpdate(t, ownerA, map[string]string{cache: "gold"})
	if !f.HasLeft("silver") || f.HasLeft("gold") {
		t.Errorf("a container has left silver: %t, gold: %t; want only silver", f.HasLeft("silver"), f.HasLeft("gold"))
	}
}
