// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Known has the resources and classes that exist. The zero value knows only the scopes of the KEP's official resources.
type Known struct {
	// from has the name of the source of the resources and classes, for errors. It is empty if there is no source.
	from      string
	resources map[string]knownResource
}

type knownResource struct {
	scope classes.Scope
	// classes is nil if the classes are unknown. They are unknown if a resource is configured but no machine has it.
	classes []string
}

// KnownFromConfig returns the resources and classes that the class files configure.
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

// KnownFromNodes returns the resources and classes of all nodes of a cluster. It returns an error if a resource has different
// scopes on two nodes.
func KnownFromNodes(nodes []v1alpha1.NodeQOSResources) (Known, error) {
	k := Known{from: "the cluster", resources: map[string]knownResource{}}
	var err error
	for i := range nodes {
		node, status := nodes[i].Name, &nodes[i].Status
		for scope, resource := range status.QOSResources.All() {
			err = errors.Join(err, k.add(node, resource.Name, scope, classNames(resource.Classes)))
		}
		for _, resource := range status.UnavailableResources {
			err = errors.Join(err, k.add(node, resource.Name, cmp.Or(resource.Scope, v1alpha1.ScopeContainer), nil))
		}
	}
	return k, err
}

func classNames(infos []v1alpha1.QOSResourceClassInfo) []string {
	names := []string{}
	for i := range infos {
		names = append(names, infos[i].Name)
	}
	return names
}

// add records that a node has these classes of a resource. `names` is nil if the classes are unknown.
func (k *Known) add(node, resource string, of v1alpha1.Scope, names []string) error {
	scope := classes.Scope(strings.ToLower(string(of)))
	known, seen := k.resources[resource]
	if seen && known.scope != scope {
		return fmt.Errorf("node %s has %s in the scope %s, but another node has it in the scope %s; give the resource one scope on all nodes",
			node, resource, scope, known.scope)
	}

	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(known.classes, name) })
	if known.classes != nil {
		names = append(known.classes, names...)
	}
	k.resources[resource] = knownResource{scope, names}
	return nil
}

func (k Known) scopeOf(resource string) classes.Scope {
	if known, ok := k.resources[resource]; ok {
		return known.scope
	}
	if resource == classes.RDTResource || resource == classes.BlockIOResource {
		return classes.ContainerScope
	}
	return ""
}

// check returns the reason why a class cannot be requested. If `class` is empty, it returns the reason why the resource
// cannot be requested. If no reason is known, it returns "".
func (k Known) check(resource, class string) string {
	known, ok := k.resources[resource]
	switch {
	case k.from == "":
		return ""
	case !ok:
		return fmt.Sprintf("resource %s does not exist in %s; available: %s", resource, k.from, listed(slices.Sorted(maps.Keys(k.resources))))
	case class == classes.SystemDefault || known.classes == nil || slices.Contains(known.classes, class):
		return ""
	}
	return fmt.Sprintf("class %q of %s does not exist in %s; available: %s", class, resource, k.from, listed(known.classes))
}
