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
		"in its class":                        {desired: gold, observed: observed{class: gold, known: true}},
		"in the system default, as desired":   {desired: none, observed: observed{class: none, known: true}},
		"in another class":                    {desired: gold, observed: observed{class: silver, known: true}, want: &Step{From: silver, To: gold}},
		"in its class, with stale properties": {desired: gold, observed: observed{class: gold, known: true, stale: "oomScoreAdj"}},
		"recorded in another class, with stale properties": {
			desired: gold, observed: observed{class: gold, known: true, stale: "oomScoreAdj"}, recorded: map[string]string{"r": none},
			want: &Step{From: none, To: gold},
		},
		"in no class":                       {desired: gold, observed: observed{class: none, known: true}, want: &Step{From: none, To: gold}},
		"in a class, where none is desired": {desired: none, observed: observed{class: gold, known: true}, want: &Step{From: gold, To: none}},
		"in its class, but recorded in another one": {
			desired: gold, observed: observed{class: gold, known: true}, recorded: map[string]string{"r": silver},
		},
		"outside of a class that drains, which is enforced again": {
			desired: gold, observed: observed{class: silver, known: true, draining: true}, want: &Step{From: gold, To: gold},
		},
		"in a class that drains":       {desired: gold, observed: observed{class: gold, known: true, draining: true}},
		"not shown, so enforced again": {desired: gold, want: &Step{From: gold, To: gold}},
		"not shown, and recorded in another class": {
			desired: gold, recorded: map[string]string{"r": silver}, want: &Step{From: silver, To: gold},
		},
		"not shown, and recorded in a class where none is desired": {
			desired: none, recorded: map[string]string{"r": gold}, want: &Step{From: gold, To: none},
		},
		"not shown, with another resource recorded": {
			desired: gold, recorded: map[string]string{"other": silver}, want: &Step{From: gold, To: gold},
		},
		"not shown, and no class is desired":              {desired: none},
		"not shown, in a class that drains":               {desired: gold, observed: observed{draining: true}},
		"outside of the class of an unavailable resource": {desired: gold, observed: observed{class: silver, known: true, unavailable: true}},
		"not shown, with an unavailable resource":         {desired: gold, observed: observed{unavailable: true}, recorded: map[string]string{"r": silver}},
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
