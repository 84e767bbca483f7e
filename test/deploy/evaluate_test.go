// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// writer is the user of a request, and the subresource of the pod that the request writes, or "".
type writer struct{ user, subresource string }

// evaluate returns the results of a policy's expressions for a request with a pod. The parameter `after` is the requested
// pod. The parameter `before` is the existing pod if the request is an update, and nil if it is a creation.
// The parameter `params` is the object of the policy's parameters, or nil.
func (p *policy) evaluate(
	t *testing.T, params runtime.Object, by writer, before, after *corev1.Pod, expressions []plugincel.ExpressionAccessor,
) []plugincel.EvaluationResult {
	t.Helper()
	kind, pods := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
	versioned := &admission.VersionedAttributes{VersionedKind: kind, VersionedObject: admission.NewLazyObject(after)}
	operation := admission.Create
	if before != nil {
		operation, versioned.VersionedOldObject = admission.Update, admission.NewLazyObject(before)
	}

	versioned.Attributes = admission.NewAttributesRecord(after, nil, kind, "default", "p", pods, by.subresource, operation, nil, false,
		&user.DefaultInfo{Name: by.user})
	return p.evaluateRequest(t, params, versioned, expressions)
}

// evaluateRequest returns the results of a policy's expressions for a request.
func (p *policy) evaluateRequest(
	t *testing.T, params runtime.Object, versioned *admission.VersionedAttributes, expressions []plugincel.ExpressionAccessor,
) []plugincel.EvaluationResult {
	t.Helper()
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 35)))
	must(t, err)
	options := plugincel.OptionalVariableDeclarations{HasAuthorizer: true, HasParams: params != nil}
	compiler.CompileAndStoreVariables(p.variables, options, environment.StoredExpressions)

	request := plugincel.CreateAdmissionRequest(versioned.Attributes, metav1.GroupVersionResource(versioned.GetResource()),
		metav1.GroupVersionKind(versioned.GetKind()))
	results, _, err := compiler.CompileCondition(expressions, options, environment.StoredExpressions).ForInput(
		t.Context(), versioned, request, plugincel.OptionalVariableBindings{VersionedParams: params}, &corev1.Namespace{}, celconfig.RuntimeCELCostBudget)
	must(t, err)
	return results
}

// refusal returns the message with which a validating policy refuses a pod. It is empty if the policy accepts the pod.
func (p *policy) refusal(t *testing.T, before, after *corev1.Pod) string {
	t.Helper()
	return p.refusalWith(t, nil, writer{}, before, after)
}

func (p *policy) refusalWith(t *testing.T, params runtime.Object, by writer, before, after *corev1.Pod) string {
	t.Helper()
	return p.refusalIn(t, p.evaluate(t, params, by, before, after, p.rules))
}

// refusalIn returns the message of the first validation that has failed, or "".
func (p *policy) refusalIn(t *testing.T, results []plugincel.EvaluationResult) string {
	t.Helper()
	for i, rule := range p.rules {
		validation, ok := rule.(*validating.ValidationCondition)
		if !ok {
			continue
		}
		must(t, results[i].Error)
		if results[i].EvalResult.Value() != false {
			continue
		}
		if i+1 == len(p.rules) || isValidation(p.rules[i+1]) {
			return validation.Message
		}
		must(t, results[i+1].Error)
		return results[i+1].EvalResult.Value().(string)
	}
	return ""
}

func isValidation(rule plugincel.ExpressionAccessor) bool {
	_, ok := rule.(*validating.ValidationCondition)
	return ok
}

// covers reports whether the match conditions of a policy hold for an update.
func (p *policy) covers(t *testing.T, before, after *corev1.Pod) bool {
	t.Helper()
	return !slices.ContainsFunc(p.evaluate(t, nil, writer{}, before, after, matching(p.conditions)), func(r plugincel.EvaluationResult) bool {
		must(t, r.Error)
		return r.EvalResult.Value() != true
	})
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

// TestInvalidRequestsForVolumesAreRefused checks which requests for volumes the policy of annotations accepts.
func TestInvalidRequestsForVolumesAreRefused(t *testing.T) {
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
		got := required.evaluate(t, nil, writer{}, nil, podWith(key, "/data=gold"), asks)[0]
		must(t, got.Error)
		if got.EvalResult.Value() != want {
			t.Errorf("%s: %v, want %t", key, got.EvalResult.Value(), want)
		}
	}
}

