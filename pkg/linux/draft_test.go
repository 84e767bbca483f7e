// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// TestADraftedClassAllowsTheNeededMemory drafts classes for a use of memory. memory.high is this use in whole MiB. The
// draft leaves out CPU bursts, for which it sets no limit.
func TestADraftedClassAllowsTheNeededMemory(t *testing.T) {
	for bytes, want := range map[float64]string{450e6: "450887680", 1: "1048576"} { // in whole MiB
		b := Kind(Options{Log: discard()}).New("vendor.example/profile", classes.ContainerScope).(*Backend)
		draft := b.Draft("a", []classes.Bound{{Use: classes.Series{Measure: bursts}, Value: 5}, {Use: classes.Series{Measure: memoryUsed}, Value: bytes}})
		class, err := json.Marshal(draft["classes"].(map[string]any)["a"])
		must(t, err)
		high, sets, err := parse(t, string(class)).classes["a"].value("memory.high").text(classes.Spec{})
		if diff := cmp.Diff(want, high); diff != "" || !sets || err != nil {
			t.Errorf("memory.high of %s is set %t, %v (-want +got):\n%s", class, sets, err, diff)
		}
	}
}

func TestNoClassIsDraftedWithoutABound(t *testing.T) {
	b := Kind(Options{Log: discard()}).New("vendor.example/profile", classes.ContainerScope).(*Backend)
	if got := b.Draft("a", nil); got != nil {
		t.Errorf("a class without limits is drafted: %v", got)
	}
}
