// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// TestTheStepFollowsFromTheDesiredAndTheObservedClass: the name of a case says where the container is.
func TestTheStepFollowsFromTheDesiredAndTheObservedClass(t *testing.T) {
	const gold, silver, none = "gold", "silver", classes.SystemDefault
	type observed struct {
		class                        string
		known, unavailable, draining bool
		stale                        string
	}

	for name, test := range map[string]struct {
		desired  string
		observed observed
		recorded map[string]string // the recorded observed classes that differ from the desired ones, by resource
		want     *Step             // nil means no step
	}{
		"in its class": {
			gold, observed{class: gold, known: true}, nil, nil,
		},
		"in the system default, as desired": {
			none, observed{class: none, known: true}, nil, nil,
		},
		"in another class": {
			gold, observed{class: silver, known: true}, nil, &Step{From: silver, To: gold},
		},
		"in its class, with stale properties": {
			gold, observed{class: gold, known: true, stale: "oomScoreAdj"}, nil, nil,
		},
		"recorded in another class, with stale properties": {
			gold, observed{class: gold, known: true, stale: "oomScoreAdj"}, map[string]string{"r": none}, &Step{From: none, To: gold},
		},
		"in no class": {
			gold, observed{class: none, known: true}, nil, &Step{From: none, To: gold},
		},
		"in a class, where none is desired": {
			none, observed{class: gold, known: true}, nil, &Step{From: gold, To: none},
		},
		"in its class, but recorded in another one": {
			gold, observed{class: gold, known: true}, map[string]string{"r": silver}, nil,
		},
		"outside of a class that drains, which is enforced again": {
			gold, observed{class: silver, known: true, draining: true}, nil, &Step{From: gold, To: gold},
		},
		"in a class that drains": {
			gold, observed{class: gold, known: true, draining: true}, nil, nil,
		},
		"not shown, so enforced again": {
			gold, observed{}, nil, &Step{From: gold, To: gold},
		},
		"not shown, and recorded in another class": {
			gold, observed{}, map[string]string{"r": silver}, &Step{From: silver, To: gold},
		},
		"not shown, and recorded in a class where none is desired": {
			none, observed{}, map[string]string{"r": gold}, &Step{From: gold, To: none},
		},
		"not shown, with another resource recorded": {
			gold, observed{}, map[string]string{"other": silver}, &Step{From: gold, To: gold},
		},
		"not shown, and no class is desired": {
			none, observed{}, nil, nil,
		},
		"not shown, in a class that drains": {
			gold, observed{draining: true}, nil, nil,
		},
		"outside of the class of an unavailable resource": {
			gold, observed{class: silver, known: true, unavailable: true}, nil, nil,
		},
		"not shown, with an unavailable resource": {
			gold, observed{unavailable: true}, map[string]string{"r": silver}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := observation{
				classes.Assignment{Resource: "r", Class: test.desired},
				classes.Observation{Class: test.observed.class, Known: test.observed.known, Stale: test.observed.stale},
				test.observed.unavailable, test.observed.draining,
			}
			got, needed := o.step(state.Holding{Observed: test.recorded})
			if needed != (test.want != nil) {
				t.Fatalf("step %+v, needed is %v", got, needed)
			}
			if needed && got != (Step{Resource: "r", From: test.want.From, To: test.want.To}) {
				t.Errorf("step %+v, want %+v", got, *test.want)
			}
		})
	}
}

// TestEnforcementIsAStepForEachClass has a class of resource "r" and none of "s". The step begins at the observed class, or at
// the class itself if no other one was observed, because the container was then created in it.
func TestEnforcementIsAStepForEachClass(t *testing.T) {
	e := state.Holding{Holding: classes.Holding{Holder: classes.Holder{Container: "main"},
		Assignments: []classes.Assignment{{Resource: "r", Class: "gold"}, {Resource: "s"}}}}
	for _, from := range []string{"gold", classes.SystemDefault} {
		if got, ofClaims := Enforcement(e); len(ofClaims) > 0 || len(got) != 1 || got[0] != (Step{Resource: "r", From: from, To: "gold"}) {
			t.Errorf("steps %+v, want one from class %q", got, from)
		}
		e.Observed = map[string]string{"r": classes.SystemDefault} // created while the plugin was not connected
	}
}
