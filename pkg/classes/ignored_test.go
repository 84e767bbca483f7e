// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAnnotationsThatRequestNothingAreReported checks that Ignored reports unknown keys of the plugin, and keys that
// name no container of the pod.
func TestAnnotationsThatRequestNothingAreReported(t *testing.T) {
	const noContainer, noRequest = " names no container of the pod; its containers are main, side",
		" is not known; write qos.noderesource.dev/pod, container.qos.noderesource.dev/<container> or volumes.qos.noderesource.dev/<container>"
	for _, c := range []struct{ key, container, want string }{
		{"container.qos.noderesource.dev/main", "", ""},
		{"container.qos.noderesource.dev/mian", "mian", noContainer},
		{"containers.qos.noderesource.dev/main", "", noRequest},
		{"volumes.qos.noderesource.dev/main", "", ""},
		{"volumes.qos.noderesource.dev/mian", "mian", noContainer},
		{"qos.noderesource.dev/pod", "", ""},
		{"qos.noderesource.dev/pods", "", noRequest},
		{"qos.noderesource.dev/classes", "", ""},
		{"qos.noderesource.dev/main", "", noRequest},
		{"rdt.qos.noderesource.dev/main", "", noRequest},
		{"rdt.resources.kubernetes.io/default", "", ""},
		{"rdt.resources.kubernetes.io/pod", "", noRequest},
		{"blockio.resources.kubernetes.io/container.side", "", ""},
		{"blockio.resources.kubernetes.io/container.none", "none", noContainer},
		{"blockio.resources.kubernetes.io/side", "", noRequest},
		// Ignored leaves out keys without a domain or in other domains, and keys of the kubelet and the runtimes.
		{"allocated.qos.noderesource.dev/x", "", ""},
		{"assigned.qos.noderesource.dev", "", ""},
		{"rdt.resources.beta.kubernetes.io/container.none", "", ""},
		{"memory.resources.kubernetes.io/main", "", ""},
		{"myqos.noderesource.dev/pods", "", ""},
		{"example.com/container.qos.noderesource.dev", "", ""},
		{"kubectl.kubernetes.io/last-applied-configuration", "", ""},
	} {
		t.Run(c.key, func(t *testing.T) {
			var want []IgnoredAnnotation
			if c.want != "" {
				want = []IgnoredAnnotation{{c.key, c.container, "annotation " + c.key + c.want}}
			}
			got := Ignored(map[string]string{c.key: "rdt=gold"}, []string{"main", "side"})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestIgnoredAnnotationsAreBounded(t *testing.T) {
	annotations := map[string]string{}
	for i := range 1000 {
		annotations[fmt.Sprintf("container.qos.noderesource.dev/%d\x1b%s", i, strings.Repeat("x", 1000))] = "rdt=gold"
	}
	got := Ignored(annotations, nil)
	if len(got) != maxIgnored {
		t.Errorf("%d annotations are returned, want maxIgnored", len(got))
	}
	for _, ignored := range got {
		if len(ignored.Problem) > 200 || strings.Contains(ignored.Problem, "\x1b") {
			t.Errorf("the problem is long or has an escape character: %q", ignored.Problem)
		}
	}
}
