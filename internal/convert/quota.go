// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// quotaPrefix is what a ResourceQuota puts before an extended resource to limit it. "limits." is taken too, and limits nothing.
const (
	quotaPrefix = "requests."
	trapPrefix  = "limits."
)

// quota is a ResourceQuota with the KEP's fields.
type quota struct {
	*document
	hard entry
	// comments of the classes, by their nodes.
	comments map[*yaml.Node]remark
	// fields to add to hard, and comments that wait for the next one.
	fields []field
	left   []string
	seen   []string
}

// allowed is a class in a quota.
type allowed struct {
	place
	node     *yaml.Node
	name     string
	capacity int64
}

// resourceQuota writes the KEP's quota as one of extended resources: a class that is not listed is forbidden by 0, one without a
// capacity is not limited.
func (d *document) resourceQuota(n *yaml.Node, at place) {
	before := len(d.problems)
	spec := d.mapping(n, "spec", at)
	if spec.value == nil {
		d.fault(at, "has %s, but not in its spec; move it there", fieldName)
		return
	}
	q := &quota{document: d, hard: d.mapping(spec.value, "hard", spec.place)}
	qos := d.mapping(spec.value, fieldName, spec.place)
	d.walkOthers(n, spec.value, at)
	if !d.known.given() {
		d.fault(qos.place, "which classes exist must be known, since those that are not listed are forbidden; "+
			"tell it with --class-files or --from-cluster")
	}
	if len(d.problems) > before {
		return
	}
	var rest remarks
	if qos.value != nil {
		rest = q.readComments(spec.value, qos)
		q.readSections(qos)
	}
	q.checkHard()
	if len(d.problems) == before && qos.key != nil {
		q.plan(spec.value, qos, slices.Concat(q.left, rest.key.all()))
	}
}

// readComments finds the comments of classes, and returns the others.
func (q *quota) readComments(spec *yaml.Node, qos entry) remarks {
	parts := classParts(qos.raw, 0)
	if qos.raw.Kind == yaml.AliasNode {
		parts = nil
	}
	found := q.remarksIn(spec, qos, parts)
	q.comments = map[*yaml.Node]remark{}
	rest, last := remarks{key: found.key}, (*yaml.Node)(nil)
	for i, comments := range found.elements {
		switch {
		case parts[i].Kind == yaml.MappingNode:
			last = parts[i]
			q.comments[last] = comments
		case last == nil:
			rest.key.head = append(rest.key.head, comments.all()...)
		default:
			// Before the next list comes what was said behind the last class.
			behind := q.comments[last]
			behind.behind = append(behind.behind, comments.all()...)
			q.comments[last] = behind
		}
	}
	return rest
}

// classParts are the parts of a quota in their order: classes, and whatever is around them in scalars.
func classParts(n *yaml.Node, depth int) []*yaml.Node {
	// section, list, resource, list, class
	if isClass := depth == 4 && n.Kind == yaml.MappingNode; isClass || len(n.Content) == 0 {
		return []*yaml.Node{n}
	}
	var all []*yaml.Node
	for _, child := range n.Content {
		all = append(all, classParts(child, depth+1)...)
	}
	return all
}

func (q *quota) readSections(qos entry) {
	for i := 0; i+1 < len(qos.value.Content); i += 2 {
		key := qos.value.Content[i]
		scope := classes.Scope(key.Value)
		at := qos.at(key, "."+key.Value)
		if scope != classes.PodScope && scope != classes.ContainerScope {
			q.fault(at, "unknown field %s; known are pod and container", quote(key.Value))
			continue
		}
		section := q.entry(qos.value, key.Value, qos.place)
		for _, r := range q.requests(section, elementFields{others: []string{"classes"}, pods: "put it under pod"}, scope) {
			q.addResource(r, scope)
		}
	}
}

func (q *quota) addResource(r request, scope classes.Scope) {
	known := q.known.resources[r.resource]
	switch {
	case slices.Contains(q.seen, r.resource):
		q.fault(r.place, "resource %s is here twice; keep one of them", r.resource)
		return
	case known.scope != scope:
		q.fault(r.place, "%s is in the scope %s in %s; put it under %s", r.resource, known.scope, q.known.from, known.scope)
		return
	case known.classes == nil:
		q.fault(r.place, "the classes of %s are not known, since no machine has it; tell them with --class-files", r.resource)
		return
	}
	q.seen = append(q.seen, r.resource)
	var named []string
	for _, class := range q.allowed(r) {
		named = append(named, class.name)
		comments := q.comments[class.node]
		if class.capacity == 0 {
			// They are about a class that the result does not name.
			for i, comment := range comments.tail {
				comments.tail[i] = "# " + class.name + ": " + strings.TrimLeft(comment, "# ")
			}
			q.left = append(q.left, comments.all()...)
		} else {
			behind := comments.behind
			comments.behind = nil
			q.add(r.resource, class.name, class.capacity, comments)
			q.left = append(q.left, behind...)
		}
	}
	for _, class := range known.classes {
		if !slices.Contains(named, class) {
			q.add(r.resource, class, 0, remark{})
		}
	}
}

