// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// quotaPrefix and unenforcedPrefix are prefixes of an extended resource in a ResourceQuota. Kubernetes accepts both
// prefixes, but enforces only limits with quotaPrefix.
const (
	quotaPrefix      = "requests."
	unenforcedPrefix = "limits."
	// allowedKey is the key of an annotation of a ResourceQuota. It lists, as RESOURCE=CLASS pairs, all classes that pods of the
	// namespace may request of the named resources. The policy qos-allowed-classes enforces it.
	allowedKey = classes.Domain + "/allowed-classes"
)

type quota struct {
	*document
	spec      *yaml.Node
	qos, hard entry
	resources []string
	// allowed has the value of the annotation allowedKey, as pairs. A resource without an allowed class has the empty class.
	allowed []string
	// add has what the conversion will add to spec.hard. `lost` has the comments of removed nodes until
	// the next added field gets them.
	add  []field
	lost string
}

// resourceQuota plans the conversion of a ResourceQuota to limits of extended resources, and to an annotation with the allowed classes.
// A listed class without a capacity gets no limit.
func (d *document) resourceQuota(n *yaml.Node, at place) {
	before := len(d.problems)
	spec := d.mapping(n, "spec", at)
	if spec.value == nil {
		d.fault(at, "has %s outside its spec; move it into the spec", fieldName)
		return
	}
	q := &quota{document: d, spec: spec.value}
	q.hard = d.mapping(q.spec, "hard", spec.place)
	q.qos = d.mapping(q.spec, fieldName, spec.place)
	d.walkFields(n, at)
	if valueOf(valueOf(valueOf(n, "metadata"), "annotations"), allowedKey) != nil {
		d.fault(q.qos.place, "the ResourceQuota also has the annotation %s; keep one of them", allowedKey)
	}
	if len(d.problems) > before || q.qos.key == nil {
		return
	}

	q.readSections()
	q.checkHard()
	if len(q.allowed) > 0 {
		d.note("the classes that the ResourceQuota does not list are forbidden only where the policies qos-allowed-classes and " +
			"qos-allowed-classes-of-claims are installed")
	}
	d.later(func() {
		if len(q.allowed) > 0 {
			annotations := childMapping(childMapping(n, "metadata"), "annotations")
			addFields(annotations, field{key: allowedKey, value: newText(strings.Join(q.allowed, ","))})
		}
		if len(q.add) == 0 && q.hard.key != nil {
			removeField(q.spec, q.qos, nil, join(ownComments(q.qos.key, q.qos.node), q.lost))
			return
		}
		replaceField(q.spec, q.qos, "hard", q.add, q.lost)
	})
}

func (q *quota) readSections() {
	for key, value := range fields(q.qos.value) {
		scope := classes.Scope(key.Value)
		if scope != classes.PodScope && scope != classes.ContainerScope {
			q.fault(q.qos.at(key, "."+key.Value), "unknown field %s; the known fields are pod and container", quote(key.Value))
			continue
		}
		section := q.entry(q.qos.value, key.Value, q.qos.place)
		q.lost = join(q.lost, ownComments(key, value))
		for _, r := range q.requests(section, elementFields{names: []string{"name", "classes"}, pods: "put it under pod"}, scope) {
			q.addResource(r, scope)
		}
	}
}

// addResource adds the limits of a resource, and its allowed classes. The limit of a class is its capacity.
func (q *quota) addResource(r request, scope classes.Scope) {
	if slices.Contains(q.resources, r.resource) {
		q.fault(r.place, "resource %s is defined twice; keep one of them", r.resource)
		return
	}
	if known := q.run.Known.scopeOf(r.resource); known != "" && known != scope {
		q.fault(r.place, "%s is a resource of a %[2]s, not of a %s; move the resource to %[2]s", r.resource, known, scope)
		return
	}
	q.resources = append(q.resources, r.resource)

	list := q.list(r.element, "classes", r.place, "name and capacity")
	q.lost = join(q.lost, ownComments(r.element), ownComments(r.element.Content...))
	var listed []string
	for i, n := range elements(list.value) {
		at := list.at(n, index(i))
		name, capacity, ok := q.readClass(r.resource, n, at)
		switch {
		case !ok:
		case slices.Contains(listed, name):
			q.fault(at, "class %s is defined twice; keep one of them", quote(name))
		default:
			listed = append(listed, name)
			q.addClass(n, r.resource, name, capacity)
		}
	}
	if len(listed) == 0 {
		listed = []string{classes.SystemDefault}
	}
	for _, name := range listed {
		q.allowed = append(q.allowed, classes.ShortResource(r.resource)+"="+name)
	}
}

