// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestTheDemoRunsToItsEnd(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), false, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}

	for _, part := range []string{
		"qos.noderesource.dev/rdt.gold",
		`class "gold" of k8s.io/rdt is full: 2 of 2 in use`,
		`class "glod" of k8s.io/rdt does not exist on this node; available: gold, bronze`,
		"default    db     main-app   k8s.io/rdt      bronze            update",
		"L3:0=000ff;1=000ff",
		"254:0 rbps=20000000 wbps=20000000 riops=max wiops=max",
	} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the demo does not show %q:\n%s", part, out.String())
		}
	}
}
