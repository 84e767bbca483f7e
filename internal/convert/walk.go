// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// walk searches a node for objects and pod specs, and plans their conversion. If the KEP's field is in any other place,
// walk reports a problem.
func (d *document) walk(n *yaml.Node, at place) {
	if isList(n) {
		for i, element := range n.Content {
			d.walk(element, at.at(element, index(i)))
		}
		return
	}
	if !isMapping(n) || !contains(n, fieldName) {
		return
	}

	at, isObject := d.enter(n, at)
	switch {
	case isObject && isIgnored(n):
	case isPodSpec(n):
		d.podSpec(nil, nil, n, at)
	case stringOf(n, "apiVersion") == "v1" && stringOf(n, "kind") == "LimitRange":
		d.limitRange(n, at)
	case stringOf(n, "apiVersion") == "v1" && stringOf(n, "kind") == "ResourceQuota":
		d.resourceQuota(n, at)
	default:
		d.walkFields(n, at)
	}
}

func isObject(n *yaml.Node) bool { return stringOf(n, "apiVersion") != "" && stringOf(n, "kind") != "" }

// enter reports whether a mapping is an object of the Kubernetes API, and returns its place.
func (d *document) enter(n *yaml.Node, at place) (place, bool) {
	if !isObject(n) {
		return at, false
	}
	at.object, at.field = strings.TrimSpace(stringOf(n, "kind")+" "+nameOf(n, "")), ""
	at.apiObject = n
	if d.lists[n] != nil {
		at.listItem = n
	}
	return at, true
}

// isIgnored reports whether an object is left unconverted. CustomResourceDefinitions and objects of the project's API
// group are left unconverted, even if they contain the KEP's field or a schema with this field.
func isIgnored(object *yaml.Node) bool {
	group, _, _ := strings.Cut(stringOf(object, "apiVersion"), "/")
	return group == classes.Domain || stringOf(object, "kind") == "CustomResourceDefinition"
}

func ignoredFields(n *yaml.Node) []string {
	switch {
	case !isObject(n):
		return nil
	case stringOf(n, "kind") == "ResourceList":
		return []string{"functionConfig", "results"}
	}
	return []string{"status"}
}

func (d *document) walkFields(n *yaml.Node, at place) {
	ignored := ignoredFields(n)
	d.refuseField(n, at, "the resources of a container, or to the spec of a pod, next to its containers")
	for key, value := range fields(n) {
		below := at.at(key, "."+key.Value)
		switch {
		case slices.Contains(ignored, key.Value) || d.handled[key]:
		case isPodSpec(value):
			d.podSpec(n, key, value, below)
		default:
			d.walk(value, below)
		}
	}
}

func isPodSpec(n *yaml.Node) bool { return isList(valueOf(n, "containers")) }
