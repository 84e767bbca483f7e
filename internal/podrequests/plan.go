// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podrequests

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/podspec"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

var errFixed = errors.New("this class cannot be changed at run time")

// plan returns the class changes that a running container needs to match the pod's requests. A container without a
// name stands for the pod itself. `first` is true if the annotations have not changed since the Follower first saw the
// container or sandbox. In this case, it keeps the classes that an update has set, because the update may be newer
// than the annotations.
func plan(
	catalog *classes.Catalog, pod *corev1.Pod, has *qosv1alpha1.ContainerAssignments, first bool,
) ([]*qosv1alpha1.ContainerQOSResource, error) {
	request := classes.Holder{
		PodNamespace: pod.Namespace, PodName: pod.Name, PodUID: podspec.UID(pod), PodAnnotations: pod.Annotations,
	}
	if has.GetName() != "" {
		request.Container, request.ContainerAnnotations = has.GetName(), containerAnnotations(catalog, pod, has)
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
			return nil, fmt.Errorf("%s: cannot change the class of %s to %s: %w; recreate the pod", request, want.Resource, podspec.ClassName(want.Class), errFixed)
		}
		changes = append(changes, &qosv1alpha1.ContainerQOSResource{Name: want.Resource, Class: want.Class})
	}
	return changes, nil
}

// different returns the wanted classes that differ from the assigned classes. It skips resources without an assignment.
func different(wanted []classes.Assignment, has []*qosv1alpha1.Assignment, first bool) []classes.Assignment {
	var changes []classes.Assignment
	for _, want := range wanted {
		for _, a := range has {
			if a.GetName() == want.Resource && a.GetClass() != want.Class && (!first || !updated(a.GetSource())) {
				changes = append(changes, want)
			}
		}
	}
	return changes
}

func updated(source qosv1alpha1.Source) bool {
	return source == qosv1alpha1.Source_SOURCE_UPDATE || source == qosv1alpha1.Source_SOURCE_ADOPTED
}

// runsIn reports whether a container already has the class whose request is refused. If so, the request is not new:
// the class became unavailable after the container got it.
func runsIn(err error, has []*qosv1alpha1.Assignment) bool {
	var refused *classes.RequestError
	return errors.As(err, &refused) && slices.ContainsFunc(has, func(a *qosv1alpha1.Assignment) bool {
		return a.GetName() == refused.Resource && a.GetClass() == refused.Class
	})
}

// containerAnnotations reconstructs the CRI annotations that the container got from the kubelet. The annotations for
// allocated devices follow from the container's limits. The other annotations follow from the container's assignments.
func containerAnnotations(catalog *classes.Catalog, pod *corev1.Pod, has *qosv1alpha1.ContainerAssignments) map[string]string {
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

// Catalog returns a catalog for resolving requests. The catalog has all resources and classes that the plugin
// reports. It includes draining classes, because running containers may have these classes. The plugin refuses new
// requests for draining classes.
func Catalog(status *qosv1alpha1.StatusResponse) *classes.Catalog {
	var offers []classes.Offer
	add := func(scope classes.Scope, resources []*qosv1alpha1.QOSResourceInfo) {
		for _, r := range resources {
			offer := classes.Offer{Resource: classes.Resource{
				Name: r.GetName(), Scope: scope, Mutable: r.GetMutable(), DefaultClass: r.GetDefaultClass(),
			}}
			for _, c := range r.GetClasses() {
				offer.Classes = append(offer.Classes, classes.Class{Name: c.GetName(), Capacity: c.GetCapacity()})
			}
			offers = append(offers, offer)
		}
	}

	add(classes.PodScope, status.GetResources().GetPodQosResources())
	add(classes.ContainerScope, status.GetResources().GetContainerQosResources())
	for _, u := range status.GetUnavailableResources() {
		offers = append(offers, classes.Offer{
			Resource:    classes.Resource{Name: u.GetName(), Scope: cmp.Or(classes.Scope(u.GetScope().Name()), classes.ContainerScope)},
			Unavailable: &classes.Unavailable{Reason: u.GetReason(), Message: u.GetMessage()},
		})
	}
	return classes.NewCatalog(offers)
}

func hash(annotations map[string]string, container string) string {
	sum := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if name := ContainerOf(key); classes.IsPodRequest(key) && (name == "" || name == container) {
			// The key and the value are quoted, so that different annotations give different texts. Writing to a hash
			// never fails.
			_, _ = sum.Write([]byte(strconv.Quote(key) + strconv.Quote(annotations[key])))
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// ContainerOf returns the name of the container in the key of an annotation. It returns "" if the annotation is for the
// pod and all of its containers.
func ContainerOf(key string) string {
	if name, is := strings.CutPrefix(key, classes.ContainerKeyPrefix); is {
		return name
	}
	_, name, _ := strings.Cut(key, "/container.")
	return name
}
