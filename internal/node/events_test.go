// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// simulation creates and ends containers at random. The plugin gets the events late, repeatedly, in another order, or
// not at all.
type simulation struct {
	*fixture
	t      *testing.T
	random *rand.Rand
	// alive maps the IDs of the running containers to the containers.
	alive map[string]state.Existing
	// events lists the container IDs of stop and remove events that are not delivered yet. An ID is listed once for
	// each event.
	events []string
	made   int
	// If lossy is true, three quarters of the events are lost.
	lossy bool
}

func newSimulation(t *testing.T, seed uint64, lossy bool) *simulation {
	t.Helper()
	return &simulation{fixture: newFixture(t), t: t, random: rand.New(rand.NewPCG(seed, 1)), alive: map[string]state.Existing{}, lossy: lossy}
}

// create creates a container in one of a few pods. If the pod has a running container, create ends that container
// first.
func (s *simulation) create() {
	name := string(rune('a' + s.random.IntN(6)))
	request := []string{"test.example/cache=gold", "test.example/disk=fast", "test.example/cache=silver,test.example/disk=slow", ""}[s.random.IntN(4)]
	for _, id := range slices.Sorted(maps.Keys(s.alive)) {
		if s.alive[id].PodName == name {
			s.end(id)
		}
	}

	p := pod(name, nil)
	if request != "" {
		p.PodAnnotations = requesting(request)
	}

	s.made++
	id := fmt.Sprintf("c%d", s.made)
	c, err := s.run(s.t, p, container(id))
	if err != nil {
		s.events = append(s.events, id, id) // the runtime stops and removes what was refused
		return
	}

	s.alive[id] = running(p, c)
}

// end ends a container, with events for its stop, its removal, and another stop.
func (s *simulation) end(id string) {
	delete(s.alive, id)
	for range 3 {
		if !s.lossy || s.random.IntN(4) == 0 {
			s.events = append(s.events, id)
		}
	}
}

// deliver delivers some events, in any order.
func (s *simulation) deliver(most int) {
	for range min(most, len(s.events)) {
		i := s.random.IntN(len(s.events))
		s.Stop(s.events[i])
		s.events = slices.Delete(s.events, i, i+1)
	}
}

func (s *simulation) step() {
	switch s.random.IntN(4) {
	case 0, 1:
		s.create()
	case 2:
		if ids := slices.Sorted(maps.Keys(s.alive)); len(ids) > 0 {
			s.end(ids[s.random.IntN(len(ids))])
		}
	default:
		s.deliver(s.random.IntN(5))
	}

	for _, resource := range s.Status().Resources {
		for _, class := range resource.Classes {
			if used := uint64(resource.InUse[class.Name]); class.Capacity > 0 && used > class.Capacity {
				s.t.Errorf("%d of %d slots of class %s are in use", used, class.Capacity, class.Name)
			}
		}
	}
}

// wantOnlyWhatRuns compares the reported containers and slots with the containers that run.
func (s *simulation) wantOnlyWhatRuns() {
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

	inUse := map[string]int{}
	for _, resource := range s.Status().Resources {
		for class, n := range resource.InUse {
			inUse[resource.Name+" "+class] = n
		}
	}

	if diff := cmp.Diff(used, inUse); diff != "" {
		s.t.Errorf("slots (-had +in use):\n%s", diff)
	}
}

func TestStopsAndRemovalsMayBeLateRepeatedAndInAnyOrder(t *testing.T) {
	const lossy = false
	for seed := range uint64(50) {
		s := newSimulation(t, seed, lossy)
		for range 60 {
			s.step()
		}
		s.deliver(len(s.events))
		s.wantOnlyWhatRuns()
		if t.Failed() {
			t.Fatalf("the simulation with seed %d failed", seed)
		}
	}
}

