// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// KEP-3751's first revision defines requests with these names for claims. The parameters of a VolumeAttributesClass have
// the same names.
const (
	iopsName       = "iops"
	throughputName = "throughput"
)

const volumeAttributesClassName = "volumeAttributesClassName"

// hasClaims reports whether a text may contain claims with the KEP's requests.
func hasClaims(text []byte) bool {
	return (bytes.Contains(text, []byte(iopsName)) || bytes.Contains(text, []byte(throughputName))) &&
		(bytes.Contains(text, []byte("PersistentVolumeClaim")) || bytes.Contains(text, []byte("volumeClaimTemplate")))
}

// claim is a PersistentVolumeClaim, or a template of claims.
type claim struct {
	*document
	place
	node *yaml.Node
	// pvc has the name of the PersistentVolumeClaim. If `isTemplate` is true, words in upper case replace the parts of the
	// name that differ between the claims.
	pvc        string
	isTemplate bool

	spec, requests, iops, throughput entry
}

// walkClaims searches a node for claims and for templates of claims, and plans their conversion. `volume` is the name of the
// ephemeral volume that has the node, or empty.
func (d *document) walkClaims(n *yaml.Node, at place, volume string) {
	for i, element := range elements(n) {
		d.walkClaims(element, at.at(element, index(i)), volume)
	}
	at, isObject := d.enter(n, at)
	if isObject && isIgnored(n) {
		return
	}
	if stringOf(n, "apiVersion") == "v1" && stringOf(n, "kind") == "PersistentVolumeClaim" {
		d.claim(&claim{place: at, node: n, pvc: nameOf(n, "NAME")})
		return
	}

	ignored := ignoredFields(n)
	for key, value := range fields(n) {
		if !slices.Contains(ignored, key.Value) {
			d.walkClaimField(n, key, value, at.at(key, "."+key.Value), volume)
		}
	}
}

func (d *document) walkClaimField(n, key, value *yaml.Node, at place, volume string) {
	switch key.Value {
	case "volumeClaimTemplates":
		for i, element := range elements(value) {
			d.claim(templateInSet(element, at.at(element, index(i))))
		}
	case "volumeClaimTemplate":
		d.claim(templateInVolume(value, at, volume))
	case "ephemeral":
		d.walkClaims(value, at, stringOf(n, "name"))
	default:
		d.walkClaims(value, at, volume)
	}
}

func templateInSet(n *yaml.Node, at place) *claim {
	pvc := nameOf(n, "NAME") + "-" + nameOf(at.apiObject, "NAME") + "-ORDINAL"
	if stringOf(at.apiObject, "kind") != "StatefulSet" {
		pvc = "NAME"
	}
	return &claim{place: at, node: n, pvc: pvc, isTemplate: true}
}

// templateInVolume returns the claim template `n` of an ephemeral volume. Kubernetes names the claim POD-VOLUME.
func templateInVolume(n *yaml.Node, at place, volume string) *claim {
	c := &claim{place: at, node: n, pvc: "NAME", isTemplate: true}
	switch {
	case volume == "":
	case stringOf(at.apiObject, "kind") == "Pod":
		c.pvc, c.isTemplate = nameOf(at.apiObject, "POD")+"-"+volume, false
	default:
		c.pvc = "POD-" + volume
	}
	return c
}

func nameOf(object *yaml.Node, otherwise string) string {
	if name := stringOf(valueOf(object, "metadata"), "name"); name != "" {
		return name
	}
	return otherwise
}

// claim plans the conversion of a claim. A claim without iops and throughput stays unchanged.
func (d *document) claim(c *claim) {
	spec := valueOf(c.node, "spec")
	if spec == nil || !contains(spec, iopsName) && !contains(spec, throughputName) {
		return
	}

	before := len(d.problems)
	c.document = d
	c.read()
	class := volumeClass{iops: c.quantity(c.iops, math.MaxUint32-1), throughput: c.quantity(c.throughput, math.MaxInt64-1)}
	if len(d.problems) > before || !c.isAsking() {
		return
	}

	class.driver = c.driver()
	if class.driver == "" {
		return
	}
	isNew := c.record(class)
	c.noteClass(class)
	d.later(func() { c.edit(class, isNew) })
}

