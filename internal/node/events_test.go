// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
)

// story is what happens to the containers of a node, and what the plugin hears of it: late, twice, in another order, or never.
type story struct {
	*fixture
	t      *testing.T
	random *rand.Rand
	// alive are the containers that run, by ID.
	alive map[string]state.Existing
	// heard is what the plugin will hear: the IDs of containers that have stopped, or were removed.
	heard []string
	made  int
	// deaf loses a part of what there is to be heard.
	deaf bool
}

func newStory(t *testing.T, seed uint64, deaf bool) *story {
	t.Helper()
	return &story{fixture: newFixture(t), t: t, random: rand.New(rand.NewPCG(seed, 1)), alive: map[string]state.Existing{}, deaf: deaf}
}

// create makes the next container of one of a few pods, as the kubelet does after a crash: the one before has stopped by then, whether or
// not that was heard.
func (s *story) create() {
	name := string(rune('a' + s.random.IntN(6)))
	request := []string{"test.example/cache=gold", "test.example/disk=fast", "test.example/cache=silver,test.example/disk=slow", ""}[s.random.IntN(4)]
	for _, id := range slices.Sorted(maps.Keys(s.alive)) {
		if s.alive[id].PodName == name {
			s.end(id)
		}
	}
	p := pod(name, nil)
	if request != "" {
		p.PodAnnotations = asking(request)
	}
	s.made++
	id := fmt.Sprintf("c%d", s.made)
	c, err := s.run(s.t, p, container(id))
	if err != nil {
		s.heard = append(s.heard, id, id) // the runtime undoes what was refused
		return
	}
	s.alive[id] = running(p, c)
}

// end ends a container. The plugin is to hear of its stop, of its removal, and of a stop once more.
func (s *story) end(id string) {
	delete(s.alive, id)
	for range 3 {
		if !s.deaf || s.random.IntN(4) == 0 {
			s.heard = append(s.heard, id)
		}
	}
}

// hear lets the plugin hear some of what there is to be heard, in any order.
func (s *story) hear(most int) {
	for range min(most, len(s.heard)) {
		i := s.random.IntN(len(s.heard))
		s.Stop(s.heard[i])
		s.heard = slices.Delete(s.heard, i, i+1)
	}
}

func (s *story) step() {
	switch s.random.IntN(4) {
	case 0, 1:
		s.create()
	case 2:
		if ids := slices.Sorted(maps.Keys(s.alive)); len(ids) > 0 {
			s.end(ids[s.random.IntN(len(ids))])
		}
	default:
		s.hear(s.random.IntN(5))
	}
	for _, resource := range s.Status().Resources {
		for _, class := range resource.Classes {
			if used := uint64(resource.InUse[class.Name]); class.Capacity > 0 && used > class.Capacity {
				s.t.Errorf("%d of %d of class %s are in use", used, class.Capacity, class.Name)
			}
		}
	}
}

// wantOnlyWhatRuns wants exactly the containers that run to be reported, and their classes to be in use.
func (s *story) wantOnlyWhatRuns() {
	s.t.Helper()
	want, got := map[string]bool{}, map[string]bool{}
	for id := range s.alive {
		want[id] = true
	}
	used := map[string]int{}
	for _, p := range s.Assignments() {
		for _, c := range p.Containers {
			got[c.ID] = true
			for _, a := range c.Assignments {
				if a.Class != "" {
					used[a.Resource+" "+a.Class]++
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("containers (-running +reported):\n%s", diff)
	}
	told := map[string]int{}
	for _, resource := range s.Status().Resources {
		for class, n := range resource.InUse {
			told[resource.Name+" "+class] = n
		}
	}
	if diff := cmp.Diff(used, told); diff != "" {
		s.t.Errorf("slots (-had +in use):\n%s", diff)
	}
}

func TestStopsAndRemovalsMayComeLateTwiceAndInAnyOrder(t *testing.T) {
	for seed := range uint64(50) {
		s := newStory(t, seed, false)
		for range 60 {
			s.step()
		}
		s.hear(len(s.heard))
		s.wantOnlyWhatRuns()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func TestStopsAndRemovalsThatNeverComeAreMadeUpForByTheNextSynchronization(t *testing.T) {
	for seed := range uint64(50) {
		s := newStory(t, seed, true)
		for range 60 {
			s.step()
		}
		s.Synchronize(nil, s.existing())
		s.Reconcile(t.Context())
		s.wantOnlyWhatRuns()
		late := slices.Clone(s.heard)
		for _, id := range late { // and what still comes then does no harm
			s.Stop(id)
		}
		s.wantOnlyWhatRuns()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// existing is what runs, the older before the newer.
func (s *story) existing() []state.Existing {
	var all []state.Existing
	for n := range s.made + 1 {
		if e, ok := s.alive[fmt.Sprintf("c%d", n)]; ok {
			all = append(all, e)
		}
	}
	return all
}

func TestAnEndThatIsHeardOfBeforeTheStartLeavesNothing(t *testing.T) {
	f := newFixture(t)
	p, c := pod("a", asking("test.example/cache=gold")), container("c1")
	if _, _, err := f.CreateContainer(in(p, c)); err != nil {
		t.Fatal(err)
	}
	f.Stop("c1")
	if err := f.start(t, p, c); err == nil {
		t.Error("a container that has ended was started in a class whose slot is free")
	}
	f.Stop("c1")
	f.mustRun(t, pod("b", asking("test.example/cache=gold")), container("c2"))
	if got := len(f.Assignments()); got != 1 {
		t.Errorf("%d pods are reported, want 1", got)
	}
}

func TestThePodsEndMayComeBeforeThatOfItsContainers(t *testing.T) {
	f := newFixture(t)
	p := pod("a", asking("test.example/net=high,test.example/cache=gold"))
	f.mustRunPod(t, p)
	f.mustRun(t, p, container("c1"))
	for _, id := range []string{p.ID, p.ID, "c1", p.ID} {
		f.Stop(id)
	}
	if got := f.Assignments(); len(got) > 0 {
		t.Errorf("reported are %+v", got)
	}
	for _, resource := range f.Status().Resources {
		if len(resource.InUse) > 0 {
			t.Errorf("%s has %v in use", resource.Name, resource.InUse)
		}
	}
}
