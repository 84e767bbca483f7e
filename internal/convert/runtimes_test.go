// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/convert"
)

// annotated returns the manifest of a pod with one container. The argument has the lines of its annotations, with an
// indentation of 4 spaces.
func annotated(lines string) string {
	return pod("  annotations:\n"+lines, "", "      limits:\n        cpu: 1\n")
}

func TestAnnotationsOfRuntimesThatCannotBeConvertedAreErrors(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{
			"a class that does not exist", annotated("    rdt.resources.beta.kubernetes.io/pod: platinum\n"),
			`a.yaml:6: Pod web: metadata.annotations[rdt.resources.beta.kubernetes.io/pod]: class "platinum" of k8s.io/rdt does not exist in the class files; available: exclusive, limited, gold, silver, bronze`,
		},
		{
			"a value that is no string", annotated("    rdt.resources.beta.kubernetes.io/pod: {class: gold}\n"),
			`a.yaml:6: Pod web: metadata.annotations[rdt.resources.beta.kubernetes.io/pod]: must be a string, not a mapping`,
		},
		{
			"no value", annotated("    rdt.resources.beta.kubernetes.io/pod:\n"),
			`a.yaml:6: Pod web: metadata.annotations[rdt.resources.beta.kubernetes.io/pod]: must be a string, not empty`,
		},
		{
			"another class in an annotation of ours", annotated("    qos.noderesource.dev/pod: blockio=slow,rdt=gold\n    rdt.resources.beta.kubernetes.io/pod: silver\n"),
			`a.yaml:7: Pod web: metadata.annotations[rdt.resources.beta.kubernetes.io/pod]: class "silver" of k8s.io/rdt contradicts class "gold" in annotation qos.noderesource.dev/pod; keep one of them`,
		},
		{
			"another class in the KEP's annotation", annotated("    rdt.resources.kubernetes.io/container.main: gold\n    rdt.resources.beta.kubernetes.io/container.main: silver\n"),
			`a.yaml:7: Pod web: metadata.annotations[rdt.resources.beta.kubernetes.io/container.main]: class "silver" of k8s.io/rdt contradicts class "gold" in annotation rdt.resources.kubernetes.io/container.main; keep one of them`,
		},
		{
			"another class in an annotation of a runtime", annotated("    rdt.resources.beta.kubernetes.io/pod: gold\n    rdtclass.resource-policy.nri.io/pod: silver\n"),
			`a.yaml:7: Pod web: metadata.annotations[rdtclass.resource-policy.nri.io/pod]: class "silver" of k8s.io/rdt contradicts class "gold" in annotation rdt.resources.beta.kubernetes.io/pod; keep one of them`,
		},
		{
			"another class in the key of nri-plugins without a scope", annotated("    rdtclass.resource-policy.nri.io: gold\n    rdtclass.resource-policy.nri.io/pod: silver\n"),
			`a.yaml:7: Pod web: metadata.annotations[rdtclass.resource-policy.nri.io/pod]: class "silver" of k8s.io/rdt contradicts class "gold" in annotation rdtclass.resource-policy.nri.io; keep one of them`,
		},
		{
			"an annotation of ours that is wrong", annotated("    qos.noderesource.dev/pod: gold\n    rdt.resources.beta.kubernetes.io/pod: silver\n"),
			`a.yaml:7: Pod web: metadata.annotations[rdt.resources.beta.kubernetes.io/pod]: cannot be added to annotation qos.noderesource.dev/pod: the request has "gold", which is not of the form resource=class`,
		},
		{
			"an annotation by a merge key", annotated("    <<: {rdt.resources.beta.kubernetes.io/pod: gold, team: a}\n    x: y\n"),
			`a.yaml:6: Pod web: metadata.annotations[rdt.resources.beta.kubernetes.io/pod]: is set by the merge key <<; write the annotation here instead`,
		},
		{
			"annotations by a merge key", pod("  <<: [{labels: {a: b}}, {annotations: {rdtclass.resource-policy.nri.io: gold}}]\n", "", "      limits:\n        cpu: 1\n"),
			`a.yaml:5: Pod web: metadata.annotations[rdtclass.resource-policy.nri.io]: is set by the merge key <<; write the annotation here instead`,
		},
		{
			"an annotation twice", annotated("    rdt.resources.beta.kubernetes.io/pod: gold\n    rdt.resources.beta.kubernetes.io/pod: silver\n"),
			`a.yaml:7: Pod web: metadata.annotations.rdt.resources.beta.kubernetes.io/pod: is defined twice; remove one of them`,
		},
	} {
		t.Run(test.name, func(t *testing.T) { wantProblems(t, test.text, toLimits(), test.want) })
	}
}

