// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/podrequests"
)

// maxMessage bounds the message of a condition, in bytes. Kubernetes has no limit but the size of a whole pod.
const maxMessage = 4096

// observed is what is known of one pod at one moment.
type observed struct {
	// pod is the API's.
	pod *corev1.Pod
	// assignments and refusals are the plugin's; assignments is nil when it does not know the pod.
	assignments *qosv1alpha1.PodAssignments
	refusals    []*qosv1alpha1.Refusal
	// changes are what the pod asks for and was refused since it runs.
	changes []podrequests.Refused
	// last are the assignments of containers seen before, by name: between its end and its restart, a container has the
	// classes that it had.
	last map[string]*qosv1alpha1.ContainerAssignments
}

// condition says which condition the pod should have; nil when there is nothing to tell, and what it has may stay.
func (o *observed) condition(now metav1.Time) *corev1.PodCondition {
	is := conditionOf(o.pod)
	effective := o.effective()
	want := &corev1.PodCondition{Type: ConditionType, Status: corev1.ConditionFalse}
	switch {
	case len(o.refusals) > 0:
		want.Reason = ReasonRefused
		if reason := o.refusals[0].GetReason(); reason != "" {
			want.Reason = reason
		}
		want.Message = refusedMessage(messagesOf(o.refusals), effective)
	case len(o.changes) > 0:
		want.Reason = ReasonChangeRefused
		want.Message = refusedMessage(changeMessages(o.changes), effective)
	case o.assignments != nil && (o.tells() || is != nil):
		want.Status, want.Reason, want.Message = corev1.ConditionTrue, ReasonAssigned, join(effective)
	default:
		return nil
	}
	want.LastTransitionTime = now
	if is != nil && is.Status == want.Status {
		want.LastTransitionTime = is.LastTransitionTime
	}
	return want
}

func conditionOf(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == ConditionType {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// same says whether a pod has a condition already.
func same(is, want *corev1.PodCondition) bool {
	return is != nil && is.Status == want.Status && is.Reason == want.Reason && is.Message == want.Message
}

// tells says whether the pod has any class, or asked for the system default. What it asked for and lost is told, too.
func (o *observed) tells() bool {
	if anyTold(o.assignments.GetQosResources()) {
		return true
	}
	for _, c := range o.containers() {
		if anyTold(c.GetQosResources()) {
			return true
		}
	}
	return false
}

func anyTold(assignments []*qosv1alpha1.Assignment) bool {
	for _, a := range assignments {
		if a.GetClass() != "" || a.GetSource() != qosv1alpha1.Source_SOURCE_UNSPECIFIED {
			return true
		}
	}
	return false
}

// containers has one of each name, in the order in which the pod has them. An init container is told of while it runs: a pod
// has it once, and then others.
func (o *observed) containers() []*qosv1alpha1.ContainerAssignments {
	var list []*qosv1alpha1.ContainerAssignments
	for i := range o.pod.Spec.InitContainers {
		c := &o.pod.Spec.InitContainers[i]
		restarts := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		list = o.add(list, c.Name, o.pod.Status.InitContainerStatuses, restarts)
	}
	for i := range o.pod.Spec.Containers {
		list = o.add(list, o.pod.Spec.Containers[i].Name, o.pod.Status.ContainerStatuses, true)
	}
	for _, c := range o.assignments.GetContainers() {
		if !o.specified(c.GetName()) { // an ephemeral one
			list = append(list, c)
		}
	}
	return list
}

func (o *observed) add(
	list []*qosv1alpha1.ContainerAssignments, name string, statuses []corev1.ContainerStatus, keep bool,
) []*qosv1alpha1.ContainerAssignments {
	found := o.find(name, statuses)
	if found == nil && keep {
		found = o.last[name]
	}
	if found == nil {
		return list
	}
	return append(list, found)
}

// find returns the container by a name that the kubelet knows as the present one, else any: the plugin knows a restarted
// container beside the one before.
func (o *observed) find(name string, statuses []corev1.ContainerStatus) *qosv1alpha1.ContainerAssignments {
	var found *qosv1alpha1.ContainerAssignments
	for _, c := range o.assignments.GetContainers() {
		if c.GetName() != name {
			continue
		}
		if found == nil || isCurrent(statuses, name, c.GetId()) {
			found = c
		}
	}
	return found
}

func isCurrent(statuses []corev1.ContainerStatus, name, id string) bool {
	for i := range statuses {
		if statuses[i].Name == name {
			return strings.HasSuffix(statuses[i].ContainerID, "://"+id)
		}
	}
	return false
}

func (o *observed) specified(name string) bool {
	for _, list := range [][]corev1.Container{o.pod.Spec.InitContainers, o.pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return true
			}
		}
	}
	return false
}

// effective is the class of every resource, defaults included, by container, and before them those of the pod.
func (o *observed) effective() []string {
	var parts []string
	if has := o.assignments.GetQosResources(); len(has) > 0 {
		parts = append(parts, "pod: "+describe(has))
	}
	for _, c := range o.containers() {
		if len(c.GetQosResources()) > 0 {
			parts = append(parts, c.GetName()+": "+describe(c.GetQosResources()))
		}
	}
	return parts
}

func describe(assignments []*qosv1alpha1.Assignment) string {
	parts := make([]string, 0, len(assignments))
	for _, a := range assignments {
		text := a.GetName() + " " + podrequests.ClassName(a.GetClass())
		if source := sourceName(a.GetSource()); source != "" {
			text += " (" + source + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// sourceName is "allocated" of SOURCE_ALLOCATED, and so on; empty when nothing was asked.
func sourceName(source qosv1alpha1.Source) string {
	if source == qosv1alpha1.Source_SOURCE_UNSPECIFIED {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(source.String(), "SOURCE_"))
}

// refusedMessage tells what was refused, and what the pod has all the same.
func refusedMessage(refused, effective []string) string {
	text := cut(strings.Join(refused, "; "), maxMessage/2)
	if len(effective) == 0 {
		return text
	}
	return text + "; in effect: " + joinUpTo(effective, maxMessage-len(text)-len("; in effect: "))
}

func messagesOf(refusals []*qosv1alpha1.Refusal) []string {
	var messages []string
	for _, r := range refusals {
		messages = append(messages, r.GetMessage())
	}
	return messages
}

func changeMessages(changes []podrequests.Refused) []string {
	var messages []string
	for _, r := range changes {
		messages = append(messages, r.Message)
	}
	return messages
}

func join(parts []string) string { return joinUpTo(parts, maxMessage) }

// joinUpTo leaves out whole parts that have no room, and says how many.
func joinUpTo(parts []string, room int) string {
	all := strings.Join(parts, "; ")
	if len(all) <= room {
		return all
	}
	const remark = "; and %d more, which \"qos-nri-plugin assignments\" tells on the node"
	room -= len(remark) + 8 // digits
	used, text := 0, ""
	for _, part := range parts {
		if used > 0 && len(text)+2+len(part) > room {
			break
		}
		if used > 0 {
			text += "; "
		}
		text += part
		used++
	}
	if used == len(parts) {
		return cut(text, room+len(remark))
	}
	return cut(text, room) + fmt.Sprintf(remark, len(parts)-used)
}

// cut shortens a text to room bytes, and says so.
func cut(text string, room int) string { return kubeapi.Cut(text, room, " … (cut)") }
