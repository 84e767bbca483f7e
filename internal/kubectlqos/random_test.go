// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/must"
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

func TestAMergeChangesOnlyTheRequestedResources(t *testing.T) {
	// An annotation before the change is made of pairs, a change of pieces. checkMerge ignores those that are invalid.
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

	merged := must.Get(c.merge(had))(t)
	after, err := classes.ParsePairs(merged)
	if err != nil {
		t.Fatalf("annotation %q with the change %q becomes %q, which is invalid: %v", had, asked, merged, err)
	}

	for _, pair := range before {
		if !slices.Contains(c.resources, pair.Resource) && !slices.Contains(after, pair) {
			t.Errorf("annotation %q with the change %q becomes %q, which lacks %v", had, asked, merged, pair)
		}
	}

	wanted, _ := classes.ParsePairs(strings.Join(c.pairsBut(nil), ","))
	for _, pair := range after {
		if slices.Contains(c.resources, pair.Resource) && !slices.Contains(wanted, pair) {
			t.Errorf("annotation %q with the change %q becomes %q, which must not have %v", had, asked, merged, pair)
		}
	}

	for _, pair := range wanted {
		if !slices.Contains(after, pair) {
			t.Errorf("annotation %q with the change %q becomes %q, which lacks %v", had, asked, merged, pair)
		}
	}
}
