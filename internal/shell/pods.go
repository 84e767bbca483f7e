// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"fmt"
	"slices"
	"strings"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

// PodName returns the name of a pod in the form that commands accept.
func PodName(pod *qosv1alpha1.PodAssignments) string { return pod.GetNamespace() + "/" + pod.GetName() }

// Select returns the pods, refusals and evictions that match a UID or a namespace/name. Several pods can match a name
// while the runtime keeps an ended pod. An empty name matches all pods.
func Select(list *qosv1alpha1.ListAssignmentsResponse, name string) *qosv1alpha1.ListAssignmentsResponse {
	selected := &qosv1alpha1.ListAssignmentsResponse{Synchronized: list.GetSynchronized()}
	for _, pod := range list.GetPods() {
		if name == "" || name == pod.GetUid() || name == PodName(pod) {
			selected.Pods = append(selected.Pods, pod)
		}
	}

	selected.Refusals = selectOf(list.GetRefusals(), name)
	selected.Evictions = selectOf(list.GetEvictions(), name)
	return selected
}

func selectOf[T interface {
	GetPodUid() string
	GetNamespace() string
	GetPod() string
}](list []T, name string) (found []T) {
	for _, item := range list {
		if name == "" || name == item.GetPodUid() || name == item.GetNamespace()+"/"+item.GetPod() {
			found = append(found, item)
		}
	}
	return found
}

// NoPod returns the error for a name that matches no pod. The error lists pods with a similar name, or else other pods.
func NoPod(list *qosv1alpha1.ListAssignmentsResponse, name string) error {
	var near, all []string
	for _, pod := range list.GetPods() {
		all = append(all, PodName(pod))
		if _, bare, _ := strings.Cut(name, "/"); pod.GetName() == name || pod.GetName() == bare {
			near = append(near, PodName(pod))
		}
	}

	text := fmt.Sprintf("no pod %q with QoS-class resources is on this node", name)
	switch {
	case !strings.Contains(name, "/") && len(near) > 0:
		return fmt.Errorf("%q is not the UID of a pod on this node; pods with this name: %s", name, program.List(near))
	case len(near) > 0:
		return fmt.Errorf("%s; there is %s", text, program.List(near))
	case len(all) > 0:
		return fmt.Errorf("%s; there are %s", text, program.List(all))
	}
	return fmt.Errorf("no pod on this node has QoS-class resources, so there is no %q", name)
}

// SelectPod returns the pod that matches a name. It returns an error if no pod or more than one pod matches.
func SelectPod(list *qosv1alpha1.ListAssignmentsResponse, name string) (*qosv1alpha1.PodAssignments, error) {
	found := Select(list, name).GetPods()
	switch len(found) {
	case 0:
		return nil, NoPod(list, name)
	case 1:
		return found[0], nil
	}

	var uids []string
	for _, pod := range found {
		uids = append(uids, pod.GetUid())
	}
	return nil, fmt.Errorf("%d pods have the name %s; choose one of them by its UID: %s", len(found), name, program.List(uids))
}

// CheckContainer returns an error if a pod has no container with this name. The error lists the names of the pod's containers.
func CheckContainer(pod *qosv1alpha1.PodAssignments, name string) error {
	names := ContainerNames(pod)
	switch {
	case slices.Contains(names, name):
		return nil
	case len(names) == 0:
		return fmt.Errorf("pod %s has no containers", PodName(pod))
	}
	return fmt.Errorf("pod %s has no container %q; its containers: %s", PodName(pod), name, program.List(names))
}

// ContainerNames returns the sorted names of the containers of a pod. Each name occurs once.
func ContainerNames(pod *qosv1alpha1.PodAssignments) []string {
	names := make([]string, 0, len(pod.GetContainers()))
	for _, ctr := range pod.GetContainers() {
		names = append(names, ctr.GetName())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Container returns the assignments of the container whose ID is `id`, or of the pod itself if its sandbox has this ID.
// It returns nil if there is no such container or sandbox.
func Container(pod *qosv1alpha1.PodAssignments, id string) *qosv1alpha1.ContainerAssignments {
	for _, ctr := range pod.GetContainers() {
		if ctr.GetId() == id {
			return ctr
		}
	}
	if id == pod.GetSandboxId() {
		return &qosv1alpha1.ContainerAssignments{Id: id, QosResources: pod.GetQosResources()}
	}
	return nil
}
