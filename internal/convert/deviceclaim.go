// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const (
	resourceGroup   = "resource.k8s.io"
	templateKind    = "ResourceClaimTemplate"
	podClaimsName   = "resourceClaims" // field of a pod
	claimsName      = "claims"         // field of the resources of a container
	templateRefName = "resourceClaimTemplateName"
)

// deviceClaim is a claim of a container for one slot of a class. Each container has a claim of its own, because the scheduler counts the
// slots of claims, and not the containers that share one.
type deviceClaim struct {
	// `name` is the name of the claim in the pod. `template` is the name of the ResourceClaimTemplate and of its
	// DeviceClass.
	name, template string
	comments       comments
}

// requestSlot plans that a container requests one slot of a class: by a claim, or by its limits.
func (p *pod) requestSlot(c *container, r *request, found comments) {
	if !p.run.Claims {
		c.add = append(c.add, oneUnit(r, found))
		return
	}

	template, err := classes.DeviceClass(extended(r.resource, r.class))
	if err != nil {
		p.fault(r.place, "cannot be a claim, because %v; change the names of the resource and the class, or convert without --claims", err)
		return
	}
	c.claims = append(c.claims, deviceClaim{p.newClaimName(c, r), template, found})
	p.addTemplate(r, template)
	p.note("claims need a DeviceClass for each class; run: kubectl qos device-classes | kubectl apply -f -")
}

// newClaimName returns a name that no other claim of the pod has, e.g. main-rdt for the container main and the resource k8s.io/rdt.
func (p *pod) newClaimName(c *container, r *request) string {
	base := strings.Trim(label(c.name)+"-"+label(strings.TrimPrefix(classes.ShortResource(r.resource), classes.Domain+"/")), "-")
	name := base
	for id := c.name + "/" + r.resource; p.claimNames[name] || len(name) > content.DNS1123LabelMaxLength; id += "/" {
		name = withDigest(base, id)
	}
	p.claimNames[name] = true
	return name
}

// readClaims reads the names of the claims that the pod has. It reports claims that are no list.
func (p *pod) readClaims() {
	if !p.run.Claims {
		return
	}
	list := p.list(p.spec, podClaimsName, p.place, "claims")
	for _, n := range elements(list.value) {
		p.claimNames[stringOf(n, "name")] = true
	}
	for _, c := range p.containers {
		if c.resources.value != nil {
			p.list(c.resources.value, claimsName, c.resources.place, "claims")
		}
	}
}

// refuseNodeName reports `spec.nodeName` of a pod with claims: only the scheduler allocates claims, and it skips such pods.
func (p *pod) refuseNodeName() {
	hasClaims := slices.ContainsFunc(p.containers, func(c *container) bool { return len(c.claims) > 0 })
	if node := p.entry(p.spec, "nodeName", p.place); hasClaims && node.value != nil && node.value.Value != "" {
		p.fault(node.place, "is %s, but only the scheduler allocates claims, and it skips pods with a node; use a nodeSelector, or convert without --claims",
			describe(node.value))
	}
}

// addTemplate plans to add the ResourceClaimTemplate for a class, unless the input or an earlier conversion has it.
func (p *pod) addTemplate(r *request, name string) {
	namespace := stringOf(valueOf(p.apiObject, "metadata"), "namespace")
	spec := newMapping(field{key: "spec", value: newMapping(field{key: "devices", value: newMapping(field{key: "requests", value: newItems(newMapping(
		field{key: "name", value: newText("class")},
		field{key: "exactly", value: newMapping(field{key: "deviceClassName", value: newText(name)})},
	))})})})

	key := namespace + "/" + name
	if existing, found := p.run.templates[key]; found {
		if existing == nil || !equal(existing, spec) {
			p.fault(r.place, "needs a %s named %s, but the input has one with this name and another spec; rename the one in the input", templateKind, name)
		}
		return
	}
	p.run.templates[key] = spec

	metadata := newMapping(field{key: "name", value: newText(name)})
	if namespace != "" {
		addFields(metadata, field{key: "namespace", value: newText(namespace)})
	}
	template := newMapping(
		field{key: "apiVersion", value: newText(resourceGroup + "/v1")}, field{key: "kind", value: newText(templateKind)},
		field{key: "metadata", value: metadata}, field{key: "spec", value: spec},
	)
	p.later(func() { p.addObject(template, p.place) })
}

// editClaims replaces the qosResources of a container by claims, and adds these claims to the pod.
func (p *pod) editClaims(c *container) {
	var refs, claims []*yaml.Node
	for _, claim := range c.claims {
		ref := newMapping(field{key: "name", value: newText(claim.name)})
		ref.HeadComment, ref.Content[0].FootComment = claim.comments.head, claim.comments.foot
		ref.Content[1].LineComment = strings.ReplaceAll(claim.comments.line, "\n", " ")
		refs = append(refs, ref)
		claims = append(claims, newMapping(field{key: "name", value: newText(claim.name)}, field{key: templateRefName, value: newText(claim.template)}))
	}

	resources := childMapping(c.node, "resources")
	if key, _ := find(resources, claimsName); key == nil && c.qos.key != nil {
		setText(c.qos.key, claimsName)
		c.qos.key.HeadComment = join(c.qos.key.HeadComment, ownComments(c.qos.node), c.lost)
		*c.qos.node = *newItems(refs...)
	} else {
		addItems(resources, claimsName, refs)
		if c.qos.key != nil {
			removeField(resources, c.qos, nil, join(ownComments(c.qos.key, c.qos.node), c.lost))
		}
	}
	addItems(p.spec, podClaimsName, claims)
}

func newItems(items ...*yaml.Node) *yaml.Node {
	list := newList()
	list.Content = items
	return list
}

// addItems appends items to the list in a field of the mapping `m`, and creates the list if it is missing. A list that is written as [...] becomes
// a block, because the encoder drops comments between "[" and "]".
func addItems(m *yaml.Node, name string, items []*yaml.Node) {
	key, list := find(m, name)
	switch {
	case key == nil:
		m.Content = append(m.Content, newText(name), newItems(items...))
		return
	case len(list.Content) == 0:
		key.LineComment = strings.TrimSpace(key.LineComment + " " + list.LineComment)
		*list = *newItems()
	case list.Style&yaml.FlowStyle != 0:
		key.HeadComment = join(key.HeadComment, list.LineComment)
		list.Style, list.LineComment = 0, ""
	}
	list.Content = append(list.Content, items...)
}