func (q *quota) add(resourceName, class string, capacity int64, comments remark) {
	q.fields = append(q.fields, field{
		key: quotaPrefix + extended(resourceName, class), kind: quotedField, value: strconv.FormatInt(capacity, 10),
		head: slices.Concat(q.left, comments.head), tail: strings.Join(comments.tail, " "),
	})
	q.left = nil
}

// allowed reads the classes of a resource.
func (q *quota) allowed(r request) []allowed {
	list := q.entry(r.element, "classes", r.place)
	if list.value == nil {
		return nil
	}
	if list.value.Kind != yaml.SequenceNode {
		q.fault(list.place, "must be a list of name and capacity, not %s", describe(list.value))
		return nil
	}
	var all []allowed
	for i, element := range list.value.Content {
		class, ok := q.class(r.resource, element, list.at(element, index(i)))
		if ok && slices.ContainsFunc(all, func(other allowed) bool { return other.name == class.name }) {
			q.fault(class.place, "class %s is here twice; keep one of them", quote(class.name))
			continue
		}
		if ok {
			all = append(all, class)
		}
	}
	return all
}

func (q *quota) class(resourceName string, element *yaml.Node, at place) (allowed, bool) {
	n := deref(element)
	if !isMapping(n) {
		q.fault(at, "must be a mapping with name and capacity, not %s", describe(n))
		return allowed{}, false
	}
	before := len(q.problems)
	for i := 0; i+1 < len(n.Content); i += 2 {
		if key := n.Content[i]; key.Value != "name" && key.Value != "capacity" {
			q.fault(at.at(key, ""), "unknown field %s; known are name and capacity", quote(key.Value))
		}
	}
	a := allowed{place: at, node: element, name: q.scalar(n, "name", at).Value}
	if capacity := q.entry(n, "capacity", at); capacity.value != nil {
		number, err := strconv.ParseInt(capacity.value.Value, 10, 64)
		if err != nil || number < 1 || capacity.value.Kind != yaml.ScalarNode {
			q.fault(capacity.place, "must be a number above 0, not %s; leave it out for no limit, or the class to forbid it",
				describe(capacity.value))
		}
		a.capacity = number
	}
	if len(q.problems) > before {
		return a, false
	}
	return a, q.checkNames(&request{place: at, resource: resourceName, class: a.name})
}

// checkHard finds what contradicts the quotas that are there, and drops what is there.
func (q *quota) checkHard() {
	if q.hard.value == nil {
		return
	}
	var fields []field
	for i := range q.fields {
		key, raw := find(q.hard.value, q.fields[i].key)
		if key == nil {
			fields = append(fields, q.fields[i])
			continue
		}
		is, err := resource.ParseQuantity(deref(raw).Value)
		if err != nil || is.Cmp(resource.MustParse(q.fields[i].value)) != 0 {
			q.fault(q.hard.at(key, "."+key.Value), "is %s, and %s would make it %s; keep one of them",
				describe(deref(raw)), fieldName, q.fields[i].value)
		}
		q.left = append(q.left, q.fields[i].head...)
	}
	q.fields = fields
	for i := 0; i+1 < len(q.hard.value.Content); i += 2 {
		name, ok := strings.CutPrefix(q.hard.value.Content[i].Value, trapPrefix)
		if ok && strings.Contains(name, "/") {
			q.note("%s%s limits nothing: Kubernetes takes it and never enforces it for extended resources; write %s%s",
				trapPrefix, name, quotaPrefix, name)
		}
	}
}

func (q *quota) plan(spec *yaml.Node, qos entry, comments []string) {
	d := q.document
	q.note("classes that come to exist later are not forbidden by a ResourceQuota until it is converted again")
	switch what := "limit " + names(q.fields); {
	case q.hard.key == nil:
		all := field{key: "hard", fields: q.fields, head: comments}
		d.plan(qos.place, spec, what, func() { d.replaceField(spec, qos.key, all) })
		return
	case len(q.fields) == 0:
	case q.hard.value == nil:
		d.plan(q.hard.place, spec, what, func() { d.fill(spec, q.hard.key, q.fields) })
	default:
		d.plan(q.hard.place, q.hard.value, what, func() { d.addFields(q.hard.value, q.fields) })
	}
	d.planRemoval(qos, spec, comments)
}
