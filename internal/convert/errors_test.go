// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"fmt"
	"strings"
	"testing"
)

// pod returns the manifest of a pod. The arguments are lines for the pod's metadata, for its spec, and for the
// resources of its container. They must have the indentation of these places: 2, 2 and 6 spaces.
func pod(metadata, spec, resources string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n" + metadata + "spec:\n" + spec +
		"  containers:\n  - name: main\n    resources:\n" + resources
}

const oneGold = "      qosResources:\n      - {name: rdt, class: gold}\n"

func TestProblemsHavePlaceAndRemedy(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"a bad resource name", pod("", "", "      qosResources: [{name: 'vendor example/x', class: gold}]\n"), `a.yaml:9: Pod web: spec.containers[0].resources.qosResources[0]: name "vendor example/x": the part before "/" must be a domain of at most 253 lower-case letters, digits, "-" and ".", like vendor.example`},
		{"a resource in an official domain", pod("", "", "      qosResources: [{name: k8s.io/net, class: gold}]\n"), `a.yaml:9: Pod web: spec.containers[0].resources.qosResources[0]: name "k8s.io/net": the domain k8s.io is reserved for official resources, which are k8s.io/rdt and k8s.io/blockio; use your own domain`},
		{"a bad class name", pod("", "", "      qosResources: [{name: rdt, class: a/b}]\n"), `a.yaml:9: Pod web: spec.containers[0].resources.qosResources[0]: class "a/b": must not contain "/"`},
		{"a resource twice", pod("", "", "      qosResources:\n      - {name: rdt, class: gold}\n      - {name: k8s.io/rdt, class: silver}\n"), `a.yaml:11: Pod web: spec.containers[0].resources.qosResources[1]: resource k8s.io/rdt is requested twice; keep one class`},
		{"a resource of pods on a container", pod("", "", "      qosResources: [{name: network, class: fast}]\n"), `a.yaml:9: Pod web: spec.containers[0].resources.qosResources[0]: qos.noderesource.dev/network is for pods, not for containers; request it in qosResources of the pod's spec`},
		{"a resource of volumes", pod("", "  qosResources: [{name: vendor.example/volume, class: fast}]\n", "      {}\n"), `a.yaml:6: Pod web: spec.qosResources[0]: vendor.example/volume is for volumes, which have no qosResources; request it in annotation volumes.qos.noderesource.dev/CONTAINER as PATH=CLASS`},
		{"no class", pod("", "", "      qosResources:\n      - name: rdt\n"), `a.yaml:10: Pod web: spec.containers[0].resources.qosResources[0]: has no class; write one, or class: "" for the system default`},
		{"a class that is null", pod("", "", "      qosResources:\n      - name: rdt\n        class:\n"), `a.yaml:10: Pod web: spec.containers[0].resources.qosResources[0]: has no class; write one, or class: "" for the system default`},
		{"no name", pod("", "", "      qosResources:\n      - class: gold\n"), `a.yaml:10: Pod web: spec.containers[0].resources.qosResources[0]: has no name; write one`},
		{"a list for a class", pod("", "", "      qosResources:\n      - {name: rdt, class: [gold]}\n"), `a.yaml:10: Pod web: spec.containers[0].resources.qosResources[0].class: must be a string, not a list`},
		{"an unknown field", pod("", "", "      qosResources:\n      - {name: rdt, class: gold, capacity: 1}\n"), `a.yaml:10: Pod web: spec.containers[0].resources.qosResources[0]: unknown field "capacity"; the known fields are name and class`},
		{"requests that are no list", pod("", "", "      qosResources: {rdt: gold}\n"), `a.yaml:9: Pod web: spec.containers[0].resources.qosResources: must be a list of name and class, not a mapping`},
		{"an element that is no mapping", pod("", "", "      qosResources: [rdt=gold]\n"), `a.yaml:9: Pod web: spec.containers[0].resources.qosResources[0]: must be a mapping with name and class, not "rdt=gold"`},
		{"a class that does not exist", pod("", "", "      qosResources: [{name: rdt, class: platinum}]\n"), `a.yaml:9: Pod web: spec.containers[0].resources.qosResources[0]: class "platinum" of k8s.io/rdt does not exist in the class files; available: exclusive, limited, gold, silver, bronze`},
		{"a resource that does not exist", pod("", "  qosResources: [{name: vendor.example/none, class: gold}]\n", "      {}\n"), `a.yaml:6: Pod web: spec.qosResources[0]: resource vendor.example/none does not exist in the class files; available: k8s.io/blockio, k8s.io/rdt, qos.noderesource.dev/network, qos.noderesource.dev/qos-foo, vendor.example/net, vendor.example/volume, vendor.example/xyz-qos`},
		{"another class in the limits", pod("", "", "      limits:\n        qos.noderesource.dev/rdt.silver: 1\n"+oneGold), `a.yaml:12: Pod web: spec.containers[0].resources.qosResources[0]: class "gold" of k8s.io/rdt contradicts qos.noderesource.dev/rdt.silver in the limits; keep one of them`},
		{"another class in an annotation", pod("  annotations:\n    container.qos.noderesource.dev/main: rdt=silver\n", "", oneGold), `a.yaml:12: Pod web: spec.containers[0].resources.qosResources[0]: class "gold" of k8s.io/rdt contradicts class "silver" in annotation container.qos.noderesource.dev/main; keep one of them`},
		{"another class in an annotation of the runtime", pod("  annotations:\n    rdt.resources.beta.kubernetes.io/container.main: silver\n", "", oneGold), `a.yaml:12: Pod web: spec.containers[0].resources.qosResources[0]: class "gold" of k8s.io/rdt contradicts class "silver" in annotation rdt.resources.beta.kubernetes.io/container.main; keep one of them`},
		{"another class in an annotation of nri-plugins", pod("  annotations:\n    rdtclass.resource-policy.nri.io/container.main: silver\n", "", oneGold), `a.yaml:12: Pod web: spec.containers[0].resources.qosResources[0]: class "gold" of k8s.io/rdt contradicts class "silver" in annotation rdtclass.resource-policy.nri.io/container.main; keep one of them`},
		{"another class in an annotation for the pod", pod("  annotations: {qos.noderesource.dev/pod: 'network=slow'}\n", "  qosResources: [{name: network, class: fast}]\n", "      {}\n"), `a.yaml:7: Pod web: spec.qosResources[0]: class "fast" of qos.noderesource.dev/network contradicts class "slow" in annotation qos.noderesource.dev/pod; keep one of them`},
		{"an annotation that is wrong", pod("  annotations: {container.qos.noderesource.dev/main: gold}\n", "", oneGold), `a.yaml:5: Pod web: metadata.annotations[container.qos.noderesource.dev/main]: the request has "gold", which is not of the form resource=class`},
		{"another class of the pod in the limits", pod("", "  qosResources: [{name: network, class: fast}]\n", "      limits: {qos.noderesource.dev/network.slow: 1}\n"), `a.yaml:8: Pod web: spec.containers[0]: the limits have qos.noderesource.dev/network.slow, but the pod requests class "fast" of qos.noderesource.dev/network; keep one of them`},
		{"an ephemeral container", pod("", "  ephemeralContainers:\n  - name: debug\n    resources:\n      qosResources: []\n", "      {}\n"), `a.yaml:7: Pod web: spec.ephemeralContainers[0]: ephemeral containers cannot request QoS classes; remove their qosResources`},
		{"qosResources beside the resources of a container", "spec:\n  containers:\n  - name: main\n    qosResources: []\n", `a.yaml:4: spec.containers[0].qosResources: is not supported here; move it to the resources of the container`},
		{"qosResources without containers", "resources:\n  qosResources: [{name: rdt, class: gold}]\n", `a.yaml:2: resources.qosResources: is not supported here; move it to the resources of a container, or to the spec of a pod, next to its containers`},
		{"qosResources in the metadata", "kind: Pod\napiVersion: v1\nmetadata: {name: a, qosResources: []}\nspec: {containers: []}\n", `a.yaml:3: Pod a: metadata.qosResources: is not supported here; move it to the resources of a container, or to the spec of a pod, next to its containers`},
		{"limits that are no mapping", pod("", "", "      limits: 1\n"+oneGold), `a.yaml:9: Pod web: spec.containers[0].resources.limits: must be a mapping, not "1"`},
		{"resources twice", pod("", "", oneGold+"    resources: {}\n"), `a.yaml:11: Pod web: spec.containers[0].resources: is defined twice; remove one of them`},
		{"resources by a merge key", "base: &base {resources: {limits: {cpu: 1}}}\nspec:\n  qosResources: [{name: rdt, class: gold}]\n  containers:\n  - <<: *base\n    name: main\n", `a.yaml:5: spec.containers[0].resources: is set by the merge key <<; write the field here instead`},
		{"an anchor that is used elsewhere", "spec:\n  containers:\n  - name: main\n    resources: &main\n      qosResources: [{name: rdt, class: gold}]\nother: *main\n", `a.yaml:5: other.qosResources: is not supported here; move it to the resources of a container, or to the spec of a pod, next to its containers`},
		{"an anchor that is used as resources and as ports", "spec:\n  containers:\n  - name: a\n    resources: &r {qosResources: [{name: rdt, class: ''}]}\n  - name: b\n    ports: *r\n", `a.yaml:4: spec.containers[1].ports.qosResources: is not supported here; move it to the resources of a container, or to the spec of a pod, next to its containers`},
		{"an alias inside of its own anchor", "spec: &s\n  containers: [{resources: {qosResources: []}}]\n  again: *s\n", `a.yaml:1: aliases make the document too large; write the document without aliases`},
		{"aliases that multiply", "qosResources: []\na: &a [1, 2, 3, 4, 5, 6, 7, 8]\n" + multiplied("ab", "bc", "cd", "de", "ef", "fg", "gh"), `a.yaml:1: aliases make the document too large; write the document without aliases`},
		{"a block mapping on the line of the marker", "a: 1\n--- qosResources: []\n", `a.yaml: is not YAML or JSON: mapping values are not allowed in this context; correct it`},
		{"a second document that is not YAML", "a: 1\n---\nqosResources: []\nb: @x\n", `a.yaml:4: is not YAML or JSON: found character that cannot start any token; correct it`},
		{"a comment in brackets", "spec:\n  containers:\n  - resources: {qosResources: [ # why\n      {name: rdt, class: gold}]}\n", `a.yaml:3: the comment "# why" would be lost; move it out of the [] or {} around it`},
		{"no place for annotations", "kind: Custom\napiVersion: example.org/v1\nspec:\n  template:\n    containers:\n    - name: main\n      resources: {qosResources: [{name: rdt, class: ''}]}\n", `a.yaml:7: Custom: spec.template.containers[0].resources.qosResources[0]: needs the annotation container.qos.noderesource.dev/main: rdt=, but the conversion cannot find the pod's metadata; add the annotation to the pod's metadata, and remove this request`},
		{"a container whose name fits no annotation", "spec:\n  containers:\n  - name: Main_1\n    resources: {qosResources: [{name: rdt, class: ''}]}\n", `a.yaml:4: spec.containers[0].resources.qosResources[0]: needs an annotation for the container, but the container's name "Main_1" is not valid in Kubernetes; rename the container with lower-case letters, digits and "-"`},
		{"a text with a template action that is also YAML", "spec:\n  replicas: {{ .Values.replicas }}\n  qosResources: []\n", `a.yaml:3: spec.qosResources: is not supported here; move it to the resources of a container, or to the spec of a pod, next to its containers`},
		{"two documents, all problems", pod("", "", "      qosResources: [{name: rdt, class: a}]\n") + "---\n" + pod("", "", "      qosResources: [{name: rdt, class: b}]\n"), `a.yaml:9: Pod web: spec.containers[0].resources.qosResources[0]: class "a" of k8s.io/rdt does not exist in the class files; available: exclusive, limited, gold, silver, bronze` + "\n" + `a.yaml:19: Pod web: spec.containers[0].resources.qosResources[0]: class "b" of k8s.io/rdt does not exist in the class files; available: exclusive, limited, gold, silver, bronze`},
		{"a maximum in a LimitRange without a number", limitRange("  - type: Container\n    qosResources:\n    - name: rdt\n      max: [{name: gold, capacity: few}, {name: silver}]\n"), `a.yaml:10: LimitRange defaults: spec.limits[0].qosResources[0].max[0].capacity: must be a number of at least 0, not "few"` + "\n" + `a.yaml:10: LimitRange defaults: spec.limits[0].qosResources[0].max[1]: has no capacity; write one, or 0 to forbid the class`},
		{"an unknown class in a maximum", limitRange("  - type: Container\n    qosResources: [{name: rdt, max: [{name: platinum, capacity: 1}]}]\n"), `a.yaml:8: LimitRange defaults: spec.limits[0].qosResources[0].max[0]: class "platinum" of k8s.io/rdt does not exist in the class files; available: exclusive, limited, gold, silver, bronze`},
		{"no default in a LimitRange", limitRange("  - type: Container\n    qosResources: [{name: rdt}]\n"), `a.yaml:8: LimitRange defaults: spec.limits[0].qosResources[0]: has no default; write one`},
		{"an empty default in a LimitRange", limitRange("  - type: Container\n    qosResources: [{name: rdt, default: ''}]\n"), `a.yaml:8: LimitRange defaults: spec.limits[0].qosResources[0]: has an empty default; write a class, or remove the default`},
		{"another type in a LimitRange", limitRange("  - type: PersistentVolumeClaim\n    qosResources: [{name: rdt, default: gold}]\n"), `a.yaml:7: LimitRange defaults: spec.limits[0]: type "PersistentVolumeClaim" cannot have qosResources; use type Pod or Container`},
		{"a resource of pods as a default of containers", limitRange("  - type: Container\n    qosResources: [{name: network, default: fast}]\n"), `a.yaml:8: LimitRange defaults: spec.limits[0].qosResources[0]: qos.noderesource.dev/network is for pods, not for containers; put it under type: Pod`},
		{"a resource of containers as a default of pods", limitRange("  - type: Pod\n    qosResources: [{name: rdt, default: gold}]\n"), `a.yaml:8: LimitRange defaults: spec.limits[0].qosResources[0]: k8s.io/rdt is for containers, not for pods; put it under type: Container`},
		{"defaults of containers in two places", limitRange("  - {type: Container, qosResources: [{name: rdt, default: gold}]}\n  - {type: Container, qosResources: [{name: blockio, default: slow}]}\n"), `a.yaml:8: LimitRange defaults: spec.limits[1].qosResources: type Container has qosResources in more than one item; put them into one item`},
		{"qosResources beside the limits", limitRange("  - type: Pod\n  qosResources: []\n"), `a.yaml:8: LimitRange defaults: spec.qosResources: is not supported here; move it to the elements of limits`},
		{"a capacity of 0", quota("    container: [{name: rdt, classes: [{name: gold, capacity: 0}]}]\n"), `a.yaml:7: ResourceQuota limits: spec.qosResources.container[0].classes[0].capacity: must be a number above 0, not "0"; for no limit, omit the capacity; to forbid the class, omit the class`},
		{"a capacity that is no number", quota("    container: [{name: rdt, classes: [{name: gold, capacity: many}]}]\n"), `a.yaml:7: ResourceQuota limits: spec.qosResources.container[0].classes[0].capacity: must be a number above 0, not "many"; for no limit, omit the capacity; to forbid the class, omit the class`},
		{"an unknown class in a quota", quota("    container: [{name: rdt, classes: [{name: platinum}]}]\n"), `a.yaml:7: ResourceQuota limits: spec.qosResources.container[0].classes[0]: class "platinum" of k8s.io/rdt does not exist in the class files; available: exclusive, limited, gold, silver, bronze`},
		{"a class twice in a quota", quota("    container: [{name: rdt, classes: [{name: gold}, {name: gold}]}]\n"), `a.yaml:7: ResourceQuota limits: spec.qosResources.container[0].classes[1]: class "gold" is defined twice; keep one of them`},
		{"a resource in the other section", quota("    pod: [{name: rdt, classes: [{name: gold}]}]\n"), `a.yaml:7: ResourceQuota limits: spec.qosResources.pod[0]: k8s.io/rdt is a resource of a container, not of a pod; move the resource to container`},
		{"an unknown section", quota("    node: []\n"), `a.yaml:7: ResourceQuota limits: spec.qosResources.node: unknown field "node"; the known fields are pod and container`},
		{"a quota with both forms", strings.Replace(quota("    container: []\n"), "limits\n", "limits\n  annotations: {qos.noderesource.dev/allowed-classes: rdt=gold}\n", 1), `a.yaml:7: ResourceQuota limits: spec.qosResources: the ResourceQuota also has the annotation qos.noderesource.dev/allowed-classes; keep one of them`},
		{"another quota of the class", quota("    container: [{name: rdt, classes: [{name: gold, capacity: 2}]}]\n  hard: {requests.qos.noderesource.dev/rdt.gold: 1}\n"), `a.yaml:8: ResourceQuota limits: spec.hard.requests.qos.noderesource.dev/rdt.gold: is "1", but the conversion of qosResources sets it to 2; keep one of them`},
	} {
		t.Run(test.name, func(t *testing.T) { wantProblems(t, test.text, toLimits(), test.want) })
	}
}

func limitRange(limits string) string {
	return "apiVersion: v1\nkind: LimitRange\nmetadata:\n  name: defaults\nspec:\n  limits:\n" + limits
}

func quota(sections string) string {
	return "apiVersion: v1\nkind: ResourceQuota\nmetadata:\n  name: limits\nspec:\n  qosResources:\n" + sections
}

// multiplied returns a line of YAML for each pair of letters. For the pair "ab", the line defines the anchor b as a
// list of eight aliases of a.
func multiplied(pairs ...string) string {
	var text strings.Builder
	for _, pair := range pairs {
		fmt.Fprintf(&text, "%c: &%c [%s]\n", pair[1], pair[1], strings.TrimSuffix(strings.Repeat("*"+pair[:1]+", ", 8), ", "))
	}
	return text.String()
}
