// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"fmt"
	"strings"
	"testing"
)

// otherScope returns a node that has k8s.io/rdt as a resource of pods.
func otherScope(name string) string {
	return fmt.Sprintf(`apiVersion: qos.noderesource.dev/v1alpha1
kind: NodeQOSResources
metadata: {name: %s, resourceVersion: "1"}
status:
  qosResources: {podQOSResources: [{name: k8s.io/rdt, classes: [{name: gold}]}]}
`, name)
}

func TestNodesShowsAResourceWithTwoScopes(t *testing.T) {
	const note = "Note: node n2 has k8s.io/rdt in the scope pod, but another node has it in the scope container; give the resource one scope on all nodes"
	// The keys name a further node with the scope pod, if there is one.
	for more, want := range map[string]string{"": note + "\n", "n3": note + " (and 1 more like this)\n"} {
		r := newRig(t, "plain.yaml")
		r.add(t, otherScope("n2"))
		if more != "" {
			r.add(t, otherScope(more))
		}
		if got := r.run(t, "nodes"); got.Errors != want || got.Code != 0 || strings.Count(got.Out, "k8s.io/rdt") < 2 {
			t.Errorf("the answer is %+v, want the note %q", got, want)
		}
	}

	if got := newRig(t, "plain.yaml").run(t, "nodes"); got.Errors != "" {
		t.Errorf("with one scope, the note is %q", got.Errors)
	}
}

func TestAWatchOfNodesDoesNotRepeatTheNote(t *testing.T) {
	r := newRig(t, "plain.yaml")
	r.add(t, otherScope("n2"))
	_, errs := r.watching(t, []string{"nodes", "-w"}, func(out, _ *watched) {
		out.await(t, "gold (0/2)")
		r.setInUse(t, "gold", 2, "2")
		out.await(t, "gold (2/2)")
	})
	if strings.Count(errs, "Note:") != 1 {
		t.Errorf("the notes are %q, want one", errs)
	}
}