func (q *quota) readClass(resource string, n *yaml.Node, at place) (name string, capacity int64, ok bool) {
	before := len(q.problems)
	if !q.checkFields(n, at, []string{"name", "capacity"}) {
		return "", 0, false
	}

	name = q.scalar(n, "name", at).Value
	if e := q.entry(n, "capacity", at); e.value != nil {
		var err error
		if capacity, err = strconv.ParseInt(e.value.Value, 10, 64); err != nil || capacity < 1 {
			q.fault(e.place, "must be a number above 0, not %s; for no limit, omit the capacity; to forbid the class, omit the class", describe(e.value))
		}
	}
	return name, capacity, len(q.problems) == before && q.checkNames(&request{place: at, resource: resource, class: name})
}

// addClass adds the limit of a class. The comments in q.lost become the first comments of the limit. A class without a limit leaves its
// own comments there.
func (q *quota) addClass(n *yaml.Node, resource, name string, capacity int64) {
	found := commentsOf(n)
	if capacity == 0 {
		if found.line != "" {
			found.line = "# " + name + ": " + strings.TrimLeft(found.line, "# ")
		}
		q.lost = join(q.lost, found.all())
		return
	}

	value := newText(strconv.FormatInt(capacity, 10))
	value.Style = yaml.DoubleQuotedStyle
	q.add = append(q.add, field{quotaPrefix + extended(resource, name), value, comments{join(q.lost, found.head), found.line, ""}})
	q.lost = found.foot
}

// checkHard compares the new limits with the limits in spec.hard. If spec.hard already limits the same resource, checkHard drops the
// new limit, and reports a problem if the two limits differ. It also warns about limits that Kubernetes never enforces.
func (q *quota) checkHard() {
	q.add = slices.DeleteFunc(q.add, func(f field) bool {
		key, value := find(q.hard.value, f.key)
		if key == nil {
			return false
		}
		is, err := resource.ParseQuantity(value.Value)
		if err != nil || is.Cmp(resource.MustParse(f.value.Value)) != 0 {
			q.fault(q.hard.at(key, "."+key.Value), "is %s, but the conversion of %s sets it to %s; keep one of them", describe(value), fieldName, f.value.Value)
		}
		q.lost = join(q.lost, f.comments.all())
		return true
	})
	for key := range fields(q.hard.value) {
		name, ok := strings.CutPrefix(key.Value, unenforcedPrefix)
		if ok && strings.Contains(name, "/") {
			q.note("%s%s limits nothing, because Kubernetes never enforces this prefix for extended resources; write %s%s",
				unenforcedPrefix, name, quotaPrefix, name)
		}
	}
}

// Quota converts a file that has only ResourceQuotas with the KEP's fields. If `namespace` is not empty, Quota sets it in
// every ResourceQuota, and reports a ResourceQuota that is in another namespace.
func Quota(name string, text []byte, known Known, namespace string) (Result, error) {
	f := readFile(name, text, newRun(nil, Options{Known: known}))
	found := false
	for _, d := range f.documents {
		if root := d.content(); root != nil {
			found = d.checkQuotas(root, place{line: root.Line}, namespace) || found
		}
	}

	if !found && len(f.problems) == 0 {
		f.fault(place{}, "has no ResourceQuota; pass a file that has one")
	}
	return f.convert()
}

// checkQuotas reports objects below `n` that Quota cannot convert. If `namespace` is not empty, checkQuotas sets it in the
// objects that Quota can convert. It returns false if `n` has no object.
func (d *document) checkQuotas(n *yaml.Node, at place, namespace string) bool {
	at, _ = d.enter(n, at)
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
		d.fault(at, "has no metadata; add metadata.name")
		return
	}

	switch e := d.entry(metadata.value, "namespace", metadata.place); {
	case e.key == nil:
		d.later(func() { addFields(metadata.value, field{key: "namespace", value: newText(namespace)}) })
	case e.node.Value != namespace:
		d.fault(e.place, "is %s, but the command line has %s; remove one of the two", describe(e.node), quote(namespace))
	}
}
