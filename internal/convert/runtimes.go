// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// nriPluginsDomain is the end of the domain of nri-plugins' annotations. Before it is the short name of the resource,
// e.g. "rdt".
const nriPluginsDomain = "class.resource-policy.nri.io"

// These constants are the annotations of the plugins memory-qos and memory-policy of nri-plugins for the whole pod. With "/" and a container,
// they are for the container. docs/migrate.md defines the resources.
const (
	memoryKey            = "class.memory-qos.nri.io"
	memoryResource       = classes.Domain + "/memory"
	memoryPolicyKey      = "class.memory-policy.nri.io"
	memoryPolicyResource = classes.Domain + "/memory-policy"
)

// runtimeKey matches the keys of annotations that container runtimes and nri-plugins define. The first group is the short
// name of the resource, and the second group is the part of the key after "/". nri-plugins also reads a key without "/",
// which is for the whole pod.
var runtimeKey = regexp.MustCompile(`^(rdt|blockio)(?:\.resources\.(?:beta\.)?kubernetes\.io/|class\.resource-policy\.nri\.io(?:/|$))(.*)$`)

// hasRuntimeKeys reports whether a text may contain annotations of the runtimes or of other plugins.
func hasRuntimeKeys(text []byte) bool {
	parts := []string{
		".resources.kubernetes.io", ".resources.beta.kubernetes.io", nriPluginsDomain, ".memory-qos.nri.io", ".memory-policy.nri.io", "ulimits.",
	}
	return scoreKey().Match(text) || slices.ContainsFunc(parts, func(part string) bool { return bytes.Contains(text, []byte(part)) })
}

// walkAnnotations searches a node for pods and pod templates, and plans the conversion of their annotations of the runtimes
// and of nri-plugins.
func (d *document) walkAnnotations(n *yaml.Node, at place) {
	for i, element := range elements(n) {
		d.walkAnnotations(element, at.at(element, index(i)))
	}
	at, isObject := d.enter(n, at)
	if isObject && isIgnored(n) {
		return
	}
	if spec := valueOf(n, "spec"); isPodSpec(spec) {
		d.runtimeAnnotations(n, spec, at)
		if d.run.Koordinator {
			d.koordinatorPod(n, at)
		}
	}

	ignored := ignoredFields(n)
	for key, value := range fields(n) {
		if slices.Contains(ignored, key.Value) {
			continue
		}
		if strings.HasSuffix(strings.ToLower(key.Value), "annotations") {
			d.noteAnnotations(value, at.at(key, "."+key.Value))
		}
		d.walkAnnotations(value, at.at(key, "."+key.Value))
	}
}

// noteAnnotations notes each annotation of the runtimes and of nri-plugins that is not converted, because it is not in the metadata of a
// pod. Controllers copy annotations from many fields of custom resources to pods, and there is no list of these fields.
func (d *document) noteAnnotations(annotations *yaml.Node, at place) {
	if d.ofPods[annotations] {
		return
	}
	for key, value := range fields(annotations) {
		resource, rest, ok := cutRuntimeKey(key.Value)
		if !ok || value.Kind != yaml.ScalarNode {
			continue
		}
		ours := classes.PodKey
		if container, isContainer := strings.CutPrefix(rest, "container."); isContainer {
			ours = classes.ContainerKeyPrefix + container
		}
		d.note("annotation %s in %s of %s is not converted, because it is not in the metadata of a pod; if a controller copies it to pods, "+
			"write %s: %s=%s instead", key.Value, at.field, cmp.Or(at.object, d.name), ours, classes.ShortResource(resource), value.Value)
	}
}

// runtimeAnnotations plans the conversion for a pod with this metadata and spec.
func (d *document) runtimeAnnotations(owner, spec *yaml.Node, at place) {
	_, metadata := find(owner, "metadata")
	annotations := valueOf(metadata, "annotations")
	d.ofPods[annotations] = true
	for key, value := range fields(metadata) {
		if isMerge(key) {
			d.refuseMerged(mergedNames(value, "annotations"), at.at(key, ".metadata.annotations"))
		}
	}

	planned := map[string]annotation{}
	for key, value := range fields(annotations) {
		if isMerge(key) {
			d.refuseMerged(mergedNames(value), at.at(key, ".metadata.annotations"))
		}
		d.noteValues(key.Value)
		if resource, rest, ok := cutRuntimeKey(key.Value); ok {
			e := d.entry(annotations, key.Value, at.at(key, ".metadata.annotations"))
			e.field = strings.TrimPrefix(at.field+".metadata.annotations["+key.Value+"]", ".")
			d.runtimeAnnotation(annotations, e, annotation{d.ourKey(spec, rest, key.Value), resource, stringOf(annotations, key.Value)}, planned)
		}
	}
}

