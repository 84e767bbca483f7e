// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podrequests follows what running pods ask for: when the annotations of one change, its containers get other classes.
package podrequests

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Catalog is what the plugin offers, for resolving requests. Classes that drain are in it: what runs in one asks for nothing
// new, and whoever asks for one anew is refused by the plugin.
func Catalog(status *qosv1alpha1.StatusResponse) *classes.Catalog {
	var offers []classes.Offer
	add := func(scope classes.Scope, resources []*qosv1alpha1.QOSResourceInfo) {
		for _, r := range resources {
			offers = append(offers, offerOf(scope, r))
		}
	}
	add(classes.PodScope, status.GetResources().GetPodQosResources())
	add(classes.ContainerScope, status.GetResources().GetContainerQosResources())
	for _, u := range status.GetUnavailableResources() {
		offers = append(offers, unavailableOf(u))
	}
	return classes.NewCatalog(offers)
}

func offerOf(scope classes.Scope, r *qosv1alpha1.QOSResourceInfo) classes.Offer {
	offer := classes.Offer{Resource: classes.Resource{
		Name: r.GetName(), Scope: scope, Mutable: r.GetMutable(), DefaultClass: r.GetDefaultClass(),
	}}
	for _, c := range r.GetClasses() {
		offer.Classes = append(offer.Classes, classes.Class{Name: c.GetName(), Capacity: c.GetCapacity()})
	}
	return offer
}

func unavailableOf(u *qosv1alpha1.UnavailableResource) classes.Offer {
	scope := classes.ContainerScope
	if u.GetScope() == qosv1alpha1.Scope_SCOPE_POD {
		scope = classes.PodScope
	}
	return classes.Offer{
		Resource:    classes.Resource{Name: u.GetName(), Scope: scope},
		Unavailable: &classes.Unavailable{Reason: u.GetReason(), Message: u.GetMessage()},
	}
}

// UID is that by which the node knows a pod. It is another than the API's for a static pod, whose mirror is all that the API
// has; the kubelet writes the one into an annotation of the other.
func UID(pod *corev1.Pod) string {
	if uid := pod.Annotations[corev1.MirrorPodAnnotationKey]; uid != "" {
		return uid
	}
	return string(pod.UID)
}

// mirror says whether a pod is but the image of a static pod, whose file is what it asks for.
func mirror(pod *corev1.Pod) bool {
	_, is := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return is
}

// hash is of what a pod asks for by annotations for one of its containers; with none, for itself.
func hash(annotations map[string]string, container string) string {
	sum := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if name := ContainerOf(key); classes.IsPodRequest(key) && (name == "" || name == container) {
			// Quoted, so that no two sets of annotations are written alike. A hash never fails.
			_, _ = sum.Write([]byte(strconv.Quote(key) + strconv.Quote(annotations[key])))
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// ContainerOf names the container for which an annotation of a pod asks, by its key; empty if it asks for the pod and all containers.
func ContainerOf(key string) string {
	if name, is := strings.CutPrefix(key, classes.ContainerKeyPrefix); is {
		return name
	}
	_, name, _ := strings.Cut(key, "/container.")
	return name
}

// ClassName is a class for people.
func ClassName(class string) string {
	if class == classes.SystemDefault {
		return "system default"
	}
	return class
}
