// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
)

// TestOnlyLabelsOfValidLengthThatUsersSetAreKept: the prefix of a label's key has at most 253 characters in Kubernetes, and its
// name and its value at most 63. The kubelet adds labels with the prefix io.kubernetes.pod.
func TestOnlyLabelsOfValidLengthThatUsersSetAreKept(t *testing.T) {
	long := strings.Repeat("x", 63)
	key := strings.Repeat("d", 253) + "/" + long
	got := labelsOf(&api.PodSandbox{Labels: map[string]string{
		"app": "web", "empty": "", key: long, key + "x": "", "long": long + "x", "io.kubernetes.pod.uid": "u",
	}})
	if want := map[string]string{"app": "web", "empty": "", key: long}; !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOfTooManyLabelsTheFirstOnesAreKept(t *testing.T) {
	const each = 64
	labels := map[string]string{}
	for i := range 16 << 10 {
		key := fmt.Sprintf("k%05d", i)
		labels[key] = strings.Repeat("x", each-len(key))
	}
	keys := slices.Sorted(maps.Keys(labelsOf(&api.PodSandbox{Labels: labels})))
	if len(keys) != maxLabels/each || keys[0] != "k00000" || keys[len(keys)-1] != fmt.Sprintf("k%05d", len(keys)-1) {
		t.Errorf("%d labels are kept, want the first %d: %q", len(keys), maxLabels/each, keys)
	}
}
