// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// Quota is Convert for a text that has ResourceQuotas in the KEP's form and nothing else. With a namespace, they are put into it; one
// that is in another namespace is a problem.
func Quota(name string, text []byte, known Known, namespace string) (Result, error) {
	f := newFile(name, text, known)
	f.parse()
	found := false
	for _, d := range f.documents {
		found = d.quotas(d.root, place{line: d.root.Line}, namespace) || found
	}
	if !found && len(f.problems) == 0 {
		f.fault(place{}, "has no ResourceQuota; name a file with one")
	}
	return f.convert()
}

// quotas checks that a document has what Quota takes, and says whether there is any.
func (d *document) quotas(n *yaml.Node, at place, namespace string) bool {
	kind := stringOf(n, "kind")
	at.object = strings.TrimSpace(kind + " " + stringOf(valueOf(n, "metadata"), "name"))
	switch items := valueOf(n, "items"); {
	case isNull(n):
		return false
	case kind == "List" && items != nil, kind == "ResourceQuotaList" && items != nil:
		found := false
		for _, item := range items.Content {
			found = d.quotas(deref(item), at.at(item, ""), namespace) || found
		}
		return found
	case kind != "ResourceQuota":
		d.fault(at, `is no ResourceQuota; use "kubectl qos convert" for it`)
	case !mentions(n, fieldName):
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
		add := []field{{key: "namespace", kind: textField, value: namespace}}
		d.plan(metadata.place, metadata.value, "namespace", func() { d.addFields(metadata.value, add) })
	}
}
