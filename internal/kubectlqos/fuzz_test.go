// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

func FuzzConditionsAreReadOrLeft(f *testing.F) {
	f.Add("pod: vendor.example/network fast (pod); main: k8s.io/rdt gold (allocated), k8s.io/blockio system default", true)
	f.Add(`pod default/p container main: class "gold" is full; in effect: main: k8s.io/rdt gold (update)`, false)
	f.Add("; ; : ,", true)
	f.Fuzz(checkReading)
}

// checkReading says that what is read of a message is in it.
func checkReading(t *testing.T, message string, assigned bool) {
	condition := &corev1.PodCondition{Message: message, Status: corev1.ConditionFalse}
	if assigned {
		condition.Status = corev1.ConditionTrue
	}
	for of, has := range toldBy(condition) {
		if !strings.Contains(message, of.resource) || !strings.Contains(message, of.container) || !strings.Contains(of.resource, "/") {
			t.Errorf("read %v of %v in %q", has, of, message)
		}
	}
	pod := aPod("p")
	for container := range refusalLines(message, pod.Pod) {
		if !strings.Contains(message, container) {
			t.Errorf("read a refusal of %q in %q", container, message)
		}
	}
}

func FuzzMergeKeepsOthersAndSaysWhatIsAsked(f *testing.F) {
	f.Add("rdt=gold, blockio=slow", "rdt=silver")
	f.Add("k8s.io/rdt=gold,rdt=gold", "rdt-,blockio=")
	f.Add("", "vendor.example/x=a")
	f.Fuzz(checkMerge)
}

// checkMerge says that a change is made, and no other.
func checkMerge(t *testing.T, had, asked string) {
	before, err := classes.ParsePairs(had)
	c, bad := parseChange([]string{asked})
	if err != nil || bad != nil {
		return
	}
	merged, err := c.merge(had)
	if err != nil {
		t.Fatal(err)
	}
	after, err := classes.ParsePairs(merged)
	if err != nil {
		t.Fatalf("%q and %q make %q: %v", had, asked, merged, err)
	}
	for _, pair := range before {
		if !slices.Contains(c.resources, pair.Resource) && !slices.Contains(after, pair) {
			t.Errorf("%q and %q make %q, without %v", had, asked, merged, pair)
		}
	}
	wanted, _ := classes.ParsePairs(strings.Join(c.pairs, ","))
	for _, pair := range after {
		if slices.Contains(c.resources, pair.Resource) && !slices.Contains(wanted, pair) {
			t.Errorf("%q and %q make %q, with %v", had, asked, merged, pair)
		}
	}
	for _, pair := range wanted {
		if !slices.Contains(after, pair) {
			t.Errorf("%q and %q make %q, without %v", had, asked, merged, pair)
		}
	}
}
