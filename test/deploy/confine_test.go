// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"cmp"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const nodeNameClaim = "authentication.kubernetes.io/node-name"

// publisher returns the user that the API server derives from the token of the publisher's pod on node-1.
func publisher() *user.DefaultInfo {
	return &user.DefaultInfo{Name: "system:serviceaccount:qos-system:qos-publisher", Extra: map[string][]string{nodeNameClaim: {"node-1"}}}
}

// confinement is the policy that confines a service account, as an API server evaluates it.
type confinement struct {
	policy    *admissionv1.ValidatingAdmissionPolicy
	validator validating.Validator
	params    runtime.Object // nil for a policy without parameters
}

// newConfinement returns the only policy in rendered manifests.
func newConfinement(t *testing.T, found *installed) *confinement {
	t.Helper()
	if len(found.policies) != 1 || len(found.policyBindings) != 1 {
		t.Fatalf("%d policies and %d bindings are installed, want one of each", len(found.policies), len(found.policyBindings))
	}

	return confinementOf(t, found.policies[0])
}

// confinementOf returns a policy as an API server evaluates it.
func confinementOf(t *testing.T, p *admissionv1.ValidatingAdmissionPolicy) *confinement {
	t.Helper()
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 30)))
	must(t, err)
	options := plugincel.OptionalVariableDeclarations{HasAuthorizer: true, HasParams: p.Spec.ParamKind != nil}
	compiler.CompileAndStoreVariables(variables(p.Spec.Variables), options, environment.NewExpressions)
	var rules []plugincel.ExpressionAccessor
	for _, v := range p.Spec.Validations {
		rules = append(rules, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
	}

	compile := func(expressions []plugincel.ExpressionAccessor) plugincel.ConditionEvaluator {
		return compiler.CompileCondition(expressions, options, environment.NewExpressions)
	}

	matcher := matchconditions.NewMatcher(compile(matching(p.Spec.MatchConditions)), p.Spec.FailurePolicy, "policy", "validate", p.Name)
	return &confinement{
		policy:    p,
		validator: validating.NewValidator(compile(rules), matcher, compile(nil), compile(nil), p.Spec.FailurePolicy, nil),
	}
}

// request is a write of an object. The field `before` is nil if the object is created, and `after` is nil if it is deleted.
type request struct {
	resource, subresource string
	before, after         runtime.Object
}

// refusals returns the messages with which the policy refuses a request.
func (c *confinement) refusals(t *testing.T, who user.Info, r request) (messages []string) {
	t.Helper()
	kind := cmp.Or(r.after, r.before).GetObjectKind().GroupVersionKind()
	resource, operation := kind.GroupVersion().WithResource(r.resource), admission.Create
	switch {
	case r.after == nil:
		operation = admission.Delete
	case r.before != nil:
		operation = admission.Update
	}

	attributes := admission.NewAttributesRecord(r.after, r.before, kind, "default", "x", resource, r.subresource, operation, nil, false, who)
	versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedKind: kind}
	if r.after != nil {
		versioned.VersionedObject = admission.NewLazyObject(r.after)
	}
	if r.before != nil {
		versioned.VersionedOldObject = admission.NewLazyObject(r.before)
	}

	result := c.validator.Validate(t.Context(), resource, versioned, c.params, nil, cel.RuntimeCELCostBudget, nil)
	for _, d := range result.Decisions {
		if d.Evaluation == validating.EvalError {
			t.Errorf("the evaluation of an expression fails: %s", d.Message)
		}
		if d.Action == validating.ActionDeny {
			messages = append(messages, d.Message)
		}
	}

	return messages
}

// podStatus returns a request that writes the status of a pod on node-1. The function `change` makes the changes that
// are written.
func podStatus(change func(pod *corev1.Pod)) request {
	before := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "x", Labels: map[string]string{"app": "x"}, Annotations: map[string]string{"a": "b"}, Finalizers: []string{"f/f"},
		},
		Spec: corev1.PodSpec{NodeName: "node-1"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.1.1.1", PodIPs: []corev1.PodIP{{IP: "10.1.1.1"}},
			Conditions: []corev1.PodCondition{
				{Type: "Ready", Status: "True"}, {Type: "qos.noderesource.dev/Assigned", Status: "True", Message: "old"}, {Type: "Last", Status: "True"},
			},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Ready: true, ContainerID: "containerd://1"}},
		},
	}

	after := before.DeepCopy()
	change(after)
	return request{"pods", "status", before, after}
}

// otherNode moves the pod of the request to another node.
func (r request) otherNode(name string) request {
	for _, object := range []runtime.Object{r.before, r.after} {
		if pod, ok := object.(*corev1.Pod); ok {
			pod.Spec.NodeName = name
		}
	}
	return r
}

// classesOf returns a request that writes the annotation of the classes.
func classesOf(value string) request {
	return podStatus(func(p *corev1.Pod) { p.Annotations[classes.EffectiveKey] = value })
}

// replaced returns a request that writes the pod of the second request over the pod of the first.
func replaced(before, after request) request {
	after.before = before.after
	return after
}

