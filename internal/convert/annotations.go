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

// annotation is a request for a class in an annotation of the pod. The pod has the annotation, or the conversion adds it.
type annotation struct{ key, resource, class string }

func (a annotation) pair() string { return classes.ShortResource(a.resource) + "=" + a.class }

// containerKeys returns the keys of the annotations that request a class of a resource for a container. The value of
// the first annotation is a list of RESOURCE=CLASS pairs. The other annotations are defined by container runtimes and by
// nri-plugins, and their value is a class.
func containerKeys(resource, container string) []string {
	keys := []string{classes.ContainerKeyPrefix + container}
	if short := classes.ShortResource(resource); short != resource {
		keys = append(keys, short+".resources.kubernetes.io/container."+container, short+".resources.beta.kubernetes.io/container."+container,
			short+nriPluginsDomain+"/container."+container)
	}
	return keys
}

// podKeys returns the keys of the annotations that request a class of a resource for all containers of a pod. The
// values have the formats that containerKeys describes.
func podKeys(resource string) []string {
	keys := []string{classes.PodKey}
	if short := classes.ShortResource(resource); short != resource {
		keys = append(keys, short+".resources.kubernetes.io/default", short+".resources.beta.kubernetes.io/pod",
			short+nriPluginsDomain+"/pod", short+nriPluginsDomain)
	}
	return keys
}

func withDomain(resource string) string {
	if strings.Contains(resource, "/") {
		return resource
	}
	return classes.Domain + "/" + resource
}

func (p *pod) annotated(resource string, keys []string) []annotation {
	var all []annotation
	for i, key := range keys {
		value := valueOf(p.annotations.value, key)
		if value == nil {
			continue
		}
		if i > 0 {
			all = append(all, annotation{key, resource, value.Value})
			continue
		}

		at := p.annotations.at(value, "["+key+"]")
		if isMapping(value) || isList(value) {
			p.fault(at, "must be a string, not %s", describe(value))
		}
		pairs, err := classes.ParsePairs(value.Value)
		if err != nil {
			p.fault(at, "%v", err)
		}
		for _, pair := range pairs {
			if withDomain(pair.Resource) == resource {
				all = append(all, annotation{key, resource, pair.Class})
			}
		}
	}
	return all
}

func (p *pod) refuseOtherClass(r *request, keys []string) {
	for _, other := range p.annotated(r.resource, keys) {
		if other.class != r.class {
			p.fault(r.place, "class %s of %s contradicts class %s in annotation %s; keep one of them",
				quote(r.class), r.resource, quote(other.class), other.key)
		}
	}
}

func (p *pod) addAnnotation(r *request, key string) {
	container, ok := strings.CutPrefix(key, classes.ContainerKeyPrefix)
	switch {
	case ok && len(content.IsDNS1123Label(container)) > 0:
		p.fault(r.place, "needs an annotation for the container, but the container's name %s is not valid in Kubernetes; "+
			`rename the container with lower-case letters, digits and "-"`, quote(container))
	case p.owner == nil || p.key.Value != "spec":
		p.fault(r.place, "needs the annotation %s: %s=%s, but the conversion cannot find the pod's metadata; "+
			"add the annotation to the pod's metadata, and remove this request",
			key, classes.ShortResource(r.resource), r.class)
	case len(p.annotated(r.resource, []string{key})) == 0: // otherwise the annotation already has this class
		p.annotate = append(p.annotate, annotation{key, r.resource, r.class})
		if kind := stringOf(p.owner, "kind"); kind != "" && kind != "Pod" && stringOf(p.owner, "apiVersion") != "" {
			p.note("the annotations are set on the %s itself; check that its controller copies them to the pods", kind)
		}
	}
}

// editAnnotations adds annotations to the pod, or extends the annotations that the pod has.
func (p *pod) editAnnotations() {
	for _, a := range p.annotate {
		if key, _ := find(p.owner, "metadata"); key == nil {
			p.owner.Content = slices.Insert(p.owner.Content, slices.Index(p.owner.Content, p.key), newText("metadata"), newMapping())
		}
		addRequest(childMapping(childMapping(p.owner, "metadata"), "annotations"), a)
	}
}

// addRequest adds a request to the annotation with its key. It adds the annotation if it is missing.
func addRequest(annotations *yaml.Node, a annotation) {
	text := a.pair()
	if before := strings.TrimSpace(stringOf(annotations, a.key)); before != "" {
		text = before + "," + text
	}
	if _, value := find(annotations, a.key); value != nil {
		setText(value, text)
		return
	}
	addFields(annotations, field{key: a.key, value: newText(text)})
}
