// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const (
	allocated = qosv1alpha1.Source_SOURCE_ALLOCATED
	annotated = qosv1alpha1.Source_SOURCE_CONTAINER
)

func assigned(resource, class string, source qosv1alpha1.Source) []*qosv1alpha1.Assignment {
	return []*qosv1alpha1.Assignment{{Name: resource, Class: class, Source: source}}
}

// inGold returns the assignments of a container that has the gold class.
func inGold(name, id string, source qosv1alpha1.Source) *qosv1alpha1.ContainerAssignments {
	return &qosv1alpha1.ContainerAssignments{Name: name, Id: id, QosResources: assigned("k8s.io/rdt", "gold", source)}
}

func podOf(name string, containers ...*qosv1alpha1.ContainerAssignments) *qosv1alpha1.PodAssignments {
	return &qosv1alpha1.PodAssignments{Uid: "uid-" + name, Namespace: "default", Name: name, Containers: containers}
}

func assignments(pods ...*qosv1alpha1.PodAssignments) *qosv1alpha1.ListAssignmentsResponse {
	return &qosv1alpha1.ListAssignmentsResponse{Pods: pods}
}

// kubeletPod is a pod as kubelet lists it, with the gold devices of each container.
func kubeletPod(name string, devices map[string][]string) *podresourcesv1.PodResources {
	pod := &podresourcesv1.PodResources{Namespace: "default", Name: name}
	for container, held := range devices {
		ctr := &podresourcesv1.ContainerResources{Name: container}
		for _, id := range held {
			ctr.Devices = append(ctr.Devices, &podresourcesv1.ContainerDevices{ResourceName: gold, DeviceIds: []string{id}})
		}
		pod.Containers = append(pod.Containers, ctr)
	}
	return pod
}

