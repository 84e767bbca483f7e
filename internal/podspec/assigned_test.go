// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestTheConditionOfAPodIsReadAsItIsWritten(t *testing.T) {
	type assigned struct {
		class, foreign, source string
		found                  bool
	}
	rdt := func(class, foreign, source string) string {
		return AssignedText("k8s.io/rdt", class, foreign, source, "", "")
	}
	for _, c := range []struct {
		name, message, container string
		status                   corev1.ConditionStatus
		want                     assigned
	}{
		{"a class", "main: " + rdt("gold", "", "container"), "main", corev1.ConditionTrue, assigned{"gold", "", "container", true}},
		{"the system default", "main: " + rdt("", "", ""), "main", corev1.ConditionTrue, assigned{"", "", "", true}},
		{"another program", "main: " + rdt("", "resctrl group batch", "adopted"), "main", corev1.ConditionTrue, assigned{"", "resctrl group batch", "adopted", true}},
		{"behind others", "pod: a/b x; side: k8s.io/rdt bronze; main: k8s.io/blockio slow (pod), " + rdt("gold", "", "pod"), "main", corev1.ConditionTrue, assigned{"gold", "", "pod", true}},
		{"of the pod", "pod: " + rdt("gold", "", "pod"), "", corev1.ConditionTrue, assigned{"gold", "", "pod", true}},
		{"of another container", "side: " + rdt("gold", "", "pod"), "main", corev1.ConditionTrue, assigned{}},
		{"behind a problem", "main: k8s.io/rdt silver is full" + InEffect + "main: " + rdt("gold", "", "container"), "main", corev1.ConditionFalse, assigned{"gold", "", "container", true}},
		// The notes about stale properties and the limited effect follow the class, and are not part of it.
		{"stale properties", "main: " + AssignedText("k8s.io/rdt", "gold", "", "container", "oomScoreAdj rlimits.nofile", "memory.low has no effect") + ", a/b x", "main",
			corev1.ConditionTrue, assigned{"gold", "", "container", true}},
		{"a problem alone", "main: k8s.io/rdt silver", "main", corev1.ConditionFalse, assigned{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got assigned
			got.class, got.foreign, got.source, got.found = Assigned(&corev1.PodCondition{Status: c.status, Message: c.message}, c.container, "k8s.io/rdt")
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
