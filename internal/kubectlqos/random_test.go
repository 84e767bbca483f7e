// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// scramble makes texts of the pieces that matter, in any order. Go's fuzzer has to build all of Kubernetes' client for this package.
func scramble(random *rand.Rand, pieces []string) string {
	var text strings.Builder
	for range random.IntN(12) {
		text.WriteString(pieces[random.IntN(len(pieces))])
	}
	return text.String()
}

func TestConditionsAreReadOrLeft(t *testing.T) {
	pieces := []string{
		"pod", "main", "side", ": ", ":", "; ", ";", ", ", ",", " ", "k8s.io/rdt", "vendor.example/network", "gold", "system default", "(pod)",
		"(allocated)", "(", ")", "/", `"`, "in effect", "pod default/p container ", `class "gold" is full`, "\n", "ü",
	}
	checkReading(t, "pod: vendor.example/network fast (pod); main: k8s.io/rdt gold (allocated), k8s.io/blockio system default", true)
	checkReading(t, `pod default/p container main: class "gold" is full; in effect: main: k8s.io/rdt gold (update)`, false)
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		checkReading(t, scramble(random, pieces), random.IntN(2) == 0)
	}
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

func TestAMergeKeepsOthersAndSaysWhatIsAsked(t *testing.T) {
	pieces := []string{"rdt", "k8s.io/rdt", "blockio", "vendor.example/x", "=", "-", ",", " ", "gold", "silver", "/"}
	pairs := []string{"rdt=gold", "rdt=", "k8s.io/rdt=gold", "blockio=slow", "vendor.example/x=a", ",", ", ", " "}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		checkMerge(t, scramble(random, pairs), scramble(random, pieces))
		checkMerge(t, scramble(random, pairs), "rdt=silver")
		checkMerge(t, scramble(random, pairs), "rdt-,blockio=")
	}
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