// TestAccount compares the assignments of the plugin with the allocations of the kubelet.
func TestAccount(t *testing.T) {
	podScope := goldClass(3)
	podScope.podScope = true
	draining := goldClass(3)
	draining.draining = true
	unlimited := goldClass(0)
	inGoldAsPod := podOf("a")
	inGoldAsPod.QosResources = assigned("k8s.io/rdt", "gold", annotated)
	byClaim := inGold("app", "1", allocated) // before the node was switched from DRA to device plugins
	byClaim.QosResources[0].RequestedBy = classes.AllocatedKeyPrefix + classes.CDIName(classes.Pair{Resource: "k8s.io/rdt", Class: "gold"})
	one := map[string][]string{"app": ids(0)}
	for _, c := range []struct {
		name     string
		class    class
		assigned *qosv1alpha1.ListAssignmentsResponse
		kubelet  []*podresourcesv1.PodResources
		want     usage
	}{
		{
			"an unused class needs no poll", goldClass(3), assignments(), nil, usage{},
		},
		{
			"kubelet and plugin agree", goldClass(3), assignments(podOf("a", inGold("app", "1", allocated))),
			[]*podresourcesv1.PodResources{kubeletPod("a", one)}, held(0),
		},
		{
			"a container without a device is unaccounted for", goldClass(3), assignments(podOf("a", inGold("app", "1", annotated))),
			[]*podresourcesv1.PodResources{kubeletPod("a", map[string][]string{"app": nil})}, usage{unaccounted: 1, needsPoll: true},
		},
		{
			"a restarted container counts once, beside its predecessor", goldClass(3),
			assignments(podOf("a", inGold("app", "1", annotated), inGold("app", "2", annotated))), nil, usage{unaccounted: 1, needsPoll: true},
		},
		{
			"a container of another class does not count", goldClass(3),
			assignments(podOf("a", &qosv1alpha1.ContainerAssignments{Name: "app", QosResources: assigned("k8s.io/rdt", "bronze", annotated)})), nil,
			usage{},
		},
		{
			"a device whose container is not in the class yet needs a poll", goldClass(3), assignments(),
			[]*podresourcesv1.PodResources{kubeletPod("a", one)}, usage{allocated: ids(0), accounted: 1, needsPoll: true},
		},
		{
			"an init container with an allocated class is accounted for, although kubelet omits it", goldClass(3),
			assignments(podOf("a", inGold("setup", "1", allocated))),
			[]*podresourcesv1.PodResources{kubeletPod("a", map[string][]string{"app": nil})}, usage{},
		},
		{
			"a device that containers share counts once", goldClass(3),
			assignments(podOf("a", inGold("sidecar", "1", allocated), inGold("app", "2", allocated))),
			[]*podresourcesv1.PodResources{kubeletPod("a", map[string][]string{"sidecar": ids(0), "app": ids(0)})}, held(0),
		},
		{
			"an allocated class is accounted for, although kubelet omits the pod", goldClass(3),
			assignments(podOf("a", inGold("app", "1", allocated))), nil, usage{needsPoll: true},
		},
		{
			"of two pods with the same name, the one with an allocated class holds the device", goldClass(3),
			assignments(podOf("a", inGold("app", "1", allocated)), &qosv1alpha1.PodAssignments{
				Uid: "uid-older", Namespace: "default", Name: "a",
				Containers: []*qosv1alpha1.ContainerAssignments{inGold("app", "0", annotated)},
			}),
			[]*podresourcesv1.PodResources{kubeletPod("a", one)},
			usage{allocated: ids(0), accounted: 1, unaccounted: 1, needsPoll: true},
		},
		{
			"more devices than capacity need a poll", goldClass(1),
			assignments(podOf("a", inGold("app", "1", allocated), inGold("b", "2", allocated))),
			[]*podresourcesv1.PodResources{kubeletPod("a", map[string][]string{"app": ids(0), "b": ids(1)})},
			usage{allocated: ids(0, 1), accounted: 2, needsPoll: true},
		},
		{
			"in pod scope any container of the pod may hold the device", podScope, assignments(inGoldAsPod),
			[]*podresourcesv1.PodResources{kubeletPod("a", one)}, held(0),
		},
		{
			"in pod scope a pod without a device is unaccounted for", podScope, assignments(inGoldAsPod),
			[]*podresourcesv1.PodResources{kubeletPod("b", nil)}, usage{unaccounted: 1, needsPoll: true},
		},
		{
			"a class that a ResourceClaim has allocated is unaccounted for", goldClass(3), assignments(podOf("claimed", byClaim)),
			[]*podresourcesv1.PodResources{kubeletPod("claimed", nil)}, usage{unaccounted: 1, needsPoll: true},
		},
		{
			"an unlimited class has no unaccounted assignments", unlimited, assignments(podOf("a", inGold("app", "1", annotated))), nil, usage{},
		},
		{
			"a draining class needs polls until kubelet has freed its devices", draining, assignments(podOf("a", inGold("app", "1", allocated))),
			[]*podresourcesv1.PodResources{kubeletPod("a", one)}, usage{allocated: ids(0), accounted: 1, needsPoll: true},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := account(c.class, c.assigned, parseAllocations(&podresourcesv1.ListPodResourcesResponse{PodResources: c.kubelet}))
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(usage{})); diff != "" {
				t.Errorf("usage differs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWhileKubeletDoesNotAnswerAnAllocatedClassIsAccountedFor has a container whose class kubelet allocated, and another one with an
// annotation. The cached devices of a pod that is gone stay allocated, each of them once.
func TestWhileKubeletDoesNotAnswerAnAllocatedClassIsAccountedFor(t *testing.T) {
	a := assignments(podOf("a", inGold("app", "1", allocated), inGold("side", "2", annotated)))
	h := newAllocations()
	h.add(gold, owner{namespace: "default", pod: "gone", Subject: qos.Subject{Container: "app"}}, ids(2, 2, 1))
	got := accountFromCache(goldClass(3), a, h)
	// The container app is accounted for, and side is not. A poll is needed whenever kubelet does not answer.
	if diff := cmp.Diff(usage{allocated: ids(1, 2), accounted: 1, unaccounted: 1, needsPoll: true}, got, cmp.AllowUnexported(usage{})); diff != "" {
		t.Errorf("usage differs (-want +got):\n%s", diff)
	}
}

// TestWhileKubeletDoesNotAnswerAPodWithACachedDeviceIsAccountedFor has three pods with a class of pod scope. One has a cached device. Of
// the other two, one counts as the pod of the granted device, and one is unaccounted for.
func TestWhileKubeletDoesNotAnswerAPodWithACachedDeviceIsAccountedFor(t *testing.T) {
	c := goldClass(3)
	c.podScope = true
	has := podOf("has")
	has.QosResources = assigned("k8s.io/rdt", "gold", qosv1alpha1.Source_SOURCE_POD)
	granted := podOf("granted")
	granted.QosResources = has.QosResources
	another := podOf("another")
	another.QosResources = has.QosResources
	h := newAllocations()
	h.add(gold, owner{namespace: "default", pod: "has", Subject: qos.Subject{Container: "app"}}, ids(1))
	h.granted[gold] = ids(2)
	got := accountFromCache(c, assignments(has, granted, another), h)
	if diff := cmp.Diff(usage{allocated: ids(1, 2), accounted: 2, unaccounted: 1, needsPoll: true}, got, cmp.AllowUnexported(usage{})); diff != "" {
		t.Errorf("usage differs (-want +got):\n%s", diff)
	}
}
