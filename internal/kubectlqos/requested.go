// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/podspec"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// offersOf returns the offers of a node. It includes draining classes, because running containers may still request them.
func offersOf(node *nodeqosv1alpha1.NodeQOSResources) []classes.Offer {
	var offers []classes.Offer
	for scope, r := range node.Status.QOSResources.All() {
		offer := classes.Offer{Resource: classes.Resource{
			Name: r.Name, Scope: scopeOf(scope), Mutable: r.Mutable, DefaultClass: r.DefaultClass, FromClaims: r.Name == classes.ClaimResource,
		}}
		for _, class := range r.Classes {
			offer.Classes = append(offer.Classes, classes.Class{Name: class.Name, Capacity: uint64(max(class.Capacity, 0))})
		}
		offers = append(offers, offer)
	}

	for _, u := range node.Status.UnavailableResources {
		offers = append(offers, classes.Offer{
			Resource:    classes.Resource{Name: u.Name, Scope: scopeOf(u.Scope), FromClaims: u.Name == classes.ClaimResource},
			Unavailable: &classes.Unavailable{Reason: u.Reason, Message: u.Message},
		})
	}
	return offers
}

// scopeOf returns the scope in the form of class files. An unavailable resource without a scope counts as one of containers.
func scopeOf(scope nodeqosv1alpha1.Scope) classes.Scope {
	return classes.Scope(strings.ToLower(string(cmp.Or(scope, nodeqosv1alpha1.ScopeContainer))))
}

// anyOf returns the offers for a pod that is not scheduled to a node yet. The offer of a resource has the classes of
// all nodes. It has no default class, because default classes differ between nodes.
func anyOf(nodes []nodeqosv1alpha1.NodeQOSResources) []classes.Offer {
	var all []classes.Offer
	index := map[string]int{}
	for i := range nodes {
		for _, offer := range offersOf(&nodes[i]) {
			offer.DefaultClass = classes.SystemDefault
			at, known := index[offer.Name]
			switch {
			case !known:
				index[offer.Name] = len(all)
				all = append(all, offer)
			case all[at].Unavailable != nil:
				all[at] = offer
			case offer.Unavailable == nil:
				all[at].Classes = union(all[at].Classes, offer.Classes)
			}
		}
	}
	return all
}

func union(all, more []classes.Class) []classes.Class {
	known := classes.Resource{Classes: all}
	for _, class := range more {
		if _, found := known.Class(class.Name); !found {
			all = append(all, class)
		}
	}
	return all
}

// requestOf returns the request of a container, volume or pod as the plugin gets it. From the container's limits,
// requestOf derives the annotations that the kubelet adds for allocated devices.
func requestOf(offers []classes.Offer, pod *corev1.Pod, c containerView) classes.Holder {
	request := classes.Holder{
		PodNamespace: pod.Namespace, PodName: pod.Name, PodUID: string(pod.UID), Container: c.Container, Volume: c.Volume,
		PodAnnotations: pod.Annotations,
	}
	if c.Container != "" {
		request.ContainerAnnotations = allocatedOf(offers, podspec.LimitsOf(pod, c.Container))
	}
	return request
}

// allocatedOf returns the annotations that the kubelet adds to a container for the extended resources in its limits.
func allocatedOf(offers []classes.Offer, limits corev1.ResourceList) map[string]string {
	annotations := map[string]string{}
	for name, amount := range limits {
		if amount.IsZero() {
			continue
		}
		if resource, class, ok := classBehind(offers, string(name)); ok {
			annotations[classes.AllocatedKeyPrefix+string(name)] = resource + "=" + class
		}
	}
	return annotations
}

// classBehind returns the QoS-class resource and the class that an extended resource represents. It does not check that
// the class exists. If several resource names match, it uses the longest.
func classBehind(offers []classes.Offer, extended string) (resource, class string, ok bool) {
	longest := 0
	consider := func(name string) {
		domain, base, _ := strings.Cut(name, "/")
		if domain == "k8s.io" {
			domain = classes.Domain
		}
		prefix := domain + "/" + base + "."
		if rest, is := strings.CutPrefix(extended, prefix); is && rest != "" && len(prefix) > longest {
			resource, class, longest = name, rest, len(prefix)
		}
	}

	for _, name := range []string{classes.RDTResource, classes.BlockIOResource} {
		consider(name)
	}
	for i := range offers {
		offer := &offers[i]
		consider(offer.Name)
		for _, c := range offer.Classes {
			if name, err := classes.ExtendedResource(offer.Name, c.Name); err == nil && name == extended {
				return offer.Name, c.Name, true
			}
		}
	}
	return resource, class, longest > 0
}

// asks reports whether the pod, or the claim of a volume, requests the class of an assignment.
func asks(a *classes.Assignment) bool {
	return a != nil && (a.Source == classes.SourceContainer || a.Source == classes.SourceAllocated || a.Source == classes.SourcePod ||
		a.Source == classes.SourceClaim)
}
