// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// TestADraftedClassAllowsTheNeededMemory drafts classes for a use of memory. memory.high is this use, rounded up to whole
// MiB. A bound on CPU bursts sets nothing.
func TestADraftedClassAllowsTheNeededMemory(t *testing.T) {
	for bytes, want := range map[float64]string{450e6: `{"memory":{"high":"430Mi"}}`, 1: `{"memory":{"high":"1Mi"}}`} {
		b := Kind(Options{Log: discard()}).New("vendor.example/profile", classes.ContainerScope).(*Backend)
		draft := b.Draft("a", []classes.Bound{{Use: classes.Series{Measure: bursts}, Value: 5}, {Use: classes.Series{Measure: memoryUsed}, Value: bytes}})
		class, err := json.Marshal(draft["classes"].(map[string]any)["a"])
		must(t, err)
		if diff := cmp.Diff(want, string(class)); diff != "" {
			t.Errorf("the class for %g bytes (-want +got):\n%s", bytes, diff)
		}
		parse(t, string(class)) // the class is valid
	}
}

func TestNoClassIsDraftedWithoutABound(t *testing.T) {
	b := Kind(Options{Log: discard()}).New("vendor.example/profile", classes.ContainerScope).(*Backend)
	if got := b.Draft("a", nil); got != nil {
		t.Errorf("a class without limits is drafted: %v", got)
	}
}
