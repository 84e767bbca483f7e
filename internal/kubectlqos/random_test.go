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

// scramble returns a text of randomly chosen pieces. It replaces Go's fuzzer, which would have to build the whole
// Kubernetes client for this package.
func scramble(random *rand.Rand, pieces []string) string {
	var text strings.Builder
	for range random.IntN(12) {
		text.WriteString(pieces[random.IntN(len(pieces))])
	}
	return text.String()
}

func TestRefusalsAreReadOrLeft(t *testing.T) {
	pieces := []string{
		"pod", "main", "side", ": ", ":", "; ", ";", ", ", ",", " ", "k8s.io/rdt", "gold", "(pod)", "/", `"`, "in effect",
		"pod default/p container ", "pod default/p", `class "gold" is full`, "\n", "ü",
	}
	const full = `class "gold" is full`
	const message = `pod default/p container main: ` + full + `; pod default/p: ` + full + `; in effect: main: k8s.io/rdt gold (update)`
	checkRefusals(t, message)
	pod := aPod("p").reported(corev1.ConditionFalse, "ClassFull", message, "12:55:00")
	for _, container := range []string{"main", ""} {
		if reason, got := refusalOf(pod.Pod, container); reason != "ClassFull" || got != full {
			t.Errorf("read %s: %q for %q", reason, got, container)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		checkRefusals(t, scramble(random, pieces))
	}
}

// checkRefusals checks that refusalOf returns only parts of the message, and nothing for a container that the message
// does not name.
func checkRefusals(t *testing.T, message string) {
	pod := aPod("p").reported(corev1.ConditionFalse, "Refused", message, "12:55:00")
	for _, container := range []string{"", "main", "side"} {
		_, text := refusalOf(pod.Pod, container)
		for part := range strings.SplitSeq(text, "; ") {
			if !strings.Contains(message, part) || !strings.Contains(message, container) && text != "" {
				t.Errorf("read a refusal of %q, %q in %q", container, text, message)
			}
		}
	}
}

func TestAMergeKeepsOtherResourcesAndHasWhatIsAskedFor(t *testing.T) {
	pieces := []string{"rdt", "k8s.io/rdt", "blockio", "vendor.example/x", "=", "-", ",", " ", "gold", "silver", "/"}
	pairs := []string{"rdt=gold", "rdt=", "k8s.io/rdt=gold", "blockio=slow", "vendor.example/x=a", ",", ", ", " "}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		checkMerge(t, scramble(random, pairs), scramble(random, pieces))
		checkMerge(t, scramble(random, pairs), "rdt=silver")
		checkMerge(t, scramble(random, pairs), "rdt-,blockio=")
	}
}

// checkMerge checks that merge makes the requested change and no other change.
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
	wanted, _ := classes.ParsePairs(strings.Join(c.pairsBut(nil), ","))
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
