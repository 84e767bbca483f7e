// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podrequests lets running pods follow their annotations: when these change, containers get other classes.
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

// Catalog returns the plugin's offer, for resolving requests. It includes draining classes: containers that run in one have what they
// request, and the plugin refuses new ones.
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

// UID returns the UID that a pod has on its node. That of a static pod differs from the UID of its mirror pod in the API, which has it
// in an annotation.
func UID(pod *corev1.Pod) string {
	if uid := pod.Annotations[corev1.MirrorPodAnnotationKey]; uid != "" {
		return uid
	}
	return string(pod.UID)
}

// mirror reports whether a pod is the mirror of a static pod, which follows its file and no annotations.
func mirror(pod *corev1.Pod) bool {
	_, is := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return is
}

// hash returns a hash of the annotations that are requests for a container, or without one for the pod itself.
func hash(annotations map[string]string, container string) string {
	sum := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if name := ContainerOf(key); classes.IsPodRequest(key) && (name == "" || name == container) {
			// Quoting keeps different annotations different. Writing to a hash never fails.
			_, _ = sum.Write([]byte(strconv.Quote(key) + strconv.Quote(annotations[key])))
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// ContainerOf returns the container that an annotation's key names; empty when the annotation is for the pod and all containers.
func ContainerOf(key string) string {
	if name, is := strings.CutPrefix(key, classes.ContainerKeyPrefix); is {
		return name
	}
	_, name, _ := strings.Cut(key, "/container.")
	return name
}

// ClassName returns a class as messages have it.
func ClassName(class string) string {
	if class == classes.SystemDefault {
		return "system default"
	}
	return class
}
