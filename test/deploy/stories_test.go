// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// storyPolicies returns the mutating policies of docs/stories.md.
func storyPolicies(t *testing.T) map[string]*admissionv1.MutatingAdmissionPolicy {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs/stories.md"))
	must(t, err)
	scheme := runtime.NewScheme()
	must(t, admissionv1.AddToScheme(scheme))
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()

	found := map[string]*admissionv1.MutatingAdmissionPolicy{}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(apiVersion: admissionregistration.*?)```").FindAllStringSubmatch(string(page), -1) {
		for manifest := range strings.SplitSeq(block[1], "\n---\n") {
			object, _, err := decoder.Decode([]byte(manifest), nil, nil)
			must(t, err)
			if policy, ok := object.(*admissionv1.MutatingAdmissionPolicy); ok {
				found[policy.Name] = policy
			}
		}
	}
	return found
}

// mutation returns what a mutating policy applies to a new pod.
func mutation(t *testing.T, o *admissionv1.MutatingAdmissionPolicy, pod *corev1.Pod) any {
	t.Helper()
	p := mutatingPolicy(o)
	if problems := p.compile(t, 36); len(problems) > 0 {
		t.Fatal(problems)
	}
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 35)))
	must(t, err)
	options := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
	compiler.CompileAndStoreVariables(p.variables, options, environment.StoredExpressions)
	options.HasPatchTypes = true

	kind, resource := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
	versioned := &admission.VersionedAttributes{VersionedKind: kind, VersionedObject: admission.NewLazyObject(pod)}
	versioned.Attributes = admission.NewAttributesRecord(pod, nil, kind, "default", "p", resource, "", admission.Create, nil, false, nil)
	request := plugincel.CreateAdmissionRequest(versioned.Attributes, metav1.GroupVersionResource(resource), metav1.GroupVersionKind(kind))
	result, _, err := compiler.CompileMutatingEvaluator(p.mutations[0], options, environment.StoredExpressions).ForInput(
		compiler.CreateContext(t.Context()), versioned, request, plugincel.OptionalVariableBindings{}, &corev1.Namespace{}, celconfig.RuntimeCELCostBudget)
	must(t, err)
	must(t, result.Error)
	return result.EvalResult.Value()
}

// TestThePriorityClassBecomesALabel checks the policy of docs/stories.md that lets rules of class files match the
// priority class. The value of a label has at most 63 characters.
func TestThePriorityClassBecomesALabel(t *testing.T) {
	policy := storyPolicies(t)["qos-priority-class-label"]
	for class, want := range map[string]string{"batch": "batch", "": "", strings.Repeat("x", 64): ""} {
		pod := podWith("a", "b")
		pod.Labels, pod.Spec.PriorityClassName = map[string]string{"qos.noderesource.dev/priority-class": "forged"}, class
		expected := map[string]any{"metadata": map[string]any{"labels": map[string]any{"qos.noderesource.dev/priority-class": want}}}
		if diff := cmp.Diff(expected, mutation(t, policy, pod)); diff != "" {
			t.Errorf("priority class %q (-want +got):\n%s", class, diff)
		}
	}
}

// TestTheNetworkClassBecomesAPriority checks the policy of docs/stories.md for Cilium. The user has written the priority
// "guaranteed" into the pod. The policy replaces it, with "" if the pod requests no class of the network.
func TestTheNetworkClassBecomesAPriority(t *testing.T) {
	policy := storyPolicies(t)["qos-network-priority"]
	for request, want := range map[string]string{
		"vendor.example/network=fast": "guaranteed", "rdt=gold, vendor.example/network=slow": "bestEffort",
		"rdt=gold": "", "vendor.example/network=": "", "": "",
	} {
		pod := podWith("bandwidth.cilium.io/priority", "guaranteed")
		if request != "" {
			pod.Annotations["qos.noderesource.dev/pod"] = request
		}
		expected := map[string]any{"metadata": map[string]any{"annotations": map[string]any{"bandwidth.cilium.io/priority": want}}}
		if diff := cmp.Diff(expected, mutation(t, policy, pod)); diff != "" {
			t.Errorf("request %q (-want +got):\n%s", request, diff)
		}
	}
}
