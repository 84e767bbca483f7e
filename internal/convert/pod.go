// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// pod is the spec of one, in an object or a template.
type pod struct {
	*document
	place
	spec *yaml.Node
	// owner has the spec in its field key, and perhaps metadata beside it; nil when the spec is in no mapping.
	owner, key            *yaml.Node
	metadata, annotations entry

	containers []*container
	// qos is the field with the requests of the pod.
	qos      entry
	requests []request
	remarks  remarks
	// ask has the annotations to add.
	ask []ask
}

// container of a pod, other than an ephemeral one.
type container struct {
	place
	node                   *yaml.Node
	name                   string
	resources, limits, qos entry

	requests []request
	remarks  remarks
	// add has the extended resources to add to the limits, each with the comments of the request.
	add []field
	// left are the comments of requests that add nothing.
	left []string
}

// ask is an annotation to add, or to add to.
type ask struct {
	key   string
	pairs []classes.Pair
}

// podSpec converts the spec of a pod.
func (d *document) podSpec(owner, key, spec *yaml.Node, at place) {
	if !mentions(spec, fieldName) {
		return
	}
	before := len(d.problems)
	d.walkPodSpec(spec, at)
	p := &pod{document: d, place: at, spec: spec, owner: owner, key: key}
	p.readAnnotations()
	p.readContainers("initContainers")
	p.readContainers("containers")
	p.refuseEphemeral()
	p.qos = d.entry(spec, fieldName, at)
	p.requests = d.requests(p.qos, requestFields(), "")
	if p.qos.key != nil {
		p.remarks = d.remarks(spec, p.qos)
	}
	if len(d.problems) > before {
		return
	}
	for _, c := range p.containers {
		p.askForContainer(c)
	}
	for i := range p.requests {
		p.askForPod(&p.requests[i])
	}
	if len(d.problems) == before {
		p.planChanges()
	}
}

func (p *pod) readAnnotations() {
	if p.owner == nil || p.key.Value != "spec" {
		return
	}
	at := p.place
	at.field = strings.TrimSuffix(strings.TrimSuffix(at.field, "spec"), ".")
	p.metadata = p.mapping(p.owner, "metadata", at)
	if p.metadata.value != nil {
		p.annotations = p.mapping(p.metadata.value, "annotations", p.metadata.place)
	}
}

func (p *pod) readContainers(list string) {
	e := p.entry(p.spec, list, p.place)
	if e.value == nil {
		return
	}
	if e.value.Kind != yaml.SequenceNode {
		p.fault(e.place, "must be a list, not %s", describe(e.value))
		return
	}
	for i, element := range e.value.Content {
		at := e.at(element, index(i))
		if !isMapping(deref(element)) {
			p.fault(at, "must be a container, not %s", describe(deref(element)))
			continue
		}
		p.readContainer(deref(element), at)
	}
}

func (p *pod) readContainer(n *yaml.Node, at place) {
	c := &container{place: at, node: n, name: stringOf(n, "name")}
	c.resources = p.mapping(n, "resources", at)
	if c.resources.value != nil {
		c.limits = p.mapping(c.resources.value, "limits", c.resources.place)
		c.qos = p.entry(c.resources.value, fieldName, c.resources.place)
		c.requests = p.document.requests(c.qos, requestFields(), classes.ContainerScope)
		if c.qos.key != nil {
			c.remarks = p.document.remarks(c.resources.value, c.qos)
		}
	}
	p.containers = append(p.containers, c)
}

func (p *pod) refuseEphemeral() {
	e := p.entry(p.spec, "ephemeralContainers", p.place)
	if e.value == nil || e.value.Kind != yaml.SequenceNode {
		return
	}
	for i, element := range e.value.Content {
		at := e.at(element, index(i))
		if resources := valueOf(deref(element), "resources"); resources != nil && mentions(resources, fieldName) {
			p.fault(at, "ephemeral containers cannot ask for QoS classes; remove their qosResources")
		}
	}
}

// askForContainer decides how a container asks for what its own qosResources have.
func (p *pod) askForContainer(c *container) {
	for i := range c.requests {
		r := &c.requests[i]
		var comments remark
		if i < len(c.remarks.elements) {
			comments = c.remarks.elements[i]
		}
		p.checkOwn(c, r)
		has := p.limited(c, r.resource)
		switch {
		case slices.ContainsFunc(has, func(class string) bool { return class != r.class }):
			p.fault(r.place, "class %s of %s contradicts %s in the limits; keep one of them",
				quote(r.class), r.resource, extended(r.resource, has[0]))
		case r.class == classes.SystemDefault:
			p.annotate(r, classes.ContainerKeyPrefix+c.name)
			c.left = append(c.left, comments.all()...)
		case len(has) > 0:
			c.left = append(c.left, comments.all()...)
		default:
			c.add = append(c.add, comments.field(extended(r.resource, r.class)))
		}
	}
}

// limited has the classes of a resource in the limits of a container.
func (p *pod) limited(c *container, resource string) []string {
	if c.limits.value == nil {
		return nil
	}
	var found []string
	for i := 0; i+1 < len(c.limits.value.Content); i += 2 {
		class, ok := strings.CutPrefix(c.limits.value.Content[i].Value, prefix(resource))
		if ok && !p.isOfOther(resource, class) {
			found = append(found, class)
		}
	}
	return found
}

// prefix of the extended resources of a resource.
func prefix(resource string) string { return strings.TrimSuffix(extended(resource, "x"), "x") }

// isOfOther says whether what looks like a class of a resource is one of another resource, whose name goes on: class "b.c" of "x/a"
// and class "c" of "x/a.b" have the same extended resource.
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

// askForPod decides how a pod asks for what its own qosResources have.
func (p *pod) askForPod(r *request) {
	p.checkPodWide(r)
	scope, known := p.known.scope(r.resource)
	switch {
	case r.class == classes.SystemDefault:
		p.annotate(r, classes.PodKey)
	case !known:
		p.annotate(r, classes.PodKey)
		p.note("the scheduler does not see requests for %s by annotation, since its scope is not known here; "+
			"tell it with --class-files or --from-cluster", r.resource)
	case scope == classes.PodScope:
		p.annotate(r, classes.PodKey)
		p.addToFirst(r)
	default:
		for _, c := range p.containers {
			if !p.asksItself(c, r.resource) {
				c.add = append(c.add, remark{}.field(extended(r.resource, r.class)))
			}
		}
	}
}

// addToFirst lets the first container carry the extended resource of its pod's class, unless one has it.
func (p *pod) addToFirst(r *request) {
	var first *container
	for _, c := range p.containers {
		has := p.limited(c, r.resource)
		if slices.ContainsFunc(has, func(class string) bool { return class != r.class }) {
			p.fault(c.place, "the limits have %s, and its pod asks for class %s of %s; keep one of them",
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
		first.add = append(first.add, remark{}.field(extended(r.resource, r.class)))
	}
}

func (p *pod) asksItself(c *container, resource string) bool {
	return slices.ContainsFunc(c.requests, func(r request) bool { return r.resource == resource }) ||
		len(p.limited(c, resource)) > 0 || len(p.annotated(resource, ownKeys(resource, c.name))) > 0
}