// TestAnnotationsOfOtherProgramsBecomeOurs gives the annotations before and after. If the new annotation may request
// nothing, there is a note.
func TestAnnotationsOfOtherProgramsBecomeOurs(t *testing.T) {
	for _, test := range []struct{ name, before, after, note string }{
		{"of memory-qos for the pod", "    class.memory-qos.nri.io: silver\n", "    qos.noderesource.dev/pod: qos.noderesource.dev/memory=silver\n", ""},
		{"of memory-qos for a container", "    class.memory-qos.nri.io/main: bronze\n", "    container.qos.noderesource.dev/main: qos.noderesource.dev/memory=bronze\n", ""},
		{"of memory-qos for the system default", "    class.memory-qos.nri.io/main: \"\"\n", "    container.qos.noderesource.dev/main: \"qos.noderesource.dev/memory=\"\n", ""},
		{
			"of memory-qos beside an annotation of ours", "    qos.noderesource.dev/pod: rdt=gold\n    class.memory-qos.nri.io: silver\n",
			"    qos.noderesource.dev/pod: rdt=gold,qos.noderesource.dev/memory=silver\n", "",
		},
		{"of memory-policy for the pod", "    class.memory-policy.nri.io: spread\n", "    qos.noderesource.dev/pod: qos.noderesource.dev/memory-policy=spread\n", ""},
		{
			"of memory-policy for a container", "    class.memory-policy.nri.io/container.main: spread\n",
			"    container.qos.noderesource.dev/main: qos.noderesource.dev/memory-policy=spread\n", "",
		},
		{
			"a container that the pod does not have", "    rdt.resources.beta.kubernetes.io/container.proxy: gold\n", "    container.qos.noderesource.dev/proxy: rdt=gold\n",
			"annotation rdt.resources.beta.kubernetes.io/container.proxy is for a container that the pod does not have; " +
				"correct the name, or check that the container is added later",
		},
		{
			"a key that no runtime reads", "    rdt.resources.beta.kubernetes.io/default: gold\n", "    rdt.resources.beta.kubernetes.io/default: gold\n",
			"annotation rdt.resources.beta.kubernetes.io/default requests nothing, because neither the runtimes nor nri-plugins read this key; it stays as it is",
		},
		{
			"a key that nri-plugins does not read", "    rdtclass.resource-policy.nri.io/default: gold\n", "    rdtclass.resource-policy.nri.io/default: gold\n",
			"annotation rdtclass.resource-policy.nri.io/default requests nothing, because neither the runtimes nor nri-plugins read this key; it stays as it is",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var notes []string
			if test.note != "" {
				notes = []string{test.note}
			}
			wantResult(t, annotated(test.before), convert.Options{}, annotated(test.after), notes...)
		})
	}
}

func TestAnnotationsInOtherPlacesAreNoted(t *testing.T) {
	const custom = `apiVersion: acid.example/v1
kind: Postgres
metadata: {name: db}
spec:
  podMetadata:
    annotations: {rdt.resources.beta.kubernetes.io/container.main: gold, team: a}
  pods:
  - podAnnotations:
      blockio.resources.beta.kubernetes.io/pod: slow
  template:
    metadata: {annotations: {rdt.resources.beta.kubernetes.io/pod: gold}}
    spec: {containers: [{name: main}]}
`
	want := []string{
		"annotation rdt.resources.beta.kubernetes.io/container.main in spec.podMetadata.annotations of Postgres db is not converted, because it is not in the " +
			"metadata of a pod; if a controller copies it to pods, write container.qos.noderesource.dev/main: rdt=gold instead",
		"annotation blockio.resources.beta.kubernetes.io/pod in spec.pods[0].podAnnotations of Postgres db is not converted, because it is not in the " +
			"metadata of a pod; if a controller copies it to pods, write qos.noderesource.dev/pod: blockio=slow instead",
	}
	if diff := cmp.Diff(want, mustConvert(t, custom, toLimits()).Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}
