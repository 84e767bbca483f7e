// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"fmt"
	"slices"
	"strings"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// maxCandidates is how many names an error lists.
const maxCandidates = 8

// PodName is the name of a pod as commands take it.
func PodName(pod *qosv1alpha1.PodAssignments) string { return pod.GetNamespace() + "/" + pod.GetName() }

// SelectPods finds pods by a UID or by namespace/name. More than one pod can have a name while the runtime still keeps
// one that has ended. An empty name selects all.
func SelectPods(list *qosv1alpha1.ListAssignmentsResponse, name string) []*qosv1alpha1.PodAssignments {
	if name == "" {
		return list.GetPods()
	}
	var found []*qosv1alpha1.PodAssignments
	for _, pod := range list.GetPods() {
		if pod.GetUid() == name || PodName(pod) == name {
			found = append(found, pod)
		}
	}
	return found
}

// SelectRefusals finds those of a pod, as SelectPods does.
func SelectRefusals(list *qosv1alpha1.ListAssignmentsResponse, name string) []*qosv1alpha1.Refusal {
	if name == "" {
		return list.GetRefusals()
	}
	var found []*qosv1alpha1.Refusal
	for _, r := range list.GetRefusals() {
		if r.GetPodUid() == name || r.GetNamespace()+"/"+r.GetPod() == name {
			found = append(found, r)
		}
	}
	return found
}

// SelectEvictions finds those of a pod, as SelectPods does.
func SelectEvictions(list *qosv1alpha1.ListAssignmentsResponse, name string) []*qosv1alpha1.Eviction {
	if name == "" {
		return list.GetEvictions()
	}
	var found []*qosv1alpha1.Eviction
	for _, e := range list.GetEvictions() {
		if e.GetPodUid() == name || e.GetNamespace()+"/"+e.GetPod() == name {
			found = append(found, e)
		}
	}
	return found
}

// NoPod is the error for a name that selects nothing. It lists names that could have been meant.
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
		return fmt.Errorf("%q is no UID of a pod on this node; by name it is %s", name, candidates(near))
	case len(near) > 0:
		return fmt.Errorf("%s; there is %s", text, candidates(near))
	case len(all) > 0:
		return fmt.Errorf("%s; there are %s", text, candidates(all))
	}
	return fmt.Errorf("%s; there are none at all", text)
}

// SelectPod finds one pod.
func SelectPod(list *qosv1alpha1.ListAssignmentsResponse, name string) (*qosv1alpha1.PodAssignments, error) {
	found := SelectPods(list, name)
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
	return nil, fmt.Errorf("%d pods are called %s; name one by its UID: %s", len(found), name, candidates(uids))
}

// CheckContainer says whether a pod has a container of a name, and what others it has if not.
func CheckContainer(pod *qosv1alpha1.PodAssignments, name string) error {
	names := ContainerNames(pod)
	if slices.Contains(names, name) {
		return nil
	}
	if len(names) == 0 {
		return fmt.Errorf("pod %s has no containers", PodName(pod))
	}
	return fmt.Errorf("pod %s has no container %q; it has %s", PodName(pod), name, candidates(names))
}

// ContainerNames are distinct and sorted.
func ContainerNames(pod *qosv1alpha1.PodAssignments) []string {
	names := make([]string, 0, len(pod.GetContainers()))
	for _, ctr := range pod.GetContainers() {
		names = append(names, ctr.GetName())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Container finds a container of a pod by the runtime's ID, or by that of its sandbox what the pod has itself; nil when there is none.
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

func candidates(names []string) string {
	if more := len(names) - maxCandidates; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxCandidates], ", "), more)
	}
	return strings.Join(names, ", ")
}