func (c *claim) read() {
	if c.spec = c.mapping(c.node, "spec", c.place); c.spec.value == nil {
		return
	}
	resources := c.mapping(c.spec.value, "resources", c.spec.place)
	if resources.value == nil {
		return
	}

	if c.requests = c.mapping(resources.value, "requests", resources.place); c.requests.value != nil {
		c.iops = c.entry(c.requests.value, iopsName, c.requests.place)
		c.throughput = c.entry(c.requests.value, throughputName, c.requests.place)
	}
	if limits := c.mapping(resources.value, "limits", resources.place); limits.value != nil {
		c.refuseLimits(limits)
	}
	if class := c.entry(c.spec.value, volumeAttributesClassName, c.spec.place); c.isAsking() && class.value != nil && class.value.Value != "" {
		c.fault(class.place, "is %s, but the claim also requests iops or throughput; keep one of them", describe(class.value))
	}
}

func (c *claim) isAsking() bool { return c.iops.key != nil || c.throughput.key != nil }

func (c *claim) refuseLimits(limits entry) {
	for _, name := range []string{iopsName, throughputName} {
		if e := c.entry(limits.value, name, limits.place); e.key != nil {
			c.fault(e.place, "a claim has no such limit, because KEP-3751 limits a volume by the requests of its claim; move %s to the requests", name)
		}
	}
}

// quantity returns a request as a whole number, rounded up. It returns 0 if the claim does not have the request. The
// smallest and the largest values are those that qos-storage accepts in a VolumeAttributesClass.
func (c *claim) quantity(e entry, most int64) int64 {
	const least = 2
	if e.key == nil {
		return 0
	}

	quantity, err := resource.ParseQuantity(e.node.Value)
	switch {
	case e.node.Kind != yaml.ScalarNode || isNull(e.node):
		c.fault(e.place, "must be a quantity like 500, 10M or 64Ki, not %s", describe(e.node))
	case err != nil:
		c.fault(e.place, "%s is not a quantity; write one like 500, 10M or 64Ki", quote(e.node.Value))
	case quantity.CmpInt64(least) < 0:
		c.fault(e.place, "%s is too small; the minimum is %d", quote(e.node.Value), least)
	case quantity.CmpInt64(most) > 0:
		c.fault(e.place, "%s is too large; the maximum is %d", quote(e.node.Value), most)
	}
	return quantity.Value()
}

// driver returns the driver of the claim's StorageClass, or the driver that the user set.
func (c *claim) driver() string {
	class := c.entry(c.spec.value, "storageClassName", c.spec.place)
	name := stringOf(c.spec.value, "storageClassName")
	switch driver := c.run.drivers[name]; {
	case driver != "" && name != "":
		return driver
	case c.run.Driver != "":
		return c.run.Driver
	case name == "":
		c.fault(c.requests.place, "the driver of the volume is unknown, because the claim names no StorageClass; pass --driver NAME")
	default:
		c.fault(class.place, "the driver of the volume is unknown, because StorageClass %s is not in the input; add the StorageClass, or pass --driver NAME",
			quote(name))
	}
	return ""
}

// record adds a class to the classes of the run, and reports whether the class must be added to the output.
func (c *claim) record(class volumeClass) (isNew bool) {
	name := class.name()
	existing, found := c.run.classes[name]
	if found && existing != class {
		c.fault(c.requests.place, "needs a VolumeAttributesClass named %s, but the input has one with this name and other values; rename the one in the input",
			name)
	}
	c.run.classes[name] = class
	return !found
}

// edit removes the requests from the claim. If the class is new, edit adds the class, and moves the comments of the
// requests to the class. Otherwise these comments stay in the claim.
func (c *claim) edit(class volumeClass, isNew bool) {
	var parameters []field
	for _, p := range class.parameters() {
		e := c.iops
		if p.key == throughputName {
			e = c.throughput
		}

		p.comments = commentsOf(e.key, e.node)
		lost := p.comments.all()
		if isNew {
			lost = ""
		}
		removeField(c.requests.value, e, c.requests.key, lost)
		parameters = append(parameters, p)
	}

	if c.run.ModifyVolume {
		c.setClass(class.name())
	}
	if isNew {
		c.addObject(class.object(parameters), c.place)
	}
}

func (c *claim) setClass(name string) {
	if _, value := find(c.spec.value, volumeAttributesClassName); value != nil {
		setText(value, name)
		return
	}
	addFields(c.spec.value, field{key: volumeAttributesClassName, value: newText(name)})
}

// addObject adds an object to the list that has the object of the place `at`. If no list has it, it adds the object as a document.
func (d *document) addObject(object *yaml.Node, at place) {
	list := d.lists[at.listItem]
	if list == nil {
		d.added = append(d.added, &yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{object}})
		return
	}
	object.Style = at.listItem.Style
	list.Content = slices.Insert(list.Content, slices.Index(list.Content, at.listItem)+1, object)
}
