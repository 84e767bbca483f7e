// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/convert"
)

// labelled returns the manifest of a pod with a QoS class of Koordinator and more lines of metadata.
func labelled(class, metadata string) string {
	return pod("  labels: {koordinator.sh/qosClass: "+class+"}\n"+metadata, "", "      limits:\n        cpu: 1\n")
}

func TestLabelOfKoordinatorBecomesAnAnnotation(t *testing.T) {
	annotation := func(value string) string { return "  annotations:\n    qos.noderesource.dev/pod: " + value + "\n" }
	for _, test := range []struct{ name, text, want string }{
		{"BE", labelled("BE", ""), labelled("BE", annotation("rdt=be"))},
		{"LS", labelled("LS", ""), labelled("LS", annotation("rdt=ls"))},
		{"LSR", labelled("LSR", ""), labelled("LSR", annotation("rdt=lsr"))},
		{"LSE has the group of LSR", labelled("LSE", ""), labelled("LSE", annotation("rdt=lsr"))},
		{"SYSTEM has no group", labelled("SYSTEM", ""), labelled("SYSTEM", "")},
		{"another resource in the annotation", labelled("BE", annotation("blockio=slow")), labelled("BE", annotation("blockio=slow,rdt=be"))},
		{"no metadata, and the label only in a comment", "kind: Pod\n# koordinator.sh/qosClass\nspec:\n  containers: []\n", "kind: Pod\n# koordinator.sh/qosClass\nspec:\n  containers: []\n"},
		{"an RDT class in the annotation stays", labelled("BE", annotation("rdt=gold")), labelled("BE", annotation("rdt=gold"))},
		{"an annotation of a runtime", labelled("BE", "  annotations:\n    rdt.resources.beta.kubernetes.io/pod: gold\n"), labelled("BE", annotation("rdt=gold"))},
		{
			"a pod template", "kind: Job\napiVersion: batch/v1\nspec:\n  template:\n    metadata:\n      labels:\n        koordinator.sh/qosClass: BE\n    spec:\n      containers: []\n",
			"kind: Job\napiVersion: batch/v1\nspec:\n  template:\n    metadata:\n      labels:\n        koordinator.sh/qosClass: BE\n" +
				"      annotations:\n        qos.noderesource.dev/pod: rdt=be\n    spec:\n      containers: []\n",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, text := range []string{test.text, test.want} { // the second conversion changes nothing
				if diff := cmp.Diff(test.want, string(mustConvert(t, text, convert.Options{Koordinator: true}).Text)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestWithoutTheOptionLabelsAndAnnotationsOfKoordinatorStayWithoutANote(t *testing.T) {
	const memoryQOS = "  annotations:\n    koordinator.sh/memoryQOS: '{}'\n    "
	in, out := memoryQOS+"blockio.resources.beta.kubernetes.io/pod: slow\n", memoryQOS+"qos.noderesource.dev/pod: blockio=slow\n"
	wantResult(t, labelled("BE", in), convert.Options{}, labelled("BE", out))
}

func TestLabelOfKoordinatorNeedsAClassThatExists(t *testing.T) {
	wantProblems(t, labelled("BE", ""), convert.Options{Known: known(), Koordinator: true}, `a.yaml:5: Pod web: metadata.labels.koordinator.sh/qosClass: class "be" of k8s.io/rdt does not exist in the class files; `+
		"available: exclusive, limited, gold, silver, bronze")
}
