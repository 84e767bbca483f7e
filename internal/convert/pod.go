// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

type pod struct {
	*document
	place
	spec *yaml.Node
	// If the pod spec is a field of a mapping, `owner` is this mapping, and `key` is the key of the field. Otherwise
	// both are nil. The mapping may also have metadata.
	owner, key       *yaml.Node
	annotations, qos entry
	requests         []request
	containers       []*container
	// claimNames has the names of the claims of the pod, and of those that the conversion adds.
	claimNames map[string]bool
	// annotate has the annotations that the conversion adds.
	annotate []annotation
}

// container is a container of a pod. It is never an ephemeral container.
type container struct {
	place
	node                   *yaml.Node
	name                   string
	isInit                 bool
	resources, limits, qos entry
	requests               []request
	// add has the extended resources that will be added to the limits. `lost` has the YAML comments of
	// the qosResources elements that add no limit. The conversion moves these comments to another place in the file.
	add  []field
	lost string
	// claims has the claims that will be added, with --claims instead of extended resources.
	claims []deviceClaim
}

func (d *document) podSpec(owner, key, spec *yaml.Node, at place) {
	if !contains(spec, fieldName) {
		return
	}
	before := len(d.problems)

	p := &pod{document: d, place: at, spec: spec, owner: owner, key: key, claimNames: map[string]bool{}}
	p.readAnnotations()
	p.readContainers("initContainers", true)
	p.readContainers("containers", false)
	p.refuseEphemeral()
	p.readClaims()
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
	p.refuseNodeName()
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

func (p *pod) readContainers(list string, isInit bool) {
	e := p.list(p.spec, list, p.place, "containers")
	for i, n := range elements(e.value) {
		c := &container{place: e.at(n, index(i)), node: n, name: stringOf(n, "name"), isInit: isInit}
		if !isMapping(n) {
			p.fault(c.place, "must be a container, not %s", describe(n))
			continue
		}
		p.refuseField(n, c.place, "the resources of the container")
		if c.resources = p.mapping(n, "resources", c.place); c.resources.value != nil {
			c.limits = p.mapping(c.resources.value, "limits", c.resources.place)
			c.qos = p.entry(c.resources.value, fieldName, c.resources.place)
			c.requests = p.document.requests(c.qos, requestFields(), classes.ContainerScope)
		}
		p.containers = append(p.containers, c)
	}
}

func (p *pod) refuseEphemeral() {
	e := p.entry(p.spec, "ephemeralContainers", p.place)
	for i, n := range elements(e.value) {
		if qos, _ := find(valueOf(n, "resources"), fieldName); qos != nil {
			p.handled[qos] = true
			p.fault(e.at(n, index(i)), "ephemeral containers cannot request QoS classes; remove their %s", fieldName)
		}
	}
}

// requestForContainer plans how a container requests the classes in its qosResources.
func (p *pod) requestForContainer(c *container) {
	for i := range c.requests {
		r := &c.requests[i]
		found := commentsOf(r.element)
		has, contradicts := p.limited(c, r)
		p.refuseOtherClass(r, containerKeys(r.resource, c.name))
		switch {
		case contradicts:
			p.fault(r.place, "class %s of %s contradicts %s in the limits; keep one of them", quote(r.class), r.resource, has)
		case r.class == classes.SystemDefault:
			p.addAnnotation(r, classes.ContainerKeyPrefix+c.name)
			fallthrough
		case has != "":
			c.lost = join(c.lost, found.all())
		default:
			p.requestSlot(c, r, found)
		}
	}
}

func oneUnit(r *request, found comments) field {
	return field{extended(r.resource, r.class), &yaml.Node{Kind: yaml.ScalarNode, Tag: yaml.NodeTagInt, Value: "1"}, found}
}

// limited looks in the container's limits for an extended resource of the same QoS-class resource as the request `r`. It
// returns this extended resource, or "" if there is none. `contradicts` is true if this extended resource is for another class.
func (p *pod) limited(c *container, r *request) (has string, contradicts bool) {
	for key := range fields(c.limits.value) {
		class, ok := strings.CutPrefix(key.Value, prefix(r.resource))
		if !ok || p.isOfOther(r.resource, class) {
			continue
		}
		if class != r.class {
			return key.Value, true
		}
		has = key.Value
	}
	return has, false
}

// prefix returns the prefix that the extended resources for all classes of a QoS-class resource have in common.
func prefix(resource string) string { return strings.TrimSuffix(extended(resource, "x"), "x") }

// isOfOther reports whether the extended resource of this resource and class belongs to a resource with a longer name.
// For example, class "b.c" of "x/a" and class "c" of "x/a.b" have the same extended resource.
func (p *pod) isOfOther(resource, class string) bool {
	isLonger := func(other string) bool {
		return len(other) > len(resource) && strings.HasPrefix(prefix(resource)+class, prefix(other))
	}

	for other := range p.run.Known.resources {
		if isLonger(other) {
			return true
		}
	}
	return slices.ContainsFunc(p.containers, func(c *container) bool {
		return slices.ContainsFunc(c.requests, func(r request) bool { return isLonger(r.resource) })
	})
}

func (p *pod) requestForPod(r *request) {
	p.refuseOtherClass(r, podKeys(r.resource))
	scope := p.run.Known.scopeOf(r.resource)
	if r.class == classes.SystemDefault || scope != classes.ContainerScope {
		p.addAnnotation(r, classes.PodKey)
	}

	switch {
	case r.class == classes.SystemDefault:
	case scope == "":
		p.note("the scope of %s is unknown, so the pod requests the class by annotation, and the scheduler does not see annotations; "+
			"pass --class-files or --from-cluster", r.resource)
	case scope == classes.PodScope:
		p.addToFirst(r)
	default:
		for _, c := range p.containers {
			if !p.hasOwnRequest(c, r) {
				p.requestSlot(c, r, comments{})
			}
		}
	}
}

func (p *pod) addToFirst(r *request) {
	for _, c := range p.containers {
		has, contradicts := p.limited(c, r)
		if contradicts {
			p.fault(c.place, "the limits have %s, but the pod requests class %s of %s; keep one of them", has, quote(r.class), r.resource)
		}
		if has != "" {
			return
		}
	}

	if i := slices.IndexFunc(p.containers, func(c *container) bool { return !c.isInit }); i >= 0 {
		p.containers[i].add = append(p.containers[i].add, oneUnit(r, comments{}))
	}
}

func (p *pod) hasOwnRequest(c *container, r *request) bool {
	has, _ := p.limited(c, r)
	return has != "" || len(p.annotated(r.resource, containerKeys(r.resource, c.name))) > 0 ||
		slices.ContainsFunc(c.requests, func(own request) bool { return own.resource == r.resource })
}

func (p *pod) edit() {
	for _, c := range p.containers {
		switch {
		case len(c.claims) > 0:
			p.editClaims(c)
			if len(c.add) > 0 {
				addFields(childMapping(childMapping(c.node, "resources"), "limits"), c.add...)
			}
		case len(c.add) > 0:
			replaceField(childMapping(c.node, "resources"), c.qos, "limits", c.add, c.lost)
		case c.qos.key != nil:
			removeField(c.resources.value, c.qos, c.resources.key, join(ownComments(c.qos.key, c.qos.node), c.lost))
		}
	}

	if p.qos.key != nil {
		removeField(p.spec, p.qos, p.key, commentsOf(p.qos.key, p.qos.node).all())
	}
	p.editAnnotations()
}