func assigned(pod *corev1.Pod) { pod.Status.Conditions[1].Message = "new" }

func nodeObject(change func(o *unstructured.Unstructured)) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "qos.noderesource.dev/v1alpha1", "kind": "NodeQOSResources", "metadata": map[string]any{"name": "node-1"},
	}}
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "node-1", UID: "1"}})
	if change != nil {
		change(o)
	}
	return o
}

func event(change func(e *corev1.Event)) *corev1.Event {
	e := &corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: "x"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "x"},
		Source:         corev1.EventSource{Component: "qos-kubelet-shim", Host: "node-1"}, ReportingInstance: "node-1",
	}
	if change != nil {
		change(e)
	}
	return e
}

// TestThePublisherIsConfinedToItsNode sends writes as the publisher on node-1. The policy must accept the writes for which
// the field `want` is empty, and refuse the others. It must refuse all writes with a token that names no node.
func TestThePublisherIsConfinedToItsNode(t *testing.T) {
	const (
		noNode      = "the token of this request does not name a node; it must be the token of a pod, from Kubernetes 1.30 or later"
		otherPod    = "the pod is not on the node of the publisher"
		otherField  = "the publisher may change only the condition qos.noderesource.dev/Assigned of a pod"
		otherObject = "the NodeQOSResources are those of another node"
		otherOwner  = "the owner of the NodeQOSResources must be the node"
		metadata    = "the publisher may not change labels, annotations or finalizers"
		annotations = "the publisher may change only the annotation qos.noderesource.dev/classes of a pod"
		otherEvent  = "the publisher may write only events of pods and of its NodeQOSResources that name the publisher and its node as the source"
	)

	confinement := newConfinement(t, render(t))
	created := func(o runtime.Object, resource string) request { return request{resource, "", nil, o} }
	for _, test := range []struct {
		name string
		request
		want []string
	}{
		{"the condition changes", podStatus(assigned), nil},
		{"the condition is new", podStatus(func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "qos.noderesource.dev/Assigned"})
		}), nil},
		{"a pod of another node", podStatus(assigned).otherNode("node-2"), []string{otherPod}},
		{"a pod of no node", podStatus(assigned).otherNode(""), []string{otherPod}},
		{"another condition", podStatus(func(p *corev1.Pod) { p.Status.Conditions[0].Status = "False" }), []string{otherField}},
		{"another condition is removed", podStatus(func(p *corev1.Pod) { p.Status.Conditions = p.Status.Conditions[:2] }), []string{otherField}},
		{"another condition is added", podStatus(func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "DisruptionTarget", Status: "True"})
		}), []string{otherField}},
		{"the addresses", podStatus(func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "10.9.9.9"}} }), []string{otherField}},
		{"the phase", podStatus(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), []string{otherField}},
		{"a field is removed", podStatus(func(p *corev1.Pod) { p.Status.PodIP = "" }), []string{otherField}},
		{"a field is added", podStatus(func(p *corev1.Pod) { p.Status.NominatedNodeName = "node-2" }), []string{otherField}},
		{"a container", podStatus(func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Ready = false }), []string{otherField}},
		{"a label", podStatus(func(p *corev1.Pod) { p.Labels["app"] = "y" }), []string{metadata}},
		{"no labels", podStatus(func(p *corev1.Pod) { p.Labels = nil }), []string{metadata}},
		{"an annotation", podStatus(func(p *corev1.Pod) { p.Annotations["c"] = "d" }), []string{annotations}},
		{"another value of an annotation", podStatus(func(p *corev1.Pod) { p.Annotations["a"] = "c" }), []string{annotations}},
		{"no annotations", podStatus(func(p *corev1.Pod) { p.Annotations = nil }), []string{annotations}},
		{"the annotation of the classes", podStatus(func(p *corev1.Pod) { p.Annotations[classes.EffectiveKey] = "{}" }), nil},
		{"the annotation of the classes changes", replaced(classesOf("{}"), classesOf(`{"omitted":1}`)), nil},
		{"the annotation of the classes is removed", replaced(classesOf("{}"), podStatus(assigned)), nil},
		{"a request in place of the classes", replaced(classesOf("{}"), podStatus(func(p *corev1.Pod) {
			p.Annotations[classes.PodKey] = "rdt=gold"
		})), []string{annotations}},
		{"a finalizer", podStatus(func(p *corev1.Pod) { p.Finalizers = append(p.Finalizers, "g/g") }), []string{metadata}},

		{"the node's object is created", created(nodeObject(nil), "nodeqosresources"), nil},
		{"the status of the node's object", request{"nodeqosresources", "status", nodeObject(nil),
			nodeObject(func(o *unstructured.Unstructured) {
				o.Object["status"] = map[string]any{"plugin": map[string]any{"version": "1"}}
			})}, nil},
		{"the object of another node", created(nodeObject(func(o *unstructured.Unstructured) { o.SetName("node-2") }), "nodeqosresources"), []string{otherObject}},
		{"another owner", created(nodeObject(func(o *unstructured.Unstructured) {
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "node-1"}})
		}), "nodeqosresources"), []string{otherOwner}},
		{"a label of the object", created(nodeObject(func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"a": "b"}) }), "nodeqosresources"),
			[]string{metadata}},
		{"the annotation of the classes on the object", created(nodeObject(func(o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{classes.EffectiveKey: "{}"})
		}), "nodeqosresources"), []string{metadata}},
		{"a label of the object is removed", request{"nodeqosresources", "", nodeObject(func(o *unstructured.Unstructured) {
			o.SetLabels(map[string]string{"a": "b"})
		}), nodeObject(nil)}, []string{metadata}},

		{"an event", created(event(nil), "events"), nil},
		{"the count of an event", request{"events", "", event(nil), event(func(e *corev1.Event) { e.Count = 2 })}, nil},
		{"an event of its NodeQOSResources", created(event(func(e *corev1.Event) {
			e.InvolvedObject.Kind, e.InvolvedObject.Name = "NodeQOSResources", "node-1"
		}), "events"), nil},
		{"an event of other NodeQOSResources", created(event(func(e *corev1.Event) {
			e.InvolvedObject.Kind, e.InvolvedObject.Name = "NodeQOSResources", "node-2"
		}), "events"), []string{otherEvent}},
		{"an event of another kind", created(event(func(e *corev1.Event) { e.InvolvedObject.Kind = "Node" }), "events"), []string{otherEvent}},
		{"an event of another source", created(event(func(e *corev1.Event) { e.Source.Component = "kubelet" }), "events"), []string{otherEvent}},
		{"an event of another node", created(event(func(e *corev1.Event) { e.Source.Host = "node-2" }), "events"), []string{otherEvent}},
		{"an event of another reporter", created(event(func(e *corev1.Event) { e.ReportingInstance = "" }), "events"), []string{otherEvent}},
		{"the publisher takes over the event of another source", request{"events", "", event(func(e *corev1.Event) { e.Source = corev1.EventSource{} }), event(nil)}, []string{otherEvent}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := confinement.refusals(t, publisher(), test.request); !slices.Equal(got, test.want) {
				t.Errorf("refusals are %q, want %q", got, test.want)
			}
			unbound := publisher()
			unbound.Extra = nil
			if got := confinement.refusals(t, unbound, test.request); !slices.Contains(got, noNode) {
				t.Errorf("with a token that names no node, refusals are %q", got)
			}
		})
	}
}

