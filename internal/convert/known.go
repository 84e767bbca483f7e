// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Known is which resources and classes exist. The zero value knows the scope of the KEP's official resources, and that
// nothing is known of any other.
type Known struct {
	// from says where the knowledge is from, for errors; empty when there is none.
	from      string
	resources map[string]knownResource
}

type knownResource struct {
	scope classes.Scope
	// classes is nil when they are not known: the resource is configured, and no machine has it.
	classes []string
}

// KnownFromConfig knows what class files have.
func KnownFromConfig(config *classes.Config) Known {
	k := Known{from: "the class files", resources: map[string]knownResource{}}
	for i := range config.Resources {
		resource := &config.Resources[i].Resource
		names := []string{}
		for _, class := range resource.Classes {
			names = append(names, class.Name)
		}
		k.resources[resource.Name] = knownResource{resource.Scope, names}
	}
	return k
}

// KnownFromNodes knows what the nodes of a cluster have together. The error says that two nodes differ in the scope of a resource.
func KnownFromNodes(nodes []v1alpha1.NodeQOSResources) (Known, error) {
	k := Known{from: "the cluster", resources: map[string]knownResource{}}
	for i := range nodes {
		if err := k.addNode(nodes[i].Name, &nodes[i].Status); err != nil {
			return Known{}, err
		}
	}
	return k, nil
}

func (k *Known) addNode(node string, status *v1alpha1.NodeQOSResourcesStatus) error {
	for _, resource := range status.QOSResources.ContainerQOSResources {
		if err := k.add(node, resource.Name, classes.ContainerScope, classNames(resource.Classes)); err != nil {
			return err
		}
	}
	for _, resource := range status.QOSResources.PodQOSResources {
		if err := k.add(node, resource.Name, classes.PodScope, classNames(resource.Classes)); err != nil {
			return err
		}
	}
	for _, resource := range status.UnavailableResources {
		scope := classes.ContainerScope
		if resource.Scope == v1alpha1.ScopePod {
			scope = classes.PodScope
		}
		if err := k.add(node, resource.Name, scope, nil); err != nil {
			return err
		}
	}
	return nil
}

func classNames(infos []v1alpha1.QOSResourceClassInfo) []string {
	names := []string{}
	for i := range infos {
		names = append(names, infos[i].Name)
	}
	return names
}

func (k *Known) add(node, resource string, scope classes.Scope, names []string) error {
	known, seen := k.resources[resource]
	if seen && known.scope != scope {
		return fmt.Errorf("node %s has %s in the scope %s, another one in the scope %s; give the resource one scope on all nodes",
			node, resource, scope, known.scope)
	}
	known.scope = scope
	for _, name := range names {
		if !slices.Contains(known.classes, name) {
			known.classes = append(known.classes, name)
		}
	}
	if known.classes == nil && names != nil {
		known.classes = []string{}
	}
	k.resources[resource] = known
	return nil
}

// given says whether anything is known of what exists.
func (k Known) given() bool { return k.from != "" }

// scope of a resource; ok is false when it is not known.
func (k Known) scope(resource string) (scope classes.Scope, ok bool) {
	if known, ok := k.resources[resource]; ok {
		return known.scope, true
	}
	if resource == classes.RDTResource || resource == classes.BlockIOResource {
		return classes.ContainerScope, true
	}
	return "", false
}

// check says what is wrong with a class of a resource in a scope; it is empty when nothing is known to be.
// Without a class it is about the resource.
func (k Known) check(resource, class string) string {
	if !k.given() {
		return ""
	}
	known, ok := k.resources[resource]
	switch {
	case !ok:
		return fmt.Sprintf("resource %s does not exist in %s; there are %s", resource, k.from, listed(k.names()))
	case class == classes.SystemDefault || known.classes == nil || slices.Contains(known.classes, class):
		return ""
	}
	return fmt.Sprintf("class %q of %s does not exist in %s; there are %s", class, resource, k.from, listed(known.classes))
}

func (k Known) names() []string {
	names := make([]string, 0, len(k.resources))
	for name := range k.resources {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
