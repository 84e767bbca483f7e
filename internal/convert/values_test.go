// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

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
		text := annotated("    " + test.key + ": \"0\"\n")
		results, err := convert.Convert([]convert.Input{{Name: "a.yaml", Text: []byte(text)}}, convert.Options{Koordinator: true})
		if err != nil {
			t.Fatal(err)
		}
		note := "annotation " + test.key + " has no equivalent, and stays; keep the program that reads it"
		if test.property != "" {
			note = "annotation " + test.key + " stays, because it has values, and pods choose classes here; write the values into a class with " +
				test.property + ", and request the class"
		}
		if diff := cmp.Diff([]string{note}, results[0].Notes); diff != "" {
			t.Errorf("notes (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(text, string(results[0].Text)); diff != "" {
			t.Errorf("text (-want +got):\n%s", diff)
		}
	}
}

func TestKoordinatorsAnnotationsAreNotNotedWithoutTheOption(t *testing.T) {
	text := annotated("    koordinator.sh/memoryQOS: '{}'\n    rdt.resources.beta.kubernetes.io/pod: gold\n")
	results, err := convert.Convert([]convert.Input{{Name: "a.yaml", Text: []byte(text)}}, convert.Options{})
	if err != nil || len(results[0].Notes) > 0 {
		t.Errorf("got %v and the error %v, want no notes", results, err)
	}
}