// TestTheConfinementIsForThePublisherAlone sends a write that is forbidden for the publisher. The policy must refuse the
// write even if kustomize has renamed the publisher by a prefix, suffix or namespace. It must not refuse the write of
// another user.
func TestTheConfinementIsForThePublisherAlone(t *testing.T) {
	confinement := newConfinement(t, render(t))
	forbidden := podStatus(func(p *corev1.Pod) { p.Labels = nil })
	for name, refused := range map[string]bool{
		"system:serviceaccount:qos-system:qos-publisher":       true,
		"system:serviceaccount:qos-system:qos-publisher-large": true,
		"system:serviceaccount:other:prod-qos-publisher":       true,
		"system:serviceaccount:qos-system:default":             false,
		"system:serviceaccount:qos-publisher:default":          false,
		"system:node:node-1":                                   false,
		"system:node:qos-publisher":                            false,
		"kubernetes-admin":                                     false,
		"":                                                     false,
	} {
		if got := confinement.refusals(t, &user.DefaultInfo{Name: name}, forbidden); (len(got) > 0) != refused {
			t.Errorf("the answer for user %q is %q, want a refusal: %t", name, got, refused)
		}
	}
}

// TestNothingElseCanDisableTheConfinement checks that the policy depends on no other object, such as parameters, and
// that it covers every resource that the publisher may write.
func TestNothingElseCanDisableTheConfinement(t *testing.T) {
	found := render(t)
	p := newConfinement(t, found).policy
	binding := found.policyBindings[0]
	if p.Spec.ParamKind != nil || binding.Spec.ParamRef != nil || binding.Spec.MatchResources != nil || binding.Spec.PolicyName != p.Name ||
		!slices.Equal(binding.Spec.ValidationActions, []admissionv1.ValidationAction{admissionv1.Deny}) {
		t.Errorf("the policy %s is bound by %+v", p.Name, binding.Spec)
	}

	if p.Spec.FailurePolicy == nil || *p.Spec.FailurePolicy != admissionv1.Fail {
		t.Error("a request whose evaluation fails is allowed")
	}

	covered := map[schema.GroupResource]bool{}
	for _, rule := range p.Spec.MatchConstraints.ResourceRules {
		for _, resource := range rule.Resources {
			covered[schema.GroupResource{Group: rule.APIGroups[0], Resource: resource}] = true
		}
	}

	for _, rule := range found.roles[0].Rules {
		reads := !slices.ContainsFunc(rule.Verbs, func(verb string) bool { return !slices.Contains([]string{"get", "list", "watch"}, verb) })
		for _, resource := range rule.Resources {
			if !reads && !covered[schema.GroupResource{Group: rule.APIGroups[0], Resource: resource}] {
				t.Errorf("%s of %s is not confined", rule.Verbs, resource)
			}
		}
	}
}
