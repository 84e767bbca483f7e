// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// pod is the spec of a pod, in an object or a template.
type pod struct {
	*document
	place
	spec *yaml.Node
	// owner has the spec in its field key, and perhaps metadata beside it; nil when the spec is in no mapping.
	owner, key  *yaml.Node
	annotations entry

	containers []*container
	// qos is the field with the requests of the pod.
	qos      entry
	requests []request
	// annotate has the annotations to add.
	annotate []annotation
}

// container is a container of a pod, other than an ephemeral one.
type container struct {
	place
	node                   *yaml.Node
	name                   string
	resources, limits, qos entry
	requests               []request
	// add has the extended resources to add to the limits, lost has comments of requests that add nothing.
	add  []field
	lost []string
}

// podSpec plans the conversion of the spec of a pod.
func (d *document) podSpec(owner, key, spec *yaml.Node, at place) {
	if !contains(spec, fieldName) {
		return
	}
	before := len(d.problems)

	p := &pod{document: d, place: at, spec: spec, owner: owner, key: key}
	p.readAnnotations()
	p.readContainers("initContainers")
	p.readContainers("containers")
	p.refuseEphemeral()
	p.qos = d.entry(spec, fieldName, at)
	p.requests = d.requests(p.qos, requestFields(), "")
	d.walkFields(spec, at)
	if len(d.problems) > before {
		return
	}

	for _, c := range p.containers {
		p.requestForContainer(c)
	}
	for i := range p.requests {
		p.requestForPod(&p.requests[i])
	}
	d.later(p.edit)
}

func (p *pod) readAnnotations() {
	if p.owner == nil || p.key.Value != "spec" {
		return
	}

	at := p.place
	at.field = strings.TrimSuffix(strings.TrimSuffix(at.field, "spec"), ".")
	if metadata := p.mapping(p.owner, "metadata", at); metadata.value != nil {
		p.annotations = p.mapping(metadata.value, "annotations", metadata.place)
	}
}

func (p *pod) readContainers(list string) {
	e := p.entry(p.spec, list, p.place)
	if e.value == nil {
		return
	}
	if !isList(e.value) {
		p.fault(e.place, "must be a list, not %s", describe(e.value))
		return
	}

	for i, n := range e.value.Content {
		at := e.at(n, index(i))
		if !isMapping(n) {
			p.fault(at, "must be a container, not %s", describe(n))
			continue
		}
		p.containers = append(p.containers, p.readContainer(n, at))
	}
}

func (p *pod) readContainer(n *yaml.Node, at place) *container {
	c := &container{place: at, node: n, name: stringOf(n, "name")}
	if misplaced, _ := find(n, fieldName); misplaced != nil {
		p.handled[misplaced] = true
		p.fault(at.at(misplaced, "."+fieldName), "is not supported here; move it to the resources of the container")
	}

	c.resources = p.mapping(n, "resources", at)
	if c.resources.value != nil {
		c.limits = p.mapping(c.resources.value, "limits", c.resources.place)
		c.qos = p.entry(c.resources.value, fieldName, c.resources.place)
		c.requests = p.document.requests(c.qos, requestFields(), classes.ContainerScope)
	}
	return c
}

func (p *pod) refuseEphemeral() {
	e := p.entry(p.spec, "ephemeralContainers", p.place)
	if !isList(e.value) {
		return
	}
	for i, n := range e.value.Content {
		if qos, _ := find(valueOf(n, "resources"), fieldName); qos != nil {
			p.handled[qos] = true
			p.fault(e.at(n, index(i)), "ephemeral containers cannot request QoS classes; remove their %s", fieldName)
		}
	}
}

// requestForContainer decides how a container requests the classes of its own qosResources.
func (p *pod) requestForContainer(c *container) {
	for i := range c.requests {
		r := &c.requests[i]
		found := commentsOf([]*yaml.Node{r.element})
		has := p.limited(c, r.resource)
		p.refuseOtherClass(r, containerKeys(r.resource, c.name))
		switch {
		case slices.ContainsFunc(has, func(class string) bool { return class != r.class }):
			p.fault(r.place, "class %s of %s contradicts %s in the limits; keep one of them",
				quote(r.class), r.resource, extended(r.resource, has[0]))
		case r.class == classes.SystemDefault:
			p.addAnnotation(r, classes.ContainerKeyPrefix+c.name)
			c.lost = append(c.lost, found.all()...)
		case len(has) > 0:
			c.lost = append(c.lost, found.all()...)
		default:
			c.add = append(c.add, oneUnit(r, found))
		}
	}
}

