// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import "testing"

func allPhases() []Phase {
	var all []Phase
	for p := Created; p < phases; p++ {
		all = append(all, p)
	}
	return all
}

// TestEachPhaseFollowsEachEvent walks the whole table of transitions. Events that the row of a phase lacks do not change it.
func TestEachPhaseFollowsEachEvent(t *testing.T) {
	changes := map[Phase]map[event]Phase{
		Created:           {started: Running, hookBegan: Enforcing, startRefused: Ending, postponed: Waiting},
		Enforcing:         {hookEnded: Running, startRefused: Ending, processesEnded: Running, notEnforced: NotInForce, postponed: Waiting},
		Running:           {hookBegan: Enforcing, startRefused: Ending, notEnforced: NotInForce, postponed: Waiting},
		Unverified:        {hookBegan: Enforcing, startRefused: Ending, postponed: Waiting, verified: Running},
		Waiting:           {startRefused: Ending, notEnforced: WaitingNotInForce, admitted: Running},
		Ending:            {processesEnded: NotInForce},
		NotInForce:        {hookEnded: Running, startRefused: Ending, postponed: WaitingNotInForce, inClasses: Running},
		WaitingNotInForce: {startRefused: Ending, admitted: NotInForce},
	}
	for _, from := range allPhases() {
		for e := started; e < events; e++ {
			want, changed := changes[from][e]
			if !changed {
				want = from
			}
			if got := from.after(e); got != want {
				t.Errorf("event %d leads from %s to %s, want %s", e, from, got, want)
			}
		}
	}
}

func TestEachPhaseIsReachedAndHasAName(t *testing.T) {
	reached := map[Phase]bool{Created: true, Unverified: true} // the phases in which holders are adopted
	// Each round follows one more event. After as many rounds as there are phases, no new phase can be reached.
	for range allPhases() {
		for from := range reached {
			for e := started; e < events; e++ {
				reached[from.after(e)] = true
			}
		}
	}
	names := map[string]bool{}
	for _, p := range allPhases() {
		if names[p.String()] = true; !reached[p] {
			t.Errorf("no event leads to %s", p)
		}
	}
	if len(names) != len(allPhases()) || names[""] {
		t.Errorf("the names are %v", names)
	}
}

// TestOnlySomeEventsEndTheReportOfARefusal: a refusal is reported until the waiting request is admitted, the kernel shows
// all classes, or a hook has enforced them. No other event ends the report, in any phase.
func TestOnlySomeEventsEndTheReportOfARefusal(t *testing.T) {
	ends := map[event]bool{admitted: true, inClasses: true, hookEnded: true}
	for _, from := range allPhases() {
		for e := started; e < events; e++ {
			if ended := from.isRefused() && !from.after(e).isRefused(); ended && !ends[e] {
				t.Errorf("event %d ends the refusal of a holder in phase %s", e, from)
			}
		}
	}
}
