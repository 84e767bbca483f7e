// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// evaluate returns the results of a policy's expressions for a request with a pod. The parameter `after` is the requested
// pod. The parameter `before` is the existing pod if the request is an update, and nil if it is a creation.
func (p *policy) evaluate(t *testing.T, before, after *corev1.Pod, expressions []plugincel.ExpressionAccessor) []plugincel.EvaluationResult {
	t.Helper()
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 35)))
	must(t, err)
	options := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
	compiler.CompileAndStoreVariables(p.variables, options, environment.StoredExpressions)

	kind, resource := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
	versioned := &admission.VersionedAttributes{VersionedKind: kind, VersionedObject: admission.NewLazyObject(after)}
	operation := admission.Create
	if before != nil {
		operation, versioned.VersionedOldObject = admission.Update, admission.NewLazyObject(before)
	}

	versioned.Attributes = admission.NewAttributesRecord(after, nil, kind, "default", "p", resource, "", operation, nil, false, nil)
	request := plugincel.CreateAdmissionRequest(versioned.Attributes, metav1.GroupVersionResource(resource), metav1.GroupVersionKind(kind))

	results, _, err := compiler.CompileCondition(expressions, options, environment.StoredExpressions).ForInput(
		t.Context(), versioned, request, plugincel.OptionalVariableBindings{}, &corev1.Namespace{}, celconfig.RuntimeCELCostBudget)
	must(t, err)
	return results
}

// refusal returns the message with which a validating policy refuses a pod. It is empty if the policy accepts the pod.
func (p *policy) refusal(t *testing.T, before, after *corev1.Pod) string {
	t.Helper()
	results := p.evaluate(t, before, after, p.rules)
	for i, rule := range p.rules {
		if _, message := rule.(*validating.MessageExpressionCondition); message {
			continue
		}
		must(t, results[i].Error)
		if results[i].EvalResult.Value() == false {
			must(t, results[i+1].Error)
			return results[i+1].EvalResult.Value().(string)
		}
	}
	return ""
}

func policyNamed(t *testing.T, name string) *policy {
	t.Helper()
	found, _ := policies(t, "deploy/policies")
	i := slices.IndexFunc(found, func(p policy) bool { return p.name == name })
	if i < 0 {
		t.Fatalf("no policy %s", name)
	}
	return &found[i]
}

func podWith(key, value string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{key: value}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "db"}, {Name: "backup"}}},
	}
}

// TestRequestsForVolumes checks which requests for volumes the policy of annotations accepts.
func TestRequestsForVolumes(t *testing.T) {
	checks := policyNamed(t, "qos-check-annotations")
	for _, c := range []struct{ key, value, want string }{
		{"volumes.qos.noderesource.dev/db", "/var/lib/db=silver,/backup=gold", ""},
		{"volumes.qos.noderesource.dev/db", "", ""},
		{"container.qos.noderesource.dev/db", "/var/lib/db=silver", `"/var/lib/db=silver" is not a request`},
		{"volumes.qos.noderesource.dev/bd", "/data=gold", "bd: the pod has no such container; its containers are db, backup"},
		{"volume.qos.noderesource.dev/db", "/data=gold", "container.qos.noderesource.dev/<container> or volumes.qos.noderesource.dev/<container>"},
		{"volumes.qos.noderesource.dev/db", "/" + strings.Repeat("x", 1024), "longer than 1024 bytes"},
	} {
		got := checks.refusal(t, nil, podWith(c.key, c.value))
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %.40s: %q, want %q", c.key, c.value, got, c.want)
		}
	}
}

// TestRequestsForVolumesAreKept checks that a request for volumes cannot be changed.
func TestRequestsForVolumesAreKept(t *testing.T) {
	keeps, gold := policyNamed(t, "qos-keep-requests"), podWith("volumes.qos.noderesource.dev/db", "/data=gold")
	for name, change := range map[string]*corev1.Pod{
		"another class": podWith("volumes.qos.noderesource.dev/db", "/data=silver"),
		"no class":      podWith("example.com/a", "b"),
	} {
		want := "annotation volumes.qos.noderesource.dev/db cannot be changed in a pod that exists; make a new pod; " +
			"only where the nodes follow annotations, let the namespace allow changes: "
		if got := keeps.refusal(t, gold, change); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := keeps.refusal(t, gold, gold); got != "" {
		t.Errorf("no change: %q", got)
	}
}

// TestRequestsForVolumesRequireThePlugin checks which annotations the policy qos-required-plugin treats as a request that
// requires the plugin.
func TestRequestsForVolumesRequireThePlugin(t *testing.T) {
	required := policyNamed(t, "qos-required-plugin")
	asks := []plugincel.ExpressionAccessor{&validating.ValidationCondition{Expression: "variables.asks"}}
	for key, want := range map[string]bool{"volumes.qos.noderesource.dev/db": true, "example.com/volumes": false} {
		got := required.evaluate(t, nil, podWith(key, "/data=gold"), asks)[0]
		must(t, got.Error)
		if got.EvalResult.Value() != want {
			t.Errorf("%s: %v, want %t", key, got.EvalResult.Value(), want)
		}
	}
}
