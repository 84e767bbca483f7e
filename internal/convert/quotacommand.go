// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import "sigs.k8s.io/kustomize/kyaml/yaml"

// Quota converts a file that has ResourceQuotas with the KEP's fields and nothing else. With a namespace, they are put into it; a quota
// in another namespace is a problem.
func Quota(name string, text []byte, known Known, namespace string) (Result, error) {
	f := readFile(name, text, known)
	found := false
	for _, d := range f.documents {
		if root := d.content(); root != nil {
			found = d.checkQuotas(root, place{line: root.Line}, namespace) || found
		}
	}
	if !found && len(f.problems) == 0 {
		f.fault(place{}, "has no ResourceQuota; name a file with one")
	}
	return f.convert()
}

// checkQuotas checks that a node is what Quota takes, and reports whether there is any quota.
func (d *document) checkQuotas(n *yaml.Node, at place, namespace string) bool {
	at, _ = enter(n, at)
	kind, items := stringOf(n, "kind"), valueOf(n, "items")
	switch {
	case isNull(n):
		return false
	case items != nil && (kind == "List" || kind == "ResourceQuotaList"):
		found := false
		for _, item := range items.Content {
			found = d.checkQuotas(item, at.at(item, ""), namespace) || found
		}
		return found
	case kind != "ResourceQuota":
		d.fault(at, `is not a ResourceQuota; use "kubectl qos convert" for it`)
	case !contains(n, fieldName):
		d.fault(at, "has no spec.%s; it needs no conversion", fieldName)
	case namespace != "":
		d.setNamespace(n, at, namespace)
	}
	return true
}

func (d *document) setNamespace(n *yaml.Node, at place, namespace string) {
	metadata := d.mapping(n, "metadata", at)
	if metadata.value == nil {
		d.fault(at, "has no metadata; give it a name")
		return
	}
	switch is := d.entry(metadata.value, "namespace", metadata.place); {
	case is.value != nil && is.value.Value != namespace:
		d.fault(is.place, "is %s, not %s of the command line; remove one of them", describe(is.value), quote(namespace))
	case is.value != nil:
	case is.key != nil:
		d.fault(is.place, "is empty; remove it, or the namespace of the command line")
	default:
		d.later(func() { addFields(metadata.value, field{key: "namespace", value: newText(namespace)}) })
	}
}
