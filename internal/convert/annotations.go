// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// asked is what an annotation says of a resource.
type asked struct{ key, class string }

// ownKeys are the annotations by which a container asks for a class of a resource: ours with pairs, those of others with a class.
func ownKeys(resource, container string) []string {
	keys := []string{classes.ContainerKeyPrefix + container}
	if short, ok := shortName(resource); ok {
		keys = append(keys, short+".resources.kubernetes.io/container."+container, short+".resources.beta.kubernetes.io/container."+container)
	}
	return keys
}

// podKeys are those by which a pod asks for all of its containers.
func podKeys(resource string) []string {
	keys := []string{classes.PodKey}
	if short, ok := shortName(resource); ok {
		keys = append(keys, short+".resources.kubernetes.io/default", short+".resources.beta.kubernetes.io/pod")
	}
	return keys
}

func shortName(resource string) (string, bool) {
	if resource != classes.RDTResource && resource != classes.BlockIOResource {
		return "", false
	}
	_, short, _ := strings.Cut(resource, "/")
	return short, true
}

// annotated has what the annotations with these keys say of a resource.
func (p *pod) annotated(resource string, keys []string) []asked {
	var all []asked
	for i, key := range keys {
		value := valueOf(p.annotations.value, key)
		if value == nil {
			continue
		}
		if i > 0 {
			all = append(all, asked{key, value.Value})
			continue
		}
		for _, pair := range p.pairs(key, value) {
			if pair.Resource == resource {
				all = append(all, asked{key, pair.Class})
			}
		}
	}
	return all
}

// pairs of an annotation of ours.
func (p *pod) pairs(key string, value *yaml.Node) []classes.Pair {
	at := p.annotations.at(value, "["+key+"]")
	if value.Kind != yaml.ScalarNode {
		p.fault(at, "must be a string, not %s", describe(value))
		return nil
	}
	pairs, err := classes.ParsePairs(value.Value)
	if err != nil {
		p.fault(at, "%v", err)
	}
	for i := range pairs {
		pairs[i].Resource = fullName(pairs[i].Resource)
	}
	return pairs
}

func fullName(resource string) string {
	if strings.Contains(resource, "/") {
		return resource
	}
	return classes.Domain + "/" + resource
}

// checkOwn notes annotations for a container that contradict its request.
func (p *pod) checkOwn(c *container, r *request) { p.contradict(r, ownKeys(r.resource, c.name)) }

// checkPodWide notes annotations for the pod that contradict its request.
func (p *pod) checkPodWide(r *request) { p.contradict(r, podKeys(r.resource)) }

func (p *pod) contradict(r *request, keys []string) {
	for _, other := range p.annotated(r.resource, keys) {
		if other.class != r.class {
			p.fault(r.place, "class %s of %s contradicts class %s in annotation %s; keep one of them",
				quote(r.class), r.resource, quote(other.class), other.key)
		}
	}
}

// annotate asks for the class of a request by an annotation with this key.
func (p *pod) annotate(r *request, key string) {
	if !p.canAnnotate(r, key) {
		return
	}
	if value := valueOf(p.annotations.value, key); value != nil {
		for _, pair := range p.pairs(key, value) {
			if pair.Resource == r.resource {
				return // the class is the same: others contradict
			}
		}
	}
	pair := classes.Pair{Resource: r.resource, Class: r.class}
	i := slices.IndexFunc(p.ask, func(a ask) bool { return a.key == key })
	if i < 0 {
		p.ask = append(p.ask, ask{key: key})
		i = len(p.ask) - 1
	}
	p.ask[i].pairs = append(p.ask[i].pairs, pair)
}

func (p *pod) canAnnotate(r *request, key string) bool {
	if container, ok := strings.CutPrefix(key, classes.ContainerKeyPrefix); ok && len(content.IsDNS1123Label(container)) > 0 {
		p.fault(r.place, "needs an annotation for the container, whose name %s is none that Kubernetes takes; "+
			`write lower-case letters, digits and "-"`, quote(container))
		return false
	}
	if p.owner == nil || p.key.Value != "spec" {
		p.fault(r.place, "needs the annotation %s: %s=%s, and it is not clear where annotations of the pod are; write it there, and remove this",
			key, short(r.resource), r.class)
		return false
	}
	return true
}

// short is the name of a resource as annotations have it.
func short(resource string) string {
	if name, ok := shortName(resource); ok {
		return name
	}
	return resource
}

func pairsText(pairs []classes.Pair) string {
	texts := make([]string, len(pairs))
	for i, pair := range pairs {
		texts[i] = short(pair.Resource) + "=" + pair.Class
	}
	return strings.Join(texts, ",")
}