// oneUnit is the extended resource of a request.
func oneUnit(r *request, found comments) field {
	return field{extended(r.resource, r.class), &yaml.Node{Kind: yaml.ScalarNode, Tag: yaml.NodeTagInt, Value: "1"}, found}
}

// limited returns the classes of a resource in the limits of a container.
func (p *pod) limited(c *container, resource string) []string {
	var found []string
	for key := range fields(c.limits.value) {
		class, ok := strings.CutPrefix(key.Value, prefix(resource))
		if ok && !p.isOfOther(resource, class) {
			found = append(found, class)
		}
	}
	return found
}

// prefix returns what the extended resources of a resource begin with.
func prefix(resource string) string { return strings.TrimSuffix(extended(resource, "x"), "x") }

// isOfOther reports whether what looks like a class of a resource belongs to a resource with a longer name: class "b.c" of "x/a" and
// class "c" of "x/a.b" have the same extended resource.
func (p *pod) isOfOther(resource, class string) bool {
	all := p.known.names()
	for _, c := range p.containers {
		for i := range c.requests {
			all = append(all, c.requests[i].resource)
		}
	}
	return slices.ContainsFunc(all, func(other string) bool {
		return len(other) > len(resource) && strings.HasPrefix(prefix(resource)+class, prefix(other))
	})
}

// requestForPod decides how a pod requests a class of its own qosResources.
func (p *pod) requestForPod(r *request) {
	p.refuseOtherClass(r, podKeys(r.resource))
	scope, known := p.known.scope(r.resource)
	switch {
	case r.class == classes.SystemDefault:
		p.addAnnotation(r, classes.PodKey)
	case !known:
		p.addAnnotation(r, classes.PodKey)
		p.note("the scheduler does not see requests for %s by annotation, since its scope is not known here; "+
			"pass --class-files or --from-cluster", r.resource)
	case scope == classes.PodScope:
		p.addAnnotation(r, classes.PodKey)
		p.addToFirst(r)
	default:
		for _, c := range p.containers {
			if !p.hasOwnRequest(c, r.resource) {
				c.add = append(c.add, oneUnit(r, comments{}))
			}
		}
	}
}

// addToFirst adds the extended resource of a pod's class to its first container, unless a container has it.
func (p *pod) addToFirst(r *request) {
	var first *container
	for _, c := range p.containers {
		has := p.limited(c, r.resource)
		if slices.ContainsFunc(has, func(class string) bool { return class != r.class }) {
			p.fault(c.place, "the limits have %s, and its pod requests class %s of %s; keep one of them",
				extended(r.resource, has[0]), quote(r.class), r.resource)
			return
		}
		if len(has) > 0 {
			return
		}
		if first == nil && !strings.Contains(c.field, "initContainers[") {
			first = c
		}
	}
	if first != nil {
		first.add = append(first.add, oneUnit(r, comments{}))
	}
}

func (p *pod) hasOwnRequest(c *container, resource string) bool {
	return slices.ContainsFunc(c.requests, func(r request) bool { return r.resource == resource }) ||
		len(p.limited(c, resource)) > 0 || len(p.annotated(resource, containerKeys(resource, c.name))) > 0
}

// edit makes the edits that were decided.
func (p *pod) edit() {
	for _, c := range p.containers {
		c.edit()
	}
	if p.qos.key != nil {
		removeField(p.spec, p.qos, nil, commentsOf([]*yaml.Node{p.qos.key, p.qos.node}).all())
	}
	p.editAnnotations()
}

// edit puts extended resources into the limits of a container, in the place of its qosResources.
func (c *container) edit() {
	switch {
	case len(c.add) > 0:
		resources := childMapping(c.node, "resources")
		replaceField(resources, c.qos, "limits", c.add, c.lost)
	case c.qos.key != nil:
		removeField(c.resources.value, c.qos, c.resources.key, append(ownComments(c.qos), c.lost...))
	}
}