// TestOnlyThePublisherReportsClasses writes the annotation in which the publisher reports the classes of a pod.
func TestOnlyThePublisherReportsClasses(t *testing.T) {
	const refused = "annotation qos.noderesource.dev/classes has the classes that a pod has, and only the publisher writes it; "
	old := podWith("a", "b")
	reported := old.DeepCopy()
	reported.Annotations[classes.EffectiveKey] = "{}"
	forged := reported.DeepCopy()
	forged.Annotations[classes.EffectiveKey] = `{"omitted":1}`

	keeps := policyNamed(t, "qos-keep-internal-annotations")
	const publisher = "system:serviceaccount:qos-system:qos-publisher"
	for _, c := range []struct {
		name string
		by   writer
		from *corev1.Pod
		to   *corev1.Pod
		want string
	}{
		{"the publisher reports", writer{publisher, "status"}, old, reported, ""},
		{"the publisher reports a change", writer{publisher, "status"}, reported, forged, ""},
		{"a user creates a pod with the annotation", writer{"user", ""}, nil, reported, refused},
		{"a user adds the annotation", writer{"user", ""}, old, reported, refused},
		{"a user changes the annotation", writer{"user", ""}, reported, forged, refused},
		{"a user changes the annotation by the status", writer{"user", "status"}, reported, forged, refused},
		{"an account of another namespace, with the publisher's name, adds the annotation", writer{"system:serviceaccount:tenant:qos-publisher", ""}, old, reported, refused},
		{"a user removes the annotation", writer{"user", ""}, reported, old, refused},
		{"a user removes the annotation by the status", writer{"user", "status"}, reported, old, refused},
		{"the publisher removes the annotation", writer{publisher, "status"}, reported, old, ""},
		{"a user changes something else", writer{"user", ""}, reported, reported, ""},
	} {
		if got := keeps.refusalWith(t, nil, c.by, c.from, c.to); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestReportedClassesAreNotCheckedAsRequests: the publisher reports the classes of a pod in the annotation classes.EffectiveKey. The
// policies do not check this write, even if they would now refuse the requests of the pod. When a request changes, they do not take the
// report for a request.
func TestReportedClassesAreNotCheckedAsRequests(t *testing.T) {
	old := podWith("container.qos.noderesource.dev/gone", "no request")
	reported := old.DeepCopy()
	reported.Annotations[classes.EffectiveKey] = "{}"
	for _, name := range []string{"qos-check-annotations", "qos-check-contradictions"} {
		if policyNamed(t, name).covers(t, old, reported) {
			t.Errorf("%s checks the requests of an old pod when the publisher reports its classes", name)
		}
	}
	changed := podWith("container.qos.noderesource.dev/db", "rdt=gold")
	changed.Annotations[classes.EffectiveKey] = "{}"
	if got := policyNamed(t, "qos-check-annotations").refusal(t, podWith(classes.EffectiveKey, "{}"), changed); got != "" {
		t.Errorf("a request that is added to a pod with reported classes is refused: %q", got)
	}
}

// allowing evaluates qos-allowed-classes for a quota that allows classes, and a pod with units of classes in two containers. It returns
// the message of the refusal. If `allowed` is "-", the quota has no list.
func allowing(t *testing.T, allowed string, first, second corev1.ResourceList) string {
	t.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "classes"}}
	if allowed != "-" {
		quota.Annotations = map[string]string{"qos.noderesource.dev/allowed-classes": allowed}
	}
	pod := podWith("a", "b")
	pod.Spec.Containers[0].Resources.Limits = first
	pod.Spec.InitContainers = []corev1.Container{{Name: "init", Resources: corev1.ResourceRequirements{Limits: second}}}
	return policyNamed(t, "qos-allowed-classes").refusalWith(t, quota, writer{}, nil, pod)
}

func units(names ...string) corev1.ResourceList {
	list := corev1.ResourceList{"memory": resource.MustParse("1Gi")}
	for _, name := range names {
		list[corev1.ResourceName(name)] = resource.MustParse("1")
	}
	return list
}

// TestAQuotaForbidsClassesThatItDoesNotName checks the policy qos-allowed-classes.
func TestAQuotaForbidsClassesThatItDoesNotName(t *testing.T) {
	const gold, silver = "qos.noderesource.dev/rdt.gold", "qos.noderesource.dev/rdt.silver"
	refused := func(container, unit, allowed string) string {
		return "container " + container + ": ResourceQuota classes does not allow " + unit + "; the allowed classes of its resources are " + allowed
	}
	unreadable := func(unit, entry string) string {
		return "container db: ResourceQuota classes does not allow " + unit + ", because " + entry +
			" in its annotation qos.noderesource.dev/allowed-classes is not of the form resource=class"
	}
	for _, c := range []struct {
		name, allowed string
		first, second corev1.ResourceList
		want          string
	}{
		{"a class that it names", "rdt=gold", units(gold), nil, ""},
		{"a class that it does not name", "rdt=gold", units(silver), nil, refused("db", silver, "rdt=gold")},
		{"a class that it does not name, in an init container", "k8s.io/rdt=gold, blockio=slow", units(gold), units(silver), refused("init", silver, "k8s.io/rdt=gold, blockio=slow")},
		{"the list allows no class of the resource", "rdt=", units(gold), nil, refused("db", gold, "rdt=")},
		{"a class of another resource", "rdt=gold", units("qos.noderesource.dev/blockio.slow", "example.com/gpu"), nil, ""},
		{"a vendor's class", "vendor.example/net=fast", units("vendor.example/net.slow"), nil, refused("db", "vendor.example/net.slow", "vendor.example/net=fast")},
		{"a class whose name begins with that of an allowed one", "rdt=gold", units(gold + "-2"), nil, refused("db", gold+"-2", "rdt=gold")},
		{"a list with spaces refuses another class", "rdt = gold ,", units(silver), nil, refused("db", silver, "rdt=gold")},
		{"a list with spaces allows its class", " rdt = gold ,", units(gold), nil, ""},
		{"an entry with another separator", "rdt:gold", units(silver), nil, unreadable(silver, "rdt:gold")},
		{"an entry without a class", "rdt", units(silver), nil, unreadable(silver, "rdt")},
		{"an entry without a resource", "rdt=gold, bronze", units(gold), nil, unreadable(gold, "bronze")},
		{"another separator between entries", "rdt=gold;blockio=slow", units(gold), nil, unreadable(gold, "rdt=gold;blockio=slow")},
		{"a mistake in an entry for a vendor's resource", "vendor.example/net:fast", units("vendor.example/net.slow"), nil, unreadable("vendor.example/net.slow", "vendor.example/net:fast")},
		{"a mistake, and a pod that requests no class", "rdt:gold", units("example.com/gpu"), nil, ""},
		{"a pod that requests nothing", "rdt=", units(), nil, ""},
		{"a quota without a list", "-", units(silver), nil, ""},
		{"an empty list", "", units(silver), nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := allowing(t, c.allowed, c.first, c.second); got != c.want {
				t.Errorf("the refusal is %q, want %q", got, c.want)
			}
		})
	}
}

