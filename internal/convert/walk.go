// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

func index(i int) string { return "[" + strconv.Itoa(i) + "]" }

// walk looks for what can be converted in a node, and plans the changes.
func (d *document) walk(n *yaml.Node, at place) {
	n = deref(n)
	switch n.Kind {
	case yaml.MappingNode:
		at, leave := d.enter(n, at)
		switch {
		case leave:
		case isPodSpec(n):
			d.podSpec(nil, nil, n, at)
		default:
			d.walkMapping(n, at)
		}
	case yaml.SequenceNode:
		for i, element := range n.Content {
			d.walk(element, at.at(element, index(i)))
		}
	}
}

// enter begins an object of the Kubernetes API. What is no request of a user is left as it is: what we have defined, and schemas.
func (d *document) enter(n *yaml.Node, at place) (place, bool) {
	apiVersion, kind := stringOf(n, "apiVersion"), stringOf(n, "kind")
	if apiVersion == "" || kind == "" {
		return at, false
	}
	at.object, at.field = strings.TrimSpace(kind+" "+stringOf(valueOf(n, "metadata"), "name")), ""
	group, _, _ := strings.Cut(apiVersion, "/")
	return at, group == classes.Domain || kind == "CustomResourceDefinition"
}

// notWalked are fields of an object of the Kubernetes API that ask for nothing.
func notWalked(n *yaml.Node) []string {
	switch {
	case stringOf(n, "apiVersion") == "" || stringOf(n, "kind") == "":
		return nil
	case stringOf(n, "kind") == "ResourceList":
		return []string{"functionConfig", "results"}
	}
	return []string{"status"}
}

func (d *document) walkMapping(n *yaml.Node, at place) {
	if !mentions(n, fieldName) {
		return
	}
	if stringOf(n, "apiVersion") == "v1" {
		switch stringOf(n, "kind") {
		case "LimitRange":
			d.limitRange(n, at)
			return
		case "ResourceQuota":
			d.resourceQuota(n, at)
			return
		}
	}
	skip := notWalked(n)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		below := at.at(key, "."+key.Value)
		switch {
		case slices.Contains(skip, key.Value):
		case key.Value == fieldName:
			d.fault(below, "is not understood here; it belongs into resources of a container, or into the spec of a pod beside its containers")
		case isPodSpec(value):
			d.podSpec(n, key, deref(value), below)
		default:
			d.walk(value, below)
		}
	}
}

// isPodSpec says whether a node has containers.
func isPodSpec(n *yaml.Node) bool {
	containers := valueOf(deref(n), "containers")
	return containers != nil && containers.Kind == yaml.SequenceNode
}

// containerLists are the fields of a pod's spec with containers.
func containerLists() []string {
	return []string{"initContainers", "containers", "ephemeralContainers"}
}

// walkPodSpec looks for what is in none of the places in a pod's spec that are understood.
func (d *document) walkPodSpec(spec *yaml.Node, at place) {
	for i := 0; i+1 < len(spec.Content); i += 2 {
		key, value := spec.Content[i], deref(spec.Content[i+1])
		below := at.at(key, "."+key.Value)
		switch {
		case key.Value == fieldName:
		case value.Kind == yaml.SequenceNode && slices.Contains(containerLists(), key.Value):
			for i, container := range value.Content {
				d.walkContainer(deref(container), below.at(container, index(i)))
			}
		default:
			d.walk(value, below)
		}
	}
}

func (d *document) walkContainer(container *yaml.Node, at place) {
	if !isMapping(container) {
		d.walk(container, at)
		return
	}
	for i := 0; i+1 < len(container.Content); i += 2 {
		key, value := container.Content[i], deref(container.Content[i+1])
		below := at.at(key, "."+key.Value)
		switch {
		case key.Value == fieldName:
			d.fault(below, "is not understood here; it belongs into resources of the container")
		case key.Value != "resources" || !isMapping(value):
			d.walk(value, below)
		default:
			d.walkResources(value, below)
		}
	}
}

func (d *document) walkResources(resources *yaml.Node, at place) {
	for i := 0; i+1 < len(resources.Content); i += 2 {
		if key := resources.Content[i]; key.Value != fieldName {
			d.walk(resources.Content[i+1], at.at(key, "."+key.Value))
		}
	}
}
