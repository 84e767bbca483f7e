// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podrequests

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/podspec"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// errFixed refuses a change that can never be made to what runs.
var errFixed = errors.New("cannot be changed while it runs")

// plan says which classes a running container, or without a name its pod, must change to, to have what the pod asks for now; none when
// it has all of them. first says that the container is seen for the first time: then a class that came from neither a request nor a
// default is nobody's mistake, and is left.
func plan(
	catalog *classes.Catalog, pod *corev1.Pod, has *qosv1alpha1.ContainerAssignments, first bool,
) ([]*qosv1alpha1.ContainerQOSResource, error) {
	request := requestOf(pod)
	if has.GetName() != "" {
		request.Container, request.ContainerAnnotations = has.GetName(), told(catalog, pod, has)
	}
	wanted, err := catalog.Resolve(request)
	if err != nil {
		if first && runsIn(err, has.GetQosResources()) {
			return nil, nil
		}
		return nil, err
	}
	var changes []*qosv1alpha1.ContainerQOSResource
	for _, want := range different(wanted, has.GetQosResources(), first) {
		if offer, ok := catalog.Lookup(want.Resource); ok && !offer.Mutable {
			return nil, fixed(pod, has.GetName(), want)
		}
		changes = append(changes, &qosv1alpha1.ContainerQOSResource{Name: want.Resource, Class: want.Class})
	}
	return changes, nil
}

func fixed(pod *corev1.Pod, container string, want classes.Assignment) error {
	remedy := "create the pod anew"
	if container != "" {
		container, remedy = "container "+container+": ", "restart the container in a new pod"
	}
	return fmt.Errorf("pod %s/%s: %sclass of %s %w, to %s; %s",
		pod.Namespace, pod.Name, container, want.Resource, errFixed, ClassName(want.Class), remedy)
}

func requestOf(pod *corev1.Pod) classes.Holder {
	return classes.Holder{
		PodNamespace: pod.Namespace, PodName: pod.Name, PodUID: UID(pod), PodAnnotations: pod.Annotations,
	}
}

// different has what is wanted and is not so. Of a resource that nothing is told of, nothing can be different.
func different(wanted []classes.Assignment, has []*qosv1alpha1.Assignment, first bool) []classes.Assignment {
	var changes []classes.Assignment
	for _, want := range wanted {
		for _, a := range has {
			if a.GetName() == want.Resource && a.GetClass() != want.Class && (!first || ownWill(a.GetSource())) {
				changes = append(changes, want)
			}
		}
	}
	return changes
}

// ownWill says whether the class came from what the pod asked for, or did not.
func ownWill(source qosv1alpha1.Source) bool {
	return source != qosv1alpha1.Source_SOURCE_UPDATE && source != qosv1alpha1.Source_SOURCE_ADOPTED
}

// runsIn says whether a class was refused in which it runs: it was not the request that changed, but the node.
func runsIn(err error, has []*qosv1alpha1.Assignment) bool {
	var refused *classes.RequestError
	if !errors.As(err, &refused) {
		return false
	}
	for _, a := range has {
		if a.GetName() == refused.Resource && a.GetClass() == refused.Class {
			return true
		}
	}
	return false
}

// told has the annotations that the container got from the kubelet, as far as they can be known: the allocations by its
// limits, others by what the plugin made of them.
func told(catalog *classes.Catalog, pod *corev1.Pod, has *qosv1alpha1.ContainerAssignments) map[string]string {
	annotations := map[string]string{}
	limits := podspec.LimitsOf(pod, has.GetName())
	for _, offer := range catalog.Offers() {
		if offer.Scope != classes.ContainerScope || len(limits) == 0 {
			continue
		}
		for _, class := range offer.Classes {
			extended, err := classes.ExtendedResource(offer.Name, class.Name)
			if amount, ok := limits[corev1.ResourceName(extended)]; err == nil && ok && !amount.IsZero() {
				annotations[classes.AllocatedKeyPrefix+extended] = offer.Name + "=" + class.Name
			}
		}
	}
	for _, a := range has.GetQosResources() {
		if key := a.GetRequestedBy(); strings.HasPrefix(key, "io.kubernetes.cri.") {
			annotations[key] = a.GetClass()
		}
	}
	return annotations
}
