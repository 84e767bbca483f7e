// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

func TestSettingsForCacheIDsThatTheMachineLacksDegradeTheClass(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       map[string]string
	}{
		{"every ID exists", `{partitions: {p: {l3Allocation: "100%", classes: {a: {l3Allocation: {"0-1": "20%"}}}}}}`, nil},
		{"IDs of a class", `{partitions: {p: {l3Allocation: "100%", classes: {a: {l3Allocation: {"0-3,8": "20%"}}, b: {l3Allocation: "50%"}}}}}`,
			map[string]string{"a": "l3Allocation of cache IDs 2-3, 8 has no effect: this machine has the IDs 0-1"}},
		{"IDs of a partition", `{partitions: {p: {l3Allocation: {all: "100%", "5": "50%"}, classes: {a: {}}}}}`,
			map[string]string{"a": "l3Allocation of cache IDs 5 has no effect: this machine has the IDs 0-1"}},
		{"bandwidth", `{partitions: {p: {l3Allocation: "100%", mbAllocation: ["100%"], classes: {a: {mbAllocation: {all: ["100%"], "4": ["50%"]}}}}}}`,
			map[string]string{"a": "mbAllocation of cache IDs 4 has no effect: this machine has the IDs 0-1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBackend(sim.New(sim.IntelSpec()), nil)
			for from, status := range applied(t, b, test.text) {
				if diff := cmp.Diff(test.want, status.Degraded, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", from, diff)
				}
			}
		})
	}
}
