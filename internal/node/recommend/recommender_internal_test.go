// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package recommend

import (
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// TestNothingIsRecommendedWhileTheClassIsNotInForce checks the reason why nothing is recommended for the resource "r". It is
// empty if the class is in force.
func TestNothingIsRecommendedWhileTheClassIsNotInForce(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*state.Holding)
		want   string
	}{
		"in force":                       {func(*state.Holding) {}, ""},
		"old values of another resource": {func(h *state.Holding) { h.Stale = map[string]string{"other": "memory.high"} }, ""},
		"being changed":                  {func(h *state.Holding) { h.Observed = map[string]string{"r": "slow"} }, `its class is being changed from "slow" to "fast"; ask again`},
		"values of an earlier version":   {func(h *state.Holding) { h.Stale = map[string]string{"r": "memory.high"} }, "it still has memory.high of an earlier version of its class; recreate the pod"},
		"set by another program":         {func(h *state.Holding) { h.Foreign = map[string]string{"r": "io.max"} }, "another program has set io.max"},
		"not enforced":                   {func(h *state.Holding) { h.NotEnforced = map[string]string{"r": "no switch"} }, "its class is not enforced: no switch"},
	} {
		h := state.Holding{Holding: classes.Holding{Assignments: []classes.Assignment{{Resource: "r", Class: "fast"}}}}
		test.change(&h)
		if got := unsettled(h, "r"); !strings.HasPrefix(got, test.want) || got != "" && test.want == "" || strings.Contains(got, "\n") {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
