// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"fmt"
	"strings"
)

const gold = "rdt: {classes: {gold: {}, bronze: {}}}"

// manyClasses returns a section with the given number of classes.
func manyClasses(number int) string {
	names := make([]string, number)
	for i := range names {
		names[i] = fmt.Sprintf("c%03d: {}", i)
	}
	return "rdt: {classes: {" + strings.Join(names, ", ") + "}}"
}

var badFiles = []struct {
	name, text string
	// want is every error, in order.
	want []string
}{
	{"another apiVersion, whose other fields are not checked", "apiVersion: v1\nkind: QOSClassConfig\nwhatever: 1\nresources: [1]\n", []string{
		`a.yaml:1: apiVersion: is "v1"; only qos.noderesource.dev/v1alpha1 is known`,
	}},
	{"another kind", "apiVersion: qos.noderesource.dev/v1alpha1\nkind: Pod\n", []string{`a.yaml:2: kind: is "Pod"; only QOSClassConfig is known`}},
	{"no apiVersion and no kind", "resources: []\n", []string{
		"a.yaml:1: apiVersion: is missing; write apiVersion: qos.noderesource.dev/v1alpha1",
		"a.yaml:1: kind: is missing; write kind: QOSClassConfig",
	}},
	{"a list at the top", "- a\n", []string{"a.yaml:1: must be a mapping with the fields apiVersion, kind, resources, not a list"}},
	{"a text", "hello\n", []string{`a.yaml:1: must be a mapping with the fields apiVersion, kind, resources, not "hello"`}},
	{"two documents", resource("name: rdt", gold) + "---\na: b\n", []string{"a.yaml:6: begins a second YAML document; write one document per file"}},
	{"resources that are no list", head + "  a: b\n", []string{"a.yaml:3: resources: must be a list, not a mapping"}},
	{"a resource that is a word", head + "- rdt\n", []string{
		`a.yaml:4: resources[0]: must be a mapping with the fields name, scope, defaultClass, match, onClassRemoved, runtimeHandlers, classes, rdt, blockio, network, not "rdt"`,
	}},
	{"unknown fields of everything", "spec: 1\n" + resource("name: rdt", "defaultclass: gold", "classes: [{name: gold, cap: 2}]", gold), []string{
		"a.yaml:1: spec: unknown field; the known fields are apiVersion, kind, resources",
		"a.yaml:6: resources[0].defaultclass: unknown field (did you mean defaultClass?); the known fields are name, scope, defaultClass, match, onClassRemoved, runtimeHandlers, classes, rdt, blockio, network",
		"a.yaml:7: resources[0].classes[0].cap: unknown field; the known fields are name, capacity, description",
	}},
	{"duplicate keys", resource("name: rdt", "name: blockio", "rdt:", "  classes: {gold: {}, gold: {}}"), []string{
		"a.yaml:5: resources[0].name: is defined twice; the first is in line 4",
		"a.yaml:7: resources[0].rdt.classes.gold: is defined twice; the first is in line 7",
	}},
	{"a key that is a list", resource("name: rdt", "[a]: b", gold), []string{"a.yaml:5: resources[0]: has a key that is a mapping or a list"}},
	{"wrong types", resource("name: 12", "scope: [pod]", "defaultClass: true", "classes: gold", "rdt: 3"), []string{
		`a.yaml:4: resources[0].name: must be a string, not the number "12"; put the value in quotes`,
		"a.yaml:5: resources[0].scope: must be a string, not a list",
		`a.yaml:6: resources[0].defaultClass: must be a string, not the boolean "true"; put the value in quotes`,
		`a.yaml:7: resources[0].classes: must be a list, not "gold"`,
		`a.yaml:8: resources[0].rdt: must be a mapping with the configuration of rdt, not the number "3"`,
	}},
	{"runtime handlers", resource("name: rdt", "runtimeHandlers: []", gold) +
		"- name: vendor.example/net\n  scope: pod\n  runtimeHandlers: [Kata, 1]\n  network: {classes: {fast: {}}}\n", []string{
		"a.yaml:5: resources[0].runtimeHandlers: has no handler; add one, or omit the field to allow all handlers that share the node's kernel",
		`a.yaml:9: resources[1].runtimeHandlers[0]: "Kata" cannot be a runtime handler; write the field handler of a RuntimeClass, e.g. runc`,
		`a.yaml:9: resources[1].runtimeHandlers[1]: must be a string, not the number "1"; put the value in quotes`,
	}},
	{"rules", resource("name: rdt", "match:",
		"- {class: gold, namespaces: []}",
		"- {name: a b, class: silver, namespaces: [kube-system, Kube]}",
		"- {name: x, class: bronze}",
		"- {name: x, podQOS: [Best], imageDigests: [latest], labels: {a b: c, app: 'x y'}, priorityClass: low}",
		"- {name: y, class: bronze, labels: {}}",
		"classes: [{name: gold, capacity: 1}, {name: bronze}]", gold), []string{
		"a.yaml:6: resources[0].match[0].class: class \"gold\" has capacity 1, but the class of a rule must be unlimited, because containers without a request are never refused",
		"a.yaml:6: resources[0].match[0].name: is missing; give the rule a name, which reports show as the source of the class",
		"a.yaml:6: resources[0].match[0].namespaces: is empty; omit the field",
		"a.yaml:7: resources[0].match[1].class: there is no class \"silver\"; available: gold, bronze",
		"a.yaml:7: resources[0].match[1].name: \"a b\" cannot be the name of a rule; use at most 63 lower-case letters, digits and dashes",
		"a.yaml:7: resources[0].match[1].namespaces[1]: \"Kube\" is not the name of a namespace",
		"a.yaml:8: resources[0].match[2]: matches every pod; add namespaces, labels, podQOS or imageDigests, or use the resource's field defaultClass",
		"a.yaml:9: resources[0].match[3].class: is missing; write the class that the rule assigns, or \"\" for none",
		"a.yaml:9: resources[0].match[3].imageDigests[0]: \"latest\" is not a digest; write one such as sha256: and 64 hexadecimal digits",
		"a.yaml:9: resources[0].match[3].labels.a b: cannot be the key of a label; use a name such as app or vendor.example/tier",
		"a.yaml:9: resources[0].match[3].labels.app: \"x y\" cannot be the value of a label; use at most 63 letters, digits, dashes, dots and underscores",
		"a.yaml:9: resources[0].match[3].name: another rule is already named \"x\"",
		"a.yaml:9: resources[0].match[3].podQOS[0]: \"Best\" is not a Pod QoS class; write Guaranteed, Burstable or BestEffort",
		"a.yaml:9: resources[0].match[3].priorityClass: unknown field; the known fields are name, class, namespaces, labels, podQOS, imageDigests",
		"a.yaml:10: resources[0].match[4].labels: is empty; omit the field",
	}},
	{"rules without a rule", resource("name: rdt", "match: []", gold), []string{
		"a.yaml:5: resources[0].match: has no rule; omit the field, or add a rule such as {name: batch, namespaces: [batch], class: bronze}",
	}},
	{"image digests in a rule for pods", resource("name: vendor.example/net", "scope: pod", "match: [{name: x, class: fast, imageDigests: ["+digest+"]}]", "network: {classes: {fast: {}}}"), []string{
		"a.yaml:6: resources[0].match[0].imageDigests: must be omitted: a pod has no image, only its containers have",
	}},
	{"empty values", resource("name:", "classes: [{name: , capacity: }, {}]", "rdt:"), []string{
		"a.yaml:4: resources[0].name: must be a string, not an empty value",
		"a.yaml:5: resources[0].classes[0].capacity: must be a whole number like 4, not an empty value; omit the field for unlimited",
		"a.yaml:5: resources[0].classes[0].name: must be a string, not an empty value",
		"a.yaml:5: resources[0].classes[1].name: is missing; give the class a name",
		"a.yaml:6: resources[0].rdt: must be a mapping with the configuration of rdt, not an empty value",
	}},
	{"no name", resource("scope: container", gold), []string{
		"a.yaml:4: resources[0].name: is missing; add a name such as k8s.io/rdt or vendor.example/my-qos",
	}},
	{"an unknown scope", resource("name: rdt", "scope: node", gold), []string{`a.yaml:5: resources[0].scope: is "node"; write container or pod or volume`}},
	{"an unknown onClassRemoved", resource("name: rdt", "onClassRemoved: kill", gold), []string{`a.yaml:5: resources[0].onClassRemoved: is "kill"; write drain or evict`}},
	{"an empty onClassRemoved", resource("name: rdt", "onClassRemoved:", gold), []string{"a.yaml:5: resources[0].onClassRemoved: must be a string, not an empty value"}},
	{"a truth value for onClassRemoved", resource("name: rdt", "onClassRemoved: true", gold), []string{
		`a.yaml:5: resources[0].onClassRemoved: must be a string, not the boolean "true"; put the value in quotes`,
	}},
	{"a scope that the kind does not have", resource("name: vendor.example/x", "scope: pod", gold), []string{
		"a.yaml:6: resources[0].rdt: cannot be in scope pod; rdt can be in scope container",
	}},
	{"a kind for pods left in the scope of containers", resource("name: vendor.example/x", "network: {}"), []string{
		"a.yaml:5: resources[0].network: cannot be in scope container; network can be in scope pod",
	}},
	{"an official resource in the other scope", resource("name: blockio", "scope: pod", "blockio: {}"), []string{
		"a.yaml:5: resources[0].scope: k8s.io/blockio is always in container scope; omit the scope, or use another name for a resource of pods, like qos.noderesource.dev/pod-blockio",
	}},
	{"the other official resource in the other scope", resource("name: rdt", "scope: pod", "rdt: {}"), []string{
		"a.yaml:5: resources[0].scope: k8s.io/rdt is always in container scope; omit the scope, or use another name for a resource of pods, like qos.noderesource.dev/pod-rdt",
		"a.yaml:6: resources[0].rdt: cannot be in scope pod; rdt can be in scope container",
	}},
	{"an official resource with the backend of another", resource("name: blockio", gold), []string{
		"a.yaml:5: resources[0].rdt: cannot be the backend of k8s.io/blockio; use the field blockio, or another resource name",
	}},
	{"no backend", resource("name: rdt"), []string{"a.yaml:4: resources[0]: has no backend; add one of the fields rdt, blockio, network"}},
	{"two backends", resource("name: rdt", gold, "blockio: {}"), []string{
		"a.yaml:6: resources[0].blockio: is not the only backend: the resource has rdt and blockio; write one resource for each backend",
	}},
	{"names without a domain, which are Kubernetes' own", resource("name: network", "scope: pod", "network: {}"), []string{
		`a.yaml:4: resources[0].name: "network" cannot be the name of a resource: names without a domain are reserved for Kubernetes; put a domain before the name, as in vendor.example/network`,
	}},
	{"an official name that nobody has defined", resource("name: k8s.io/foo", gold), []string{
		`a.yaml:4: resources[0].name: "k8s.io/foo" cannot be the name of a resource: the domain k8s.io is reserved for official resources, which are k8s.io/rdt and k8s.io/blockio; use your own domain`,
	}},
	{"capacities that are not whole numbers", resource("name: rdt", "classes:", "- {name: gold, capacity: -1}", "- {name: bronze, capacity: 1.5}", "rdt: {classes: {gold: {}, bronze: {}}}"), []string{
		"a.yaml:6: resources[0].classes[0].capacity: must not be negative; 0 means unlimited",
		`a.yaml:7: resources[0].classes[1].capacity: must be a whole number like 4, not the number "1.5"; omit the field for unlimited`,
	}},
	{"capacities in other notations", resource("name: rdt", "classes:", `- {name: a, capacity: "2"}`, "- {name: b, capacity: 0x10}", "- {name: c, capacity: 010}", "- {name: d, capacity: 1_000}", "- {name: e, capacity: [1]}", "rdt: {classes: {a: , b: , c: , d: , e: }}"), []string{
		`a.yaml:6: resources[0].classes[0].capacity: must be a whole number like 4, not "2"; omit the field for unlimited`,
		`a.yaml:7: resources[0].classes[1].capacity: must be a whole number like 4, not the number "0x10"; omit the field for unlimited`,
		`a.yaml:8: resources[0].classes[2].capacity: must be a whole number like 4, not the number "010"; omit the field for unlimited`,
		`a.yaml:9: resources[0].classes[3].capacity: must be a whole number like 4, not the number "1_000"; omit the field for unlimited`,
		`a.yaml:10: resources[0].classes[4].capacity: must be a whole number like 4, not a list; omit the field for unlimited`,
	}},
	{"capacities that are too large", resource("name: rdt", "classes: [{name: gold, capacity: 100001}, {name: bronze, capacity: 99999999999999999999999}]", gold), []string{
		"a.yaml:5: resources[0].classes[0].capacity: must not be more than 100000; 0 means unlimited",
		"a.yaml:5: resources[0].classes[1].capacity: must not be more than 100000; 0 means unlimited",
	}},
	{"more classes than a node can have", resource("name: rdt", manyClasses(258)), []string{
		`a.yaml:5: resources[0].rdt: class "c256" is one too many: a node can have at most 256 classes`,
	}},
	{"more classes in two resources than a node can have", resource("name: rdt", manyClasses(256)) + "- {name: vendor.example/x, scope: pod, classes: [{name: a}], network: {classes: {a: {}}}}\n",
		[]string{`a.yaml:6: resources[1].classes[0].name: class "a" is one too many: a node can have at most 256 classes`}},
	{"an empty list of classes", resource("name: rdt", "classes: []", gold), []string{
		"a.yaml:5: resources[0].classes: has no class; omit the field to offer every class of the backend",
	}},
	{"a class listed twice", resource("name: rdt", "classes:", "- name: gold", "- name: gold", gold), []string{
		`a.yaml:7: resources[0].classes[1].name: class "gold" is already listed in line 6`,
	}},
	{"a class that is not configured", resource("name: rdt", "classes: [{name: gold}, {name: platin}]", gold), []string{
		`a.yaml:5: resources[0].classes[1].name: class "platin" is not configured under rdt; available: gold, bronze`,
	}},
	{"names of classes that would be paths", resource("name: rdt", "classes: [{name: ../../etc}, {name: ..}, {name: a/b}, {name: gold}]", gold), []string{
		`a.yaml:5: resources[0].classes[0].name: "../../etc" cannot be the name of a class: must not contain "/"`,
		`a.yaml:5: resources[0].classes[1].name: ".." cannot be the name of a class: must have only letters, digits, "-", "_" and ".", and begin and end with a letter or digit`,
		`a.yaml:5: resources[0].classes[2].name: "a/b" cannot be the name of a class: must not contain "/"`,
	}},
	{"a class of the backend that cannot be offered", resource("name: rdt", "rdt: {classes: {gold: {}, a/b: {}}}"), []string{
		`a.yaml:5: resources[0].rdt: "a/b" cannot be the name of a class: must not contain "/"`,
	}},
	{"a default that does not exist", resource("name: rdt", "defaultClass: silver", gold), []string{
		`a.yaml:5: resources[0].defaultClass: there is no class "silver"; available: gold, bronze`,
	}},
	{"a default that is not offered", resource("name: rdt", "defaultClass: bronze", "classes: [{name: gold}]", gold), []string{
		`a.yaml:5: resources[0].defaultClass: there is no class "bronze"; available: gold`,
	}},
	{"a default class with a capacity", resource("name: rdt", "defaultClass: gold", "classes: [{name: gold, capacity: 1}]", gold), []string{
		`a.yaml:5: resources[0].defaultClass: class "gold" has capacity 1, but a default class must be unlimited, because containers without a request are never refused`,
	}},
	{"a resource defined twice, whose classes are not compared", resource("name: blockio", "blockio: {classes: {gold: }}") + "- name: k8s.io/blockio\n  blockio: {classes: {gold: }}\n", []string{
		"a.yaml:6: resources[1].name: k8s.io/blockio is already defined at a.yaml:4; put all of its classes there",
	}},
	{"a resource in both scopes", resource("name: vendor.example/x", "blockio: {}") + "- name: vendor.example/x\n  scope: pod\n  blockio: {}\n", []string{
		"a.yaml:6: resources[1].name: vendor.example/x is already defined at a.yaml:4 in scope container; use a name in only one scope",
	}},
	{"two resources with a kind that a node can have only once", resource("name: rdt", gold) + "- name: vendor.example/rdt\n  rdt: {}\n", []string{
		"a.yaml:7: resources[1].rdt: only one resource on a node can have this field; k8s.io/rdt at a.yaml:4 already has it",
	}},
	{"a class too long for an extended resource", resource("name: rdt", "rdt: {classes: {"+strings.Repeat("a", 60)+": {}}}"), []string{
		`a.yaml:5: resources[0].rdt: class "` + strings.Repeat("a", 60) + `" cannot be offered to Kubernetes: extended resource qos.noderesource.dev/rdt.` + strings.Repeat("a", 39) + `...: must not be longer than 63 characters after "/"`,
	}},
	{"classes of two resources with the same extended resource", resource("name: rdt", "rdt: {classes: {gold: }}") + "- name: qos.noderesource.dev/rdt\n  blockio: {classes: {gold: }}\n", []string{
		`a.yaml:7: resources[1].blockio: class "gold" would get the extended resource qos.noderesource.dev/rdt.gold, but a class of k8s.io/rdt at a.yaml:4 has it already; rename one of the two classes`,
	}},
	{"the same extended resource, because names contain dots", resource("name: v.example/a.b", "blockio: {classes: {c: }}") + "- name: v.example/a\n  blockio: {classes: {b.c: }}\n", []string{
		`a.yaml:7: resources[1].blockio: class "b.c" would get the extended resource v.example/a.b.c, but a class of v.example/a.b at a.yaml:4 has it already; rename one of the two classes`,
	}},
	{"configFile beside other fields", resource("name: rdt", "rdt: {configFile: /x, classes: {}}"), []string{
		"a.yaml:5: resources[0].rdt.configFile: cannot be combined with other fields; put all of the configuration into the file",
	}},
	{"configFile that is relative", resource("name: rdt", "rdt: {configFile: x.yaml}"), []string{
		`a.yaml:5: resources[0].rdt.configFile: is "x.yaml"; write an absolute path`,
	}},
	{"configFile, although Parse got no function to read files", resource("name: rdt", "rdt: {configFile: /x.yaml}"), []string{
		"a.yaml:5: resources[0].rdt.configFile: cannot read /x.yaml here; put the configuration into the class file",
	}},
	{"a section in block style, with comments and gaps", resource("name: rdt", "rdt:", "  # a comment", "", "  classes:", "    gold: {}", "", "    bronze:", "      ok: 1", "      bad: 1", "  more: |", "    a", "    b", "  other: 1"), []string{
		"a.yaml:13: resources[0].rdt.classes.bronze.bad: is bad", "a.yaml:14: resources[0].rdt.more: unknown field; the known fields are classes", "a.yaml:17: resources[0].rdt.other: unknown field; the known fields are classes",
	}},
	{"a section in flow style over several lines", resource("name: rdt", "rdt: {", "  classes: {", "   gold: {", "   bad: 1}}, other: {},", "  more: 1}"), []string{
		"a.yaml:8: resources[0].rdt.classes.gold.bad: is bad", "a.yaml:8: resources[0].rdt.other: unknown field; the known fields are classes", "a.yaml:9: resources[0].rdt.more: unknown field; the known fields are classes",
	}},
	{"a section behind an alias", resource("name: &n rdt", "rdt: {classes: {gold: &x {", "  bad: 1}, bronze: *x}}"), []string{
		"a.yaml:6: resources[0].rdt.classes.bronze.bad: is bad", "a.yaml:6: resources[0].rdt.classes.gold.bad: is bad",
	}},
	{"a problem of a whole section", resource("name: rdt", "rdt:", "  classes: {explode: {}}"), []string{"a.yaml:5: resources[0].rdt: exploded"}},
}
