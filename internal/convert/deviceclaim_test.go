// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/qos-nri/qos-nri-plugin/internal/convert"
)

const claimsGolden = "testdata/claims/pods.out.yaml"

func TestPodsAreConvertedToClaims(t *testing.T) {
	wantGolden(t, "testdata/claims/pods.in.yaml", claimsGolden, toClaims())
	if notes := mustConvert(t, read(t, claimsGolden), toClaims()).Notes; len(notes) > 0 {
		t.Errorf("a second conversion has the notes %q", notes)
	}
}

// TestConvertedClaimsHaveNoUnknownFields decodes the pods and the templates without unknown fields, as the API server does.
func TestConvertedClaimsHaveNoUnknownFields(t *testing.T) {
	decoded := 0
	for document := range strings.SplitSeq(read(t, claimsGolden), "---\n") {
		var object any
		switch {
		case strings.Contains(document, "\nkind: Pod\n"):
			object = &corev1.Pod{}
		case strings.Contains(document, "\nkind: ResourceClaimTemplate\n"):
			object = &resourcev1.ResourceClaimTemplate{}
		default:
			continue
		}
		decoded++
		if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
			t.Errorf("%v in:\n%s", err, document)
		}
	}
	if decoded < 5 {
		t.Errorf("only %d objects are decoded", decoded)
	}
}

func TestClaimsReferToTheDeviceClassesThatArePrinted(t *testing.T) {
	printed := string(convert.DeviceClasses(known()))
	names := 0
	for line := range strings.Lines(read(t, claimsGolden)) {
		if _, name, found := strings.Cut(line, "deviceClassName: "); found {
			names++
			if name = strings.TrimRight(name, "}]\n"); !strings.Contains(printed, "  name: "+name+"\n") {
				t.Errorf("there is no DeviceClass %s in:\n%s", name, printed)
			}
		}
	}
	if names < 5 {
		t.Errorf("%d names in %s", names, claimsGolden)
	}
}

func TestRequestsThatClaimsCannotMakeAreProblems(t *testing.T) {
	long := strings.Repeat("x", 63)
	domain := strings.Join([]string{long, long, long, long[:52]}, ".") // the longest domain of a resource
	other := "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: rdt.gold}\nspec: {spec: {devices: {requests: []}}}\n---\n"
	for _, test := range []struct{ name, text, want string }{
		{"a pod with a nodeName", pod("", "  nodeName: node-1\n", oneGold), `a.yaml:6: Pod web: spec.nodeName: is "node-1", but only the scheduler allocates claims, and it skips pods with a node; ` +
			"use a nodeSelector, or convert without --claims"},
		{"no problem for a nodeName without a class", pod("", "  nodeName: node-1\n", "      qosResources: [{name: rdt, class: ''}]\n"), ""},
		{"a class without a DeviceClass", pod("", "", "      qosResources: [{name: "+domain+"/resource, class: gold}]\n"),
			`a.yaml:9: Pod web: spec.containers[0].resources.qosResources[0]: cannot be a claim, because the name of the DeviceClass, "` + domain[:64] +
				`...", is not valid in Kubernetes; change the names of the resource and the class, or convert without --claims`},
		{"another template with the same name", other + pod("", "", oneGold), `a.yaml:15: Pod web: spec.containers[0].resources.qosResources[0]: ` +
			"needs a ResourceClaimTemplate named rdt.gold, but the input has one with this name and another spec; rename the one in the input"},
		{"no problem for a template with the same name in another namespace", other + pod("  namespace: shop\n", "", oneGold), ""},
		{"a default of a LimitRange", limitRange("  - type: Container\n    qosResources: [{name: rdt, default: gold}]\n"), "a.yaml:8: LimitRange defaults: " +
			"spec.limits[0].qosResources: a container would get a default beside the class of its claim, and claims cannot request a class with a maximum; convert without --claims"},
		{"claims that are no list", pod("", "", "      claims: gpu\n"+oneGold), `a.yaml:9: Pod web: spec.containers[0].resources.claims: must be a list of claims, not "gpu"`},
		{"claims of the pod that are no list", pod("", "  resourceClaims: {}\n", oneGold), `a.yaml:6: Pod web: spec.resourceClaims: must be a list of claims, not a mapping`},
	} {
		t.Run(test.name, func(t *testing.T) { wantProblems(t, test.text, convert.Options{Claims: true}, test.want) })
	}
}

// TestAResourceOfPodsIsRequestedByAnnotationAlsoWithClaims converts a pod that requests a resource of pod scope to an annotation
// and one extended resource. With a claim instead, there would be two requests for a slot, because the policies add an
// extended resource for the annotation.
func TestAResourceOfPodsIsRequestedByAnnotationAlsoWithClaims(t *testing.T) {
	text := pod("", "  qosResources: [{name: vendor.example/net, class: fast}]\n", "      {}\n")
	if diff := cmp.Diff(mustConvert(t, text, toLimits()), mustConvert(t, text, toClaims())); diff != "" {
		t.Errorf("(-limits +claims):\n%s", diff)
	}
}

// addedLimits returns how many extended resources of classes a conversion has added.
func addedLimits(t *testing.T, before string, after []byte) int {
	t.Helper()
	count := 0
	for sign, text := range map[int][]byte{1: after, -1: []byte(before)} {
		for _, o := range objects(t, text) {
			for _, c := range o.all() {
				for key := range c.Resources.Limits {
					if strings.Contains(key, "/") {
						count += sign
					}
				}
			}
		}
	}
	return count
}

// addedClaims returns how many claims the containers of pods have. Each must be a claim of its pod, with a ResourceClaimTemplate.
func addedClaims(t *testing.T, text []byte) int {
	t.Helper()
	all, count, kinds := objects(t, text), 0, map[string]string{}
	for _, o := range all {
		kinds[o.Metadata.Name] = o.Kind
	}
	for _, o := range all {
		templates := map[string]string{}
		for _, c := range o.Spec.ResourceClaims {
			templates[c.Name] = c.Template
		}
		for _, c := range o.all() {
			for _, ref := range c.Resources.Claims {
				count++
				if name := templates[ref.Name]; kinds[name] != "ResourceClaimTemplate" {
					t.Errorf("claim %s of %s has the template %q, which is missing in:\n%s", ref.Name, c.Name, name, text)
				}
				delete(templates, ref.Name)
			}
		}
		if len(templates) > 0 {
			t.Errorf("no container, or several, have the claims %v of:\n%s", templates, text)
		}
	}
	return count
}
