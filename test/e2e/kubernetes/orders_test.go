// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"sigs.k8s.io/yaml"
)

const deploy = "../../../deploy/"

// bystanders are a pod and a Deployment that request nothing. Each step changes the annotation of the pod and the
// replicas of the Deployment.
const bystanders = `{apiVersion: v1, kind: Pod, metadata: {name: stays, namespace: plain, annotations: {step: %[1]q}},
  spec: {schedulerName: nobody, containers: [{name: main, image: none}]}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: scaled, namespace: plain}, spec: {replicas: %[2]d, selector: {matchLabels: {app: scaled}},
  template: {metadata: {labels: {app: scaled}}, spec: {schedulerName: nobody, containers: [{name: main, image: none}]}}}}
`

// canary has two policies, which together refuse a pod that has the same name as the policies. If the API server refuses
// this pod, it knows both policies, and therefore all policies that were created before them.
const canary = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s, labels: {canary: "true"}}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  matchConditions: [{name: canary, expression: "object.metadata.?name == optional.of('%[1]s')"}]
  mutations:
  - {patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{metadata: Object.metadata{annotations: {'%[1]s': 'seen'}}}"}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s, labels: {canary: "true"}}
spec: {policyName: %[1]s}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s, labels: {canary: "true"}}
spec:
  failurePolicy: Fail
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  matchConditions: [{name: canary, expression: "object.metadata.?name == optional.of('%[1]s')"}]
  validations: [{expression: "object.metadata.?annotations[?'%[1]s'] != optional.of('seen')"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s, labels: {canary: "true"}}
spec: {policyName: %[1]s, validationActions: [Deny]}
`

// refusedBy is a part of the API server's error for a pod that a policy refuses.
const refusedBy = "ValidatingAdmissionPolicy '%s' with binding"

// asking lists pods that request classes. Each item has the policy that acts on the pod, the pod's annotations and
// limits, and a text in the API server's answer. If that text is empty, the policy refuses the pod.
var asking = []struct{ policy, annotations, limits, answer string }{
	{"qos-check-units", "", "qos.noderesource.dev/rdt.gold: 2", ""},
	{"qos-check-annotations", "container.qos.noderesource.dev/none: rdt=gold", "", ""},
	{"qos-check-contradictions", "container.qos.noderesource.dev/main: rdt=gold", "qos.noderesource.dev/rdt.slow: 1", ""},
	{"qos-check-other-annotations", "rdt.resources.beta.kubernetes.io/pod: gold", "", ""},
	{"qos-keep-internal-annotations", "assigned.qos.noderesource.dev: x", "", ""},
	{"qos-required-plugin", "", "qos.noderesource.dev/rdt.gold: 1", `qos-required-plugin {"required-plugins`},
	{"qos-annotations-to-resources", "container.qos.noderesource.dev/main: rdt=silver", "", `{"limits":{"qos.noderesource.dev/rdt.silver":"1"}`},
}

// installs is a cluster in which the test installs and removes parts of deploy/.
type installs struct {
	*node
	step int
}

// TestNoOrderStopsPodsThatAskForNothing installs and removes the parts of deploy/, and deletes single objects. After
// each step, it creates and changes pods that request nothing, and checks that each installed policy acts on pods that
// request classes.
func TestNoOrderStopsPodsThatAskForNothing(t *testing.T) {
	n := &installs{node: ready(t)}
	n.namespace(t, "plain", "")
	t.Cleanup(func() {
		n.kubectl(t, "delete", "-k", deploy+"uninstall", "--ignore-not-found", within)
		n.kubectl(t, "delete", "validatingadmissionpolicy,validatingadmissionpolicybinding,mutatingadmissionpolicy,mutatingadmissionpolicybinding",
			"-l", "canary")
	})

	t.Run("parts are installed and removed in any order", n.partsInAnyOrder)
	n.kubectl(t, "apply", "-k", deploy+"uninstall") // installs all parts: the kustomization lists what an uninstall deletes
	t.Run("a second apply changes nothing", n.appliedAgain)
	t.Run("one object after another is deleted", n.anyObjectLost)
	t.Run("the kind QOSLimitRange is lost, and the API server starts again", n.kindLost)
	t.Run("policies cannot be evaluated", n.policiesFail)
	t.Run("policies are for some namespaces only, and for all again", func(t *testing.T) {
		n.kubectl(t, "apply", "-k", deploy+"policies-opt-in")
		n.check(t, nil) // the namespace of the pods does not have the label, so no policy has to act
		n.kubectl(t, "apply", "-k", deploy+"policies")
		n.check(t, func(string) bool { return true })
	})
	t.Run("one command removes everything", n.uninstalled)
}

func (n *installs) partsInAnyOrder(t *testing.T) {
	there := map[string]bool{}
	for _, order := range [][]string{
		{"apply kubernetes", "apply policies", "delete kubernetes", "delete policies"},
		{"apply kubernetes", "apply policies", "delete policies", "delete kubernetes"},
		{"apply policies", "apply kubernetes", "delete policies", "delete kubernetes"},
		{"apply policies", "apply kubernetes", "delete kubernetes", "delete policies"},
	} {
		for _, step := range order {
			verb, part, _ := strings.Cut(step, " ")
			n.kubectl(t, verb, "-k", deploy+part)
			there[part] = verb == "apply"
			n.check(t, func(string) bool { return there["policies"] })
		}
	}
}

func (n *installs) appliedAgain(t *testing.T) {
	for _, args := range [][]string{{"-k", deploy + "uninstall"}, {"-f", deploy + "kubernetes/crd.yaml"}, {"-n", "qos-system", "-f", deploy + "kubernetes/rbac.yaml"}} {
		for line := range strings.Lines(n.kubectl(t, append([]string{"apply"}, args...)...)) {
			// kubectl sends the selector of a PodDisruptionBudget at each apply, because its patch strategy is "replace".
			if !strings.HasSuffix(strings.TrimSpace(line), " unchanged") && !strings.HasPrefix(line, "poddisruptionbudget.policy/") {
				t.Errorf("kubectl apply %s, a second time: %s", strings.Join(args, " "), line)
			}
		}
	}
}

// anyObjectLost deletes one object after another. A short run deletes only one object of each kind, and all CRDs, because policies have them
// as parameters.
func (n *installs) anyObjectLost(t *testing.T) {
	lost := map[string]bool{} // kinds
	for manifest := range strings.SplitSeq(n.kubectl(t, "kustomize", deploy+"uninstall"), "\n---\n") {
		object := struct {
			Kind     string
			Metadata struct{ Name string }
		}{}
		must(t, yaml.Unmarshal([]byte(manifest), &object))
		if testing.Short() && lost[object.Kind] {
			continue
		}
		lost[object.Kind] = object.Kind != "CustomResourceDefinition"
		t.Run(object.Kind+" "+object.Metadata.Name, func(t *testing.T) {
			if output, err := n.tryWith(manifest, "delete", "-f", "-", within); err != nil {
				t.Fatalf("the deletion returned %s", output)
			}
			n.check(t, func(policy string) bool { return policy != object.Metadata.Name })
			n.apply(t, manifest)
			if object.Kind == "Namespace" {
				n.kubectl(t, "apply", "-k", deploy+"uninstall") // the namespace was deleted with its content
			}
		})
	}
}

// kindLost deletes the CRD of the parameters of two policies, and restarts the API server, so that the new process has
// never served this CRD.
func (n *installs) kindLost(t *testing.T) {
	n.kubectl(t, "delete", "-f", deploy+"policies/crd.yaml")
	n.cluster.server.mustEnd(t, syscall.SIGKILL)
	n.cluster.server.mustStart(t)
	n.awaitServer(t)
	n.check(t, func(string) bool { return true })
	n.kubectl(t, "apply", "-f", deploy+"policies/crd.yaml")
	n.check(t, func(string) bool { return true })
}

// policiesFail breaks an expression of the policies, so that its evaluation fails, as on an API server that is too old
// to understand it.
func (n *installs) policiesFail(t *testing.T) {
	const patch = `resources: [%s]
patches:
- target: {kind: ValidatingAdmissionPolicy, name: qos-check-.*}
  patch: |
    - {op: replace, path: /spec/variables/0/expression, value: "[[object.metadata.name][1]]"}
`
	n.applyOverlay(t, policies, patch)
	n.check(t, func(policy string) bool {
		return policy == "qos-check-units" || policy == "qos-check-other-annotations"
	})
	n.kubectl(t, "apply", "-k", policies)
}

func (n *installs) uninstalled(t *testing.T) {
	n.kubectl(t, "replace", "-f", deploy+"uninstall/no-classes.yaml")
	n.kubectl(t, "delete", "-k", deploy+"uninstall", "--ignore-not-found", within)
	n.check(t, nil)
	kinds := "namespaces,customresourcedefinitions,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings," +
		"mutatingadmissionpolicies,mutatingadmissionpolicybindings"
	for line := range strings.Lines(n.kubectl(t, "get", kinds, "-o", "name")) {
		if strings.Contains(line, "qos") {
			t.Errorf("%s still exists", line)
		}
	}
}

// check waits until the API server knows all policies, and then creates and changes pods. `holds` reports whether a
// policy must act. If `holds` is nil, no policy has to act.
func (n *installs) check(t *testing.T, holds func(policy string) bool) {
	t.Helper()
	n.step++
	name := fmt.Sprintf("canary-%d", n.step)
	n.apply(t, fmt.Sprintf(canary, name))

	var seen string
	until(t, "the API server knows "+name, func() (bool, string) {
		seen = n.probe(name)
		return strings.Contains(seen, fmt.Sprintf(refusedBy, name)), seen
	})

	if !strings.Contains(seen, "nothing {}") {
		t.Errorf("a pod that requests no class is refused:\n%s", seen)
	}

	var silent []string
	for _, pod := range asking {
		answer := pod.answer
		if answer == "" {
			answer = fmt.Sprintf(refusedBy, pod.policy)
		}
		if holds != nil && holds(pod.policy) && !strings.Contains(seen, answer) {
			silent = append(silent, fmt.Sprintf("%s: %q", pod.policy, answer))
		}
	}

	if silent != nil {
		t.Errorf("policies are not in force; these answers are missing: %s, in\n%s", strings.Join(silent, ", "), seen)
	}

	replicas := 1 + n.step%2
	n.apply(t, fmt.Sprintf(bystanders, name, replicas))
	until(t, "the Deployment has its pods", func() (bool, string) {
		output, _ := n.try("-n", "plain", "get", "deployment", "scaled", "-o", "jsonpath={.status.replicas} {.status.conditions}")
		return strings.HasPrefix(output, fmt.Sprintf("%d ", replicas)), output
	})
}

// probe creates pods by a dry run on the API server, and returns the answers. It creates a pod with the name of the
// canary, then a pod that requests nothing, then the pods in asking.
func (n *installs) probe(canary string) string {
	const pod = `{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: plain, annotations: {%s}},
  spec: {containers: [{name: main, image: none, resources: {limits: {%s}}}]}}
---
`
	manifests := fmt.Sprintf(pod, canary, "", "") + fmt.Sprintf(pod, "nothing", "", "")
	for _, p := range asking {
		manifests += fmt.Sprintf(pod, p.policy, p.annotations, p.limits)
	}
	output, _ := n.kubectlCommand(manifests, "create", "--dry-run=server", "-f", "-",
		"-o", `jsonpath={.metadata.name} {.metadata.annotations}{.spec.containers[0].resources}{"\n"}`).CombinedOutput()
	return string(output)
}
