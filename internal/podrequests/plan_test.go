// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podrequests

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const (
	ownKey = "container.qos.noderesource.dev/main"
	podKey = "qos.noderesource.dev/pod"
)

func offered() *qosv1alpha1.StatusResponse {
	classes := func(names ...string) (list []*qosv1alpha1.QOSResourceClassInfo) {
		for _, name := range names {
			list = append(list, &qosv1alpha1.QOSResourceClassInfo{Name: name})
		}
		return list
	}

	return &qosv1alpha1.StatusResponse{
		Config: &qosv1alpha1.ConfigInfo{Hash: "one"},
		Resources: &qosv1alpha1.ResourcesInfo{
			ContainerQosResources: []*qosv1alpha1.QOSResourceInfo{
				{Name: "k8s.io/rdt", Mutable: true, DefaultClass: "bronze", Classes: classes("gold", "silver", "bronze")},
				{Name: "vendor.example/fixed", Classes: classes("a", "b")},
			},
			PodQosResources: []*qosv1alpha1.QOSResourceInfo{
				{Name: "vendor.example/network", Classes: classes("fast", "slow")},
				{Name: "vendor.example/disk", Mutable: true, Classes: classes("fast", "slow")},
			},
		},
		UnavailableResources: []*qosv1alpha1.UnavailableResource{
			{Name: "k8s.io/blockio", Scope: qosv1alpha1.Scope_SCOPE_CONTAINER, Message: "no io controller"},
		},
	}
}

func webPod(annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid-web", Annotations: annotations},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "main", ContainerID: "containerd://id-main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}},
	}
}

// in returns container main with a class of k8s.io/rdt and the system default of other resources.
func in(class string, source qosv1alpha1.Source) *qosv1alpha1.ContainerAssignments {
	return &qosv1alpha1.ContainerAssignments{Name: "main", Id: "id-main", QosResources: []*qosv1alpha1.Assignment{
		{Name: "k8s.io/rdt", Class: class, Source: source}, {Name: "vendor.example/fixed"}, {Name: "k8s.io/blockio"},
	}}
}

