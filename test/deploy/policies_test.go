// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
)

// policy has the expressions of a validating or a mutating admission policy.
type policy struct {
	name       string
	failure    admissionv1.FailurePolicyType
	params     *admissionv1.ParamKind
	conditions []admissionv1.MatchCondition
	variables  []plugincel.NamedExpressionAccessor
	rules      []plugincel.ExpressionAccessor
	mutations  []plugincel.ExpressionAccessor
}

// policies returns the policies of a kustomization, and the namespaces that their bindings select.
func policies(t *testing.T, dir string) (found []policy, selected []string) {
	t.Helper()
	for _, object := range renderAt(t, dir).objects {
		switch o := object.(type) {
		case *admissionv1.MutatingAdmissionPolicy:
			found = append(found, mutatingPolicy(o))
		case *admissionv1.ValidatingAdmissionPolicy:
			found = append(found, validatingPolicy(o))
		case *admissionv1.MutatingAdmissionPolicyBinding:
			if o.Spec.MatchResources != nil { // otherwise it selects all namespaces
				selected = append(selected, o.Spec.MatchResources.NamespaceSelector.String())
			}
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			if o.Spec.MatchResources != nil {
				selected = append(selected, o.Spec.MatchResources.NamespaceSelector.String())
			}
		}
	}

	return found, selected
}

func mutatingPolicy(o *admissionv1.MutatingAdmissionPolicy) policy {
	p := policy{name: o.Name, params: o.Spec.ParamKind, conditions: o.Spec.MatchConditions, variables: variables(o.Spec.Variables)}
	p.failure = *o.Spec.FailurePolicy
	for _, m := range o.Spec.Mutations {
		if m.JSONPatch != nil {
			p.mutations = append(p.mutations, &patch.JSONPatchCondition{Expression: m.JSONPatch.Expression})
			continue
		}
		p.mutations = append(p.mutations, &patch.ApplyConfigurationCondition{Expression: m.ApplyConfiguration.Expression})
	}
	return p
}

func validatingPolicy(o *admissionv1.ValidatingAdmissionPolicy) policy {
	p := policy{name: o.Name, params: o.Spec.ParamKind, conditions: o.Spec.MatchConditions, variables: variables(o.Spec.Variables)}
	p.failure = *o.Spec.FailurePolicy
	for _, v := range o.Spec.Validations {
		p.rules = append(p.rules, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message})
		if v.MessageExpression != "" {
			p.rules = append(p.rules, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
		}
	}
	return p
}

func matching(conditions []admissionv1.MatchCondition) (accessors []plugincel.ExpressionAccessor) {
	for _, c := range conditions {
		accessors = append(accessors, (*matchconditions.MatchCondition)(&c))
	}
	return accessors
}

func variables(list []admissionv1.Variable) (accessors []plugincel.NamedExpressionAccessor) {
	for _, v := range list {
		accessors = append(accessors, &validating.Variable{Name: v.Name, Expression: v.Expression})
	}
	return accessors
}

// compile compiles all expressions as an API server of this minor version does for new policies. Such an API server
// accepts only expressions that its previous version understands.
func (p *policy) compile(t *testing.T, minor uint) (problems []string) {
	t.Helper()
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, minor-1)))
	must(t, err)
	options := plugincel.OptionalVariableDeclarations{HasParams: p.params != nil, HasAuthorizer: true}
	note := func(what string, err error) {
		if err != nil {
			problems = append(problems, p.name+": "+what+": "+err.Error())
		}
	}

	for _, v := range p.variables {
		if result := compiler.CompileAndStoreVariable(v, options, environment.NewExpressions); result.Error != nil {
			note(v.GetName(), result.Error)
		}
	}

	for _, c := range p.conditions {
		note(c.Name, compileAll(compiler, []plugincel.ExpressionAccessor{(*matchconditions.MatchCondition)(&c)}, options))
	}

	note("validations", compileAll(compiler, p.rules, options))
	options.HasPatchTypes = true
	for _, m := range p.mutations {
		for _, err := range compiler.CompileMutatingEvaluator(m, options, environment.NewExpressions).CompilationErrors() {
			note("mutations", err)
		}
	}

	return problems
}

