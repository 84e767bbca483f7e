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

// TestThreadsOutsideTheClassOfTheirContainerAreMoved: MoveThreads checks the threads only of containers whose class has
// changed since their creation, and Repair those of all containers.
func TestThreadsOutsideTheClassOfTheirContainerAreMoved(t *testing.T) {
	f := newFixture(t)
	var exist []state.Existing
	for name, annotations := range map[string]map[string]string{
		"a": requesting("test.example/cache=silver"), "b": requesting("test.example/cache=silver"), "c": nil,
	} {
		p := pod(name, annotations)
		exist = append(exist, running(p, f.mustRun(t, p, container("c-"+name))))
	}
	f.backends[cache].Targets() // forgets the earlier calls
	f.MoveThreads(t.Context(), false)
	if targets := f.backends[cache].Targets(); len(targets) > 0 {
		t.Errorf("the threads of %v were moved, although no class was changed", targets)
	}
	if f.HasLeft("silver") {
		t.Error("a container has left its class, although no class was changed")
	}
	f.mustUpdate(t, ownerA, map[string]string{cache: "gold"})
	f.backends[cache].AddStray("c-a")
	for _, moved := range []int{1, 0} {
		if check := f.MoveThreads(t.Context(), false); check.Containers != 1 || check.Moved != moved {
			t.Errorf("%d of %d containers had threads outside their class, want %d of 1", check.Moved, check.Containers, moved)
		}
	}
	if !f.HasLeft("silver") || f.HasLeft("gold") {
		t.Errorf("left: silver %t, gold %t", f.HasLeft("silver"), f.HasLeft("gold"))
	}
	if targets := f.backends[cache].Targets(); !cmp.Equal(targets, []string{"c-a gold", "c-a gold"}) || f.backends[cache].HasStray("c-a") {
		t.Errorf("the threads of %v were moved", targets)
	}
	f.wantCorrections(t, map[state.Correction]uint64{{Resource: cache, What: state.ThreadDrift}: 1})

	// If the default class changes, the containers with the default change their class, too. After a restart, the
	// plugin still knows the class in which each container was created.
	f.mustConfigure(t, strings.ReplaceAll(files, "defaultClass: bronze", "defaultClass: silver"))
	f.restart(t)
	f.mustConfigure(t, strings.ReplaceAll(files, "defaultClass: bronze", "defaultClass: silver"))
	f.Synchronize(nil, exist)
	f.Reconcile(t.Context())
	f.MoveThreads(t.Context(), false)
	if targets := f.backends[cache].Targets(); len(targets) != 2 || !slices.Contains(targets, "c-c silver") {
		t.Errorf("the threads of %v were moved, want also those of the container with the default class", targets)
	}
	f.Repair(t.Context())
	if targets := f.backends[cache].Targets(); len(targets) != 3 {
		t.Errorf("the threads of %v were moved, want those of all containers", targets)
	}
}