func TestTheNextSynchronizationReleasesWhatEndedWithoutAnEvent(t *testing.T) {
	const lossy = true
	for seed := range uint64(50) {
		s := newSimulation(t, seed, lossy)
		for range 60 {
			s.step()
		}
		s.Synchronize(nil, s.existing())
		s.Reconcile(t.Context())
		s.wantOnlyWhatRuns()
		late := slices.Clone(s.events)
		for _, id := range late { // late events change nothing
			s.Stop(id)
		}
		s.wantOnlyWhatRuns()
		if t.Failed() {
			t.Fatalf("the simulation with seed %d failed", seed)
		}
	}
}

// TestAContainerThatEndsDuringTheSynchronizationIsReleased covers containerd, which lists a container that is ending as
// running, without a PID. containerd reported the end before the plugin registered, so no event follows. If no container has a
// PID, the runtime reports none at all, as CRI-O 1.35 does, and the container may run.
func TestAContainerThatEndsDuringTheSynchronizationIsReleased(t *testing.T) {
	for name, test := range map[string]struct {
		hasCgroup bool
		otherPID  int
		inUse     int
	}{
		"its cgroup is gone":     {hasCgroup: false, otherPID: 7, inUse: 0},
		"it has a cgroup":        {hasCgroup: true, otherPID: 7, inUse: 1},
		"no container has a PID": {hasCgroup: false, otherPID: 0, inUse: 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.restart(t, func(o *node.Options) {
				o.HasCgroup = func(h classes.Holder) bool { return h.ID != "ending" || test.hasCgroup }
			})
			f.mustConfigure(t, files)
			p, other := pod("a", requesting("test.example/cache=gold")), pod("b", nil)
			ending, stays := running(p, container("ending")), running(other, container("stays"))
			ending.PID, stays.PID = 0, test.otherPID
			f.Synchronize([]classes.Holder{p, other}, []state.Existing{ending, stays})
			f.Reconcile(t.Context())
			if got := f.Status().Resources[0].InUse["gold"]; got != test.inUse {
				t.Errorf("%d of class gold are in use, want %d", got, test.inUse)
			}
		})
	}
}

// existing returns the containers that run, older ones first.
func (s *simulation) existing() []state.Existing {
	var all []state.Existing
	for n := range s.made + 1 {
		if e, ok := s.alive[fmt.Sprintf("c%d", n)]; ok {
			all = append(all, e)
		}
	}
	return all
}

func TestAContainerThatEndsBeforeItsStartFreesItsSlot(t *testing.T) {
	f := newFixture(t)
	p, c := pod("a", requesting("test.example/cache=gold")), container("c1")
	if _, _, err := f.CreateContainer(in(p, c)); err != nil {
		t.Fatal(err)
	}

	f.Stop("c1")
	// the runtime starts it nevertheless
	f.backends[cache].Fail("enforce", errors.New("the process has ended"))
	if err := f.start(t, p, c); err == nil {
		t.Error("a container that has ended was started")
	}

	f.backends[cache].Fail("enforce", nil)
	f.Stop("c1")
	f.mustRun(t, pod("b", requesting("test.example/cache=gold")), container("c2"))
	if got := len(f.Assignments()); got != 1 {
		t.Errorf("%d pods have assignments, want 1", got)
	}
}

func TestNothingIsLeftIfAPodStopsBeforeItsContainers(t *testing.T) {
	f := newFixture(t)
	p := pod("a", requesting("test.example/net=high,test.example/cache=gold"))
	f.mustRunPod(t, p)
	f.mustRun(t, p, container("c1"))
	for _, id := range []string{p.ID, p.ID, "c1", p.ID} { // a stop of the pod may be reported several times
		f.Stop(id)
	}

	if got := f.Assignments(); len(got) > 0 {
		t.Errorf("reported: %+v, want nothing", got)
	}

	for _, resource := range f.Status().Resources {
		if len(resource.InUse) > 0 {
			t.Errorf("classes of %s in use: %v, want none", resource.Name, resource.InUse)
		}
	}
}