func compileAll(compiler *plugincel.CompositedCompiler, expressions []plugincel.ExpressionAccessor, o plugincel.OptionalVariableDeclarations) error {
	for _, err := range compiler.CompileCondition(expressions, o, environment.NewExpressions).CompilationErrors() {
		return err
	}
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestPoliciesCompile compiles the policies as the API servers of several Kubernetes versions do. docs/policies.md
// ("Kubernetes versions") lists the policies that each version accepts.
func TestPoliciesCompile(t *testing.T) {
	found, _ := policies(t, "deploy/policies")
	environments, _ := policies(t, "deploy/policies-environments")
	if len(found) != 16 || len(environments) != 2 {
		t.Errorf("%d and %d policies, want 16 and 2", len(found), len(environments))
	}

	// The policies of from35 need Kubernetes 1.35, and those of from33 need 1.33.
	from35 := []string{"qos-allowed-classes", "qos-allowed-classes-of-claims", "qos-annotations-to-resources", "qos-check-annotations", "qos-check-contradictions",
		"qos-check-units", "qos-check-units-of-claims", "qos-max-classes-of-claims", "qos-max-classes-of-pods"}
	from33 := []string{"qos-bound-environments", "qos-bound-references",
		"qos-check-other-annotations", "qos-default-classes-of-containers", "qos-default-classes-of-pods", "qos-keep-internal-annotations", "qos-keep-requests"}
	for minor, want := range map[uint][]string{36: nil, 35: nil, 34: from35, 33: from35, 32: slices.Sorted(slices.Values(slices.Concat(from35, from33)))} {
		var refused []string
		for _, p := range slices.Concat(found, environments) {
			if problems := p.compile(t, minor); len(problems) > 0 {
				refused = append(refused, p.name)
				if want == nil {
					t.Errorf("on 1.%d: %s", minor, problems)
				}
			}
		}
		slices.Sort(refused)
		if diff := cmp.Diff(want, refused); diff != "" {
			t.Errorf("policies that Kubernetes 1.%d refuses (-want +got):\n%s", minor, diff)
		}
	}
}

// TestThePoliciesForStatefulSetsCompile compiles the policies of deploy/storage-statefulsets-policy. Both must have failurePolicy Ignore: if
// a policy fails, or the kind of its parameters is missing, it must not refuse claims and StatefulSets.
func TestThePoliciesForStatefulSetsCompile(t *testing.T) {
	found, _ := policies(t, "deploy/storage-statefulsets-policy")
	if len(found) != 2 || found[0].params != nil || found[1].params == nil || found[0].failure != admissionv1.Ignore || found[1].failure != admissionv1.Ignore {
		t.Fatalf("the policies are %+v, want one without and one with parameters, both with failurePolicy Ignore", found)
	}
	for _, p := range found {
		for _, minor := range []uint{36, 37} {
			if problems := p.compile(t, minor); len(problems) > 0 {
				t.Errorf("on 1.%d: %s", minor, problems)
			}
		}
	}
}

// TestThePoliciesForRequestsOfClaimsCompile compiles the policies of deploy/storage-requests-policy. The parameters of those for claims are
// LimitRanges.
func TestThePoliciesForRequestsOfClaimsCompile(t *testing.T) {
	found, _ := policies(t, "deploy/storage-requests-policy")
	if len(found) != 3 {
		t.Fatalf("%d policies, want 3", len(found))
	}
	for _, p := range found {
		ofLimitRanges := p.name == "qos-claim-requests-of-limit-ranges"
		if (p.params == nil) != ofLimitRanges || p.params != nil && p.params.Kind != "LimitRange" || p.failure != admissionv1.Fail {
			t.Errorf("%s has parameters %+v and fails %s", p.name, p.params, p.failure)
		}
		if problems := p.compile(t, 36); len(problems) > 0 {
			t.Errorf("on 1.36: %s", problems)
		}
	}
}

// TestPoliciesApplyToSelectedNamespaces checks that all bindings of a kustomization select the same namespaces, and that
// those of deploy/policies-opt-in select others than those of deploy/policies.
func TestPoliciesApplyToSelectedNamespaces(t *testing.T) {
	_, optedOut := policies(t, "deploy/policies")
	_, optedIn := policies(t, "deploy/policies-opt-in")
	if len(optedOut) != 16 || len(optedIn) != 16 {
		t.Fatalf("%d bindings for all namespaces and %d for labelled ones, want one of each kind for 16 policies", len(optedOut), len(optedIn))
	}
	for i := range optedOut {
		if optedOut[i] != optedOut[0] || optedIn[i] != optedIn[0] || optedIn[i] == optedOut[i] {
			t.Errorf("the bindings select the namespaces %s, and those for labelled namespaces select %s", optedOut[i], optedIn[i])
		}
	}
}

// TestOnlyPoliciesWithParametersOfACRDHaveFailurePolicyIgnore: the API server looks for the kind of a policy's
// parameters before it evaluates the policy (CollectParams in k8s.io/apiserver). If the kind is missing, a policy
// with failurePolicy Fail refuses every pod. Only the kind of a CRD can be missing.
func TestOnlyPoliciesWithParametersOfACRDHaveFailurePolicyIgnore(t *testing.T) {
	found, _ := policies(t, "deploy/policies")
	for _, p := range found {
		want := admissionv1.Fail
		// The other parameters have the API version v1, without a group and a slash.
		if p.params != nil && strings.Contains(p.params.APIVersion, "/") {
			want = admissionv1.Ignore
		}
		if p.failure != want {
			t.Errorf("%s has the parameters %v, and failurePolicy %s", p.name, p.params, p.failure)
		}
	}
}

// TestAllPoliciesHaveTheSameListOfResources checks the names and the positions of the lists, too: administrators replace
// the first and the second variable (docs/policies.md).
func TestAllPoliciesHaveTheSameListOfResources(t *testing.T) {
	found, _ := policies(t, "deploy/policies")
	lists := map[string][]string{}
	for _, p := range found {
		for i, v := range p.variables {
			if name := v.GetName(); name == "containerResources" || name == "podResources" {
				list := fmt.Sprint(i, " ", name, " ", v.GetExpression())
				lists[list] = append(lists[list], p.name)
			}
		}
	}

	seven := []string{"qos-allowed-classes-of-claims", "qos-annotations-to-resources", "qos-required-plugin", "qos-check-annotations", "qos-check-contradictions", "qos-check-units",
		"qos-check-units-of-claims"}
	want := map[string][]string{"0 containerResources ['rdt', 'blockio']": seven, "1 podResources ['qos.noderesource.dev/pod-blockio']": seven}
	if diff := cmp.Diff(want, lists, cmpopts.SortSlices(strings.Compare)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
