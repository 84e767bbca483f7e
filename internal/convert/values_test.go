// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/convert"
)

// TestAnnotationsWithValuesStayAndAreNoted has annotations that other programs read. `property` is the property of a class
// with which the value can be set, or empty if there is none.
func TestAnnotationsWithValuesStayAndAreNoted(t *testing.T) {
	for _, test := range []struct{ key, property string }{
		{"memory.high.memory-qos.nri.io/main", "memory.high"},
		{"memory.swap.max.memory-qos.nri.io", "memory.swapMax"},
		{"memory.oom.group.memory-qos.nri.io", "memory.oomGroup"},
		{"memory.max.memory-qos.nri.io", ""},
		{"policy.memory-policy.nri.io/container.main", "memoryPolicy"},
		{"ulimits.nri.containerd.io/container.main", "rlimits"},
		{"ulimits.noderesource.dev/container.main", "rlimits"},
		{"oom-score-adj.example.com/container.main", "oomScoreAdj"},
		{"example.com/oomScoreAdj", "oomScoreAdj"},
		{"koordinator.sh/memoryQOS", "memory"},
		{"koordinator.sh/cpuBurst", "cpu.burst"},
		{"koordinator.sh/blkioQOS", "blockio"},
		{"koordinator.sh/cpuQOS", ""},
		{"koordinator.sh/cgroup-override", ""},
	} {
		note := "annotation " + test.key + " has no equivalent, and stays; keep the program that reads it"
		if test.property != "" {
			note = "annotation " + test.key + " stays, because it has values, and pods choose classes here; write the values into a class with " +
				test.property + ", and request the class"
		}
		text := annotated("    " + test.key + ": \"0\"\n")
		wantResult(t, text, convert.Options{Koordinator: true}, text, note)
	}
}
