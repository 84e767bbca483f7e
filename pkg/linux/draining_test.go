// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
)

// TestADrainingClassIsKnownUntilItsLastContainerEnds replaces class a, which a container has, by class b.
func TestADrainingClassIsKnownUntilItsLastContainerEnds(t *testing.T) {
	backend, _ := running(t, sim.New(sim.Options{}), "{memory: {low: 1Mi, high: 1Mi}}", nil)
	next, err := parseFile(strings.Replace(head, "a: ", "b: ", 1) + "{pids: {max: 100}}\n")
	must(t, err)
	must(t, backend.Apply(t.Context(), next.Resources[0].Backend))

	for _, used := range []bool{true, false} {
		must(t, backend.Release(t.Context(), func(string) bool { return used }))
		known := map[string]bool{}
		for _, class := range []string{"a", "b"} {
			_, err := backend.Adjust(classes.Holder{}, class, class)
			known[class] = err == nil
		}
		if diff := cmp.Diff(map[string]bool{"a": used, "b": true}, known); diff != "" {
			t.Errorf("known classes while class a is used: %v (-want +got):\n%s", used, diff)
		}

		// In class a, memory.low is not below memory.high. But the conditions are only about offered classes.
		_, err := backend.Repair(t.Context())
		must(t, err)
		for _, condition := range backend.Status().Conditions {
			if condition.Type == "MemoryProtectionBelowHigh" {
				t.Errorf("there is the condition %+v, which is about class a", condition)
			}
		}
	}
}
