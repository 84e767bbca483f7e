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

// annotation is a class that an annotation requests, or that is to be added to it.
type annotation struct{ key, resource, class string }

// containerKeys are the annotations that request a class of a resource for a container. The first has pairs of resource and class, the
// others, of container runtimes, have a class.
func containerKeys(resource, container string) []string {
	keys := []string{classes.ContainerKeyPrefix + container}
	if short := shortName(resource); short != resource {
		keys = append(keys, short+".resources.kubernetes.io/container."+container, short+".resources.beta.kubernetes.io/container."+container)
	}
	return keys
}

// podKeys are the annotations that request a class of a resource for all containers of a pod, like containerKeys.
func podKeys(resource string) []string {
	keys := []string{classes.PodKey}
	if short := shortName(resource); short != resource {
		keys = append(keys, short+".resources.kubernetes.io/default", short+".resources.beta.kubernetes.io/pod")
	}
	return keys
}

// shortName is the name of a resource in annotations.
func shortName(resource string) string {
	if resource != classes.RDTResource && resource != classes.BlockIOResource {
		return resource
	}
	_, short, _ := strings.Cut(resource, "/")
	return short
}

// annotated returns what the annotations with these keys request of a resource.
func (p *pod) annotated(resource string, keys []string) []annotation {
	var all []annotation
	for i, key := range keys {
		value := valueOf(p.annotations.value, key)
		switch {
		case value == nil:
		case i > 0:
			all = append(all, annotation{key, resource, value.Value})
		default:
			pairs := p.pairs(key, value)
			all = append(all, slices.DeleteFunc(pairs, func(a annotation) bool { return a.resource != resource })...)
		}
	}
	return all
}

// pairs reads an annotation with pairs of resource and class.
func (p *pod) pairs(key string, value *yaml.Node) []annotation {
	at := p.annotations.at(value, "["+key+"]")
	if value.Kind != yaml.ScalarNode {
		p.fault(at, "must be a string, not %s", describe(value))
		return nil
	}
	pairs, err := classes.ParsePairs(value.Value)
	if err != nil {
		p.fault(at, "%v", err)
	}

	var all []annotation
	for _, pair := range pairs {
		all = append(all, annotation{key, withDomain(pair.Resource), pair.Class})
	}
	return all
}

func withDomain(resource string) string {
	if strings.Contains(resource, "/") {
		return resource
	}
	return classes.Domain + "/" + resource
}

// refuseOtherClass reports annotations that contradict a request.
func (p *pod) refuseOtherClass(r *request, keys []string) {
	for _, other := range p.annotated(r.resource, keys) {
		if other.class != r.class {
			p.fault(r.place, "class %s of %s contradicts class %s in annotation %s; keep one of them",
				quote(r.class), r.resource, quote(other.class), other.key)
		}
	}
}

// addAnnotation plans to request a class by an annotation with this key.
func (p *pod) addAnnotation(r *request, key string) {
	if container, ok := strings.CutPrefix(key, classes.ContainerKeyPrefix); ok && len(content.IsDNS1123Label(container)) > 0 {
		p.fault(r.place, "needs an annotation for the container, whose name %s is not valid in Kubernetes; "+
			`write lower-case letters, digits and "-"`, quote(container))
		return
	}
	if p.owner == nil || p.key.Value != "spec" {
		p.fault(r.place, "needs the annotation %s: %s=%s, and it is not clear where the pod has its annotations; write it there, and remove this",
			key, shortName(r.resource), r.class)
		return
	}

	if len(p.annotated(r.resource, []string{key})) == 0 { // or it has the same class: refuseOtherClass reports others
		p.annotate = append(p.annotate, annotation{key, r.resource, r.class})
	}
	if kind := stringOf(p.owner, "kind"); kind != "" && kind != "Pod" && stringOf(p.owner, "apiVersion") != "" {
		p.note("the annotations are set on the %s itself; check that its controller gives them to the pods", kind)
	}
}

// editAnnotations adds the annotations, or adds to those that are there.
func (p *pod) editAnnotations() {
	for _, a := range p.annotate {
		if key, _ := find(p.owner, "metadata"); key == nil {
			p.owner.Content = slices.Insert(p.owner.Content, slices.Index(p.owner.Content, p.key), newText("metadata"), newMapping())
		}
		annotations := childMapping(childMapping(p.owner, "metadata"), "annotations")

		text := shortName(a.resource) + "=" + a.class
		key, value := find(annotations, a.key)
		switch {
		case key == nil:
			addFields(annotations, []field{{key: a.key, value: newText(text)}})
		case isNull(value) || strings.TrimSpace(value.Value) == "":
			setText(value, text)
		default:
			setText(value, strings.TrimSpace(value.Value)+","+text)
		}
	}
}