// TestAPodHasAtMostAsManyContainersOfAClass checks the policy qos-max-classes-of-pods. The evaluation must stay within
// the cost limit of CEL, even with many classes in the QOSLimitRange and many limits in the pod.
func TestAPodHasAtMostAsManyContainersOfAClass(t *testing.T) {
	const gold, exclusive, fast = "qos.noderesource.dev/rdt.gold", "qos.noderesource.dev/rdt.exclusive", "vendor.example/net.fast"
	limits := &nodeqosv1alpha1.QOSLimitRange{ObjectMeta: metav1.ObjectMeta{Name: "limits"}}
	var more []nodeqosv1alpha1.QOSResourceClassLimit
	for i := range 30 {
		more = append(more, nodeqosv1alpha1.QOSResourceClassLimit{Name: fmt.Sprint("class-", i)})
	}
	limits.Spec.Limits = []nodeqosv1alpha1.QOSLimitRangeItem{
		{Type: "Container", QOSResources: []nodeqosv1alpha1.LimitQOSResource{
			{Name: "k8s.io/rdt", Default: "bronze", Max: []nodeqosv1alpha1.QOSResourceClassLimit{{Name: "gold", Capacity: 1}, {Name: "exclusive"}}},
			{Name: "k8s.io/blockio", Default: "slow"},
			{Name: "vendor.example/other", Max: more},
		}},
		{Type: "Pod", QOSResources: []nodeqosv1alpha1.LimitQOSResource{
			{Name: "vendor.example/net", Max: []nodeqosv1alpha1.QOSResourceClassLimit{{Name: "fast"}}},
		}},
	}
	crowded := units(exclusive) // as many limits as fit into a request
	for i := range 6000 {
		crowded[corev1.ResourceName(fmt.Sprintf("a.example/%030d", i))] = resource.MustParse("0")
	}
	for _, c := range []struct {
		name        string
		first, init corev1.ResourceList
		want        string
	}{
		{"as many as allowed", units(gold), nil, ""},
		{"one more than allowed", units(gold), units(gold), "QOSLimitRange limits allows at most 1 of " + gold + " in a pod; 2 of its containers request it"},
		{"a class with the maximum 0", units(exclusive), nil, "QOSLimitRange limits allows at most 0 of " + exclusive + " in a pod; 1 of its containers request it"},
		{"a class with the maximum 0, beside 6000 other limits", crowded, nil, "QOSLimitRange limits allows at most 0 of " + exclusive + " in a pod; 1 of its containers request it"},
		{"a class of pod scope with the maximum 0", units(fast), nil, "QOSLimitRange limits allows at most 0 of " + fast + " in a pod; 1 of its containers request it"},
		{"a class without a maximum", units("qos.noderesource.dev/rdt.silver"), units("qos.noderesource.dev/rdt.silver"), ""},
		{"a resource without a maximum", units("qos.noderesource.dev/blockio.slow"), units("qos.noderesource.dev/blockio.slow"), ""},
		{"no request", units(), nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := podWith("a", "b")
			pod.Spec.Containers[0].Resources.Limits = c.first
			pod.Spec.InitContainers = []corev1.Container{{Name: "init", Resources: corev1.ResourceRequirements{Limits: c.init}}}
			object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(limits)
			must(t, err)
			if got := policyNamed(t, "qos-max-classes-of-pods").refusalWith(t, &unstructured.Unstructured{Object: object}, writer{}, nil, pod); got != c.want {
				t.Errorf("the refusal is %q, want %q", got, c.want)
			}
		})
	}
}