// refuseMerged reports each annotation of the runtimes or of nri-plugins among the names that a merge key adds. The
// conversion cannot replace such an annotation, because other objects may use the anchor that defines the annotation.
func (f *file) refuseMerged(names []string, at place) {
	for _, name := range names {
		if _, _, ok := cutRuntimeKey(name); ok {
			at := at
			at.field += "[" + name + "]"
			f.fault(at, "is set by the merge key <<; write the annotation here instead")
		}
	}
}

func cutRuntimeKey(key string) (resource, rest string, ok bool) {
	switch key {
	case memoryKey:
		return memoryResource, "", true
	case memoryPolicyKey:
		return memoryPolicyResource, "", true
	}
	if container, isMemory := strings.CutPrefix(key, memoryKey+"/"); isMemory {
		return memoryResource, "container." + container, true
	}
	if container, isPolicy := strings.CutPrefix(key, memoryPolicyKey+"/container."); isPolicy {
		return memoryPolicyResource, "container." + container, true
	}
	parts := runtimeKey.FindStringSubmatch(key)
	if parts == nil {
		return "", "", false
	}
	return classes.CanonicalResource(parts[1]), parts[2], true
}

// ourKey returns this project's key for an annotation whose key a runtime defines. `rest` is the part of the runtime's key
// after "/". ourKey returns "" if neither the runtimes nor nri-plugins read the runtime's key.
func (d *document) ourKey(spec *yaml.Node, rest, key string) string {
	container, isContainer := strings.CutPrefix(rest, "container.")
	switch {
	case isContainer:
		if !hasContainer(spec, container) {
			d.note("annotation %s is for a container that the pod does not have; correct the name, or check that the container is added later", key)
		}
		return classes.ContainerKeyPrefix + container
	case key == memoryKey, key == memoryPolicyKey, slices.Contains(runtimePodKeys(), key):
		return classes.PodKey
	}
	d.note("annotation %s requests nothing, because neither the runtimes nor nri-plugins read this key; it stays as it is", key)
	return ""
}

func runtimePodKeys() []string {
	return append(podKeys(classes.RDTResource)[1:], podKeys(classes.BlockIOResource)[1:]...)
}

func hasContainer(spec *yaml.Node, name string) bool {
	all := slices.Concat(elements(valueOf(spec, "initContainers")), elements(valueOf(spec, "containers")))
	return slices.ContainsFunc(all, func(c *yaml.Node) bool { return stringOf(c, "name") == name })
}

// runtimeAnnotation plans to replace the entry `e`, an annotation whose key a runtime defines, by the annotation `a`.
// For each key and resource of the new annotations, `planned` has the last runtime annotation that was read, so that
// runtimeAnnotation can report two runtime annotations with different classes.
func (d *document) runtimeAnnotation(annotations *yaml.Node, e entry, a annotation, planned map[string]annotation) {
	if a.key == "" {
		return
	}
	if e.node.Kind != yaml.ScalarNode || isNull(e.node) {
		d.fault(e.place, "must be a string, not %s", describe(e.node))
		return
	}
	if !d.checkNames(&request{place: e.place, resource: a.resource, class: a.class}) {
		return
	}

	id := a.key + " " + a.resource
	if other, ok := planned[id]; ok && other.class != a.class {
		d.fault(e.place, "class %s of %s contradicts class %s in annotation %s; keep one of them",
			quote(a.class), a.resource, quote(other.class), other.key)
	}
	planned[id] = annotation{e.key.Value, a.resource, a.class}
	pairs, err := classes.ParsePairs(stringOf(annotations, a.key))
	if err != nil {
		d.fault(e.place, "cannot be added to annotation %s: %v", a.key, err)
	}
	for _, pair := range pairs {
		if withDomain(pair.Resource) == a.resource && pair.Class != a.class {
			d.fault(e.place, "class %s of %s contradicts class %s in annotation %s; keep one of them",
				quote(a.class), a.resource, quote(pair.Class), a.key)
		}
	}
	d.later(func() { replaceRuntimeAnnotation(annotations, e, a) })
}

// replaceRuntimeAnnotation replaces the entry `e` by the annotation `a`. If the pod already has an annotation with the key of
// `a`, replaceRuntimeAnnotation adds the request to the value of that annotation, and removes `e`.
func replaceRuntimeAnnotation(annotations *yaml.Node, e entry, a annotation) {
	if _, value := find(annotations, a.key); value == nil {
		setText(e.key, a.key)
		setText(e.node, a.pair())
		return
	}

	pairs, _ := classes.ParsePairs(stringOf(annotations, a.key))
	if !slices.Contains(pairs, classes.Pair{Resource: a.resource, Class: a.class}) {
		addRequest(annotations, a)
	}
	removeField(annotations, e, nil, commentsOf(e.key, e.node).all())
}