// TestPlan checks which change the shim requests for a pod with these annotations, whose container has these classes. A
// `want` that begins with "!" is a part of an error.
func TestPlan(t *testing.T) {
	const (
		container = qosv1alpha1.Source_SOURCE_CONTAINER
		allocated = qosv1alpha1.Source_SOURCE_ALLOCATED
		fromPod   = qosv1alpha1.Source_SOURCE_POD
		standard  = qosv1alpha1.Source_SOURCE_DEFAULT
		byUpdate  = qosv1alpha1.Source_SOURCE_UPDATE
		adopted   = qosv1alpha1.Source_SOURCE_ADOPTED
	)

	for _, c := range []struct {
		name        string
		annotations map[string]string
		limit       string // an extended resource in the limits of the container
		has         *qosv1alpha1.ContainerAssignments
		first       bool   // the shim sees the container for the first time
		want        string // changes as resource=class, or "!" and the error
	}{
		{"a container that has the requested class needs no change", map[string]string{ownKey: "rdt=gold"}, "", in("gold", container), false, ""},
		{"another class is a change", map[string]string{ownKey: "rdt=silver"}, "", in("gold", container), false, "k8s.io/rdt=silver"},
		{"another class in the annotation of the pod is a change", map[string]string{podKey: "rdt=silver"}, "", in("gold", fromPod), false, "k8s.io/rdt=silver"},
		{"a removed annotation leaves the default", nil, "", in("gold", container), false, "k8s.io/rdt=bronze"},
		{"an empty class requests the system default", map[string]string{ownKey: "rdt="}, "", in("gold", container), false, "k8s.io/rdt="},
		{"the KEP's annotation is a request", map[string]string{"rdt.resources.kubernetes.io/container.main": "gold"}, "", in("bronze", standard), false, "k8s.io/rdt=gold"},
		{"an annotation of another container is ignored", map[string]string{"container.qos.noderesource.dev/other": "rdt=gold"}, "", in("bronze", standard), false, ""},

		{"at first sight a class that differs from the annotation is changed", map[string]string{ownKey: "rdt=silver"}, "", in("gold", container), true, "k8s.io/rdt=silver"},
		{"at first sight a newer annotation is followed", map[string]string{ownKey: "rdt=gold"}, "", in("bronze", standard), true, "k8s.io/rdt=gold"},
		{"at first sight an update is left", map[string]string{ownKey: "rdt=gold"}, "", in("silver", byUpdate), true, ""},
		{"at first sight an adopted class is left", map[string]string{ownKey: "rdt=gold"}, "", in("silver", adopted), true, ""},
		{"a newer annotation replaces an update", map[string]string{ownKey: "rdt=gold"}, "", in("silver", byUpdate), false, "k8s.io/rdt=gold"},

		{"an allocation stays without an annotation", nil, "qos.noderesource.dev/rdt.gold", in("gold", allocated), false, ""},
		{"an allocation stays after an update", nil, "qos.noderesource.dev/rdt.gold", in("gold", byUpdate), false, ""},
		{"an annotation against the allocation is refused", map[string]string{ownKey: "rdt=silver"}, "qos.noderesource.dev/rdt.gold", in("gold", allocated), false, `!contradicts the allocated class "gold"`},
		{"the pod's annotation is below the allocation", map[string]string{podKey: "rdt=silver"}, "qos.noderesource.dev/rdt.gold", in("gold", allocated), false, ""},

		{"an unknown class is refused", map[string]string{ownKey: "rdt=platinum"}, "", in("gold", container), false, `!class "platinum" of k8s.io/rdt does not exist`},
		{"an unavailable resource is refused", map[string]string{ownKey: "blockio=fast"}, "", in("bronze", standard), false, "!no io controller"},
		{"a class that is not mutable is refused", map[string]string{ownKey: "vendor.example/fixed=a"}, "", in("bronze", standard), false, "!this class cannot be changed at run time"},
		{"one refusal stops all changes of the container", map[string]string{ownKey: "rdt=gold,vendor.example/fixed=a"}, "", in("bronze", standard), false, "!this class cannot be changed at run time"},
		{"an invalid annotation is refused", map[string]string{ownKey: "gold"}, "", in("gold", container), false, "!which is not of the form resource=class"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := webPod(c.annotations)
			if c.limit != "" {
				pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceName(c.limit): resource.MustParse("1")}
			}

			changes, err := plan(Catalog(offered()), pod, c.has, c.first)
			if problem, refused := strings.CutPrefix(c.want, "!"); refused {
				if err == nil || !strings.Contains(err.Error(), problem) || len(changes) > 0 {
					t.Fatalf("got %v, %v; want an error with %q and no change", changes, err, problem)
				}
				return
			}

			var got []string
			for _, change := range changes {
				got = append(got, change.GetName()+"="+change.GetClass())
			}
			if err != nil || strings.Join(got, ",") != c.want {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

// TestNoChangeIsRequestedForAClassThatIsNoLongerOfferedIfThePodHasIt uses a class of k8s.io/blockio. offered lists this resource as
// unavailable.
func TestNoChangeIsRequestedForAClassThatIsNoLongerOfferedIfThePodHasIt(t *testing.T) {
	pod, has := webPod(map[string]string{ownKey: "blockio=fast"}), in("bronze", qosv1alpha1.Source_SOURCE_DEFAULT)
	has.QosResources[2].Class = "fast" // of k8s.io/blockio
	if changes, err := plan(Catalog(offered()), pod, has, true); err != nil || len(changes) > 0 {
		t.Errorf("got %v, %v; want no change, as it has the class that it requests", changes, err)
	}
}

// TestAClassThatTheKubeletRequestedByCRIAnnotationIsKept: the pod has no annotations. Without the CRI annotation, its container would get the
// default class bronze.
func TestAClassThatTheKubeletRequestedByCRIAnnotationIsKept(t *testing.T) {
	has := in("gold", qosv1alpha1.Source_SOURCE_CONTAINER)
	has.QosResources[0].RequestedBy = "io.kubernetes.cri.rdt-class"
	if changes, err := plan(Catalog(offered()), webPod(nil), has, false); err != nil || len(changes) > 0 {
		t.Errorf("got %v, %v; want no change, as the kubelet requested gold", changes, err)
	}
}

// TestPodScopeClassesAreChangedIfMutable: of the resources in offered, vendor.example/disk is mutable, and vendor.example/network is not.
func TestPodScopeClassesAreChangedIfMutable(t *testing.T) {
	has := &qosv1alpha1.ContainerAssignments{QosResources: []*qosv1alpha1.Assignment{
		{Name: "vendor.example/network", Class: "fast", Source: qosv1alpha1.Source_SOURCE_POD},
		{Name: "vendor.example/disk", Class: "fast", Source: qosv1alpha1.Source_SOURCE_POD},
	}}

	for request, want := range map[string]string{
		"vendor.example/network=fast,vendor.example/disk=fast": "",
		"vendor.example/network=fast,vendor.example/disk=slow": "vendor.example/disk=slow",
		"vendor.example/network=slow,vendor.example/disk=slow": "pod default/web: cannot change the class of vendor.example/network to slow: " +
			"this class cannot be changed at run time; recreate the pod",
	} {
		changes, err := plan(Catalog(offered()), webPod(map[string]string{podKey: request}), has, false)
		var got []string
		for _, change := range changes {
			got = append(got, change.GetName()+"="+change.GetClass())
		}
		if err != nil {
			got = append(got, err.Error())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %q", request, got, want)
		}
	}
}

// TestAContainerHasNoAssignmentOfAnUnavailableResourceOfAnotherScope compares the number of assignments of a container with the scope
// of the only resource, which is unavailable.
func TestAContainerHasNoAssignmentOfAnUnavailableResourceOfAnotherScope(t *testing.T) {
	for scope, want := range map[qosv1alpha1.Scope]int{
		qosv1alpha1.Scope_SCOPE_VOLUME: 0, qosv1alpha1.Scope_SCOPE_POD: 0, qosv1alpha1.Scope_SCOPE_CONTAINER: 1,
		qosv1alpha1.Scope_SCOPE_UNSPECIFIED: 1, // an older plugin reports no scope
	} {
		status := &qosv1alpha1.StatusResponse{UnavailableResources: []*qosv1alpha1.UnavailableResource{{Name: "v.example/io", Scope: scope}}}
		got, err := Catalog(status).Resolve(classes.Holder{PodUID: "u", Container: "main"})
		if err != nil || len(got) != want {
			t.Errorf("%s: a container gets the assignments %v and the error %v, want %d", scope, got, err, want)
		}
	}
}
