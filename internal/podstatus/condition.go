// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/podevents"
	"github.com/qos-nri/qos-nri-plugin/internal/podspec"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// maxMessage is the maximum size of the message of a condition, in bytes. The API server limits only the size of the whole pod.
const maxMessage = 4096

// observed is the state of one pod at one moment.
type observed struct {
	pod *corev1.Pod
	// assignments is nil if the plugin does not know the pod.
	assignments *qosv1alpha1.PodAssignments
	// refusals has a record for each container or pod that was not created. `refusedChanges` has a record for each
	// refused change of a running container or pod. The field Series of a record is the reason.
	refusals, refusedChanges []podevents.Record
	// last maps the name of each container to its latest assignments, even if the container has ended and has not
	// restarted yet.
	last map[string]*qosv1alpha1.ContainerAssignments
}

// condition returns the wanted condition qos.noderesource.dev/Assigned, or nil if the pod's condition must not change.
func (o *observed) condition(now metav1.Time) *corev1.PodCondition {
	current := podspec.AssignedCondition(o.pod)
	effective, ignored := o.effective(), o.ignored()
	want := &corev1.PodCondition{Type: nodeqosv1alpha1.PodConditionAssigned, Status: corev1.ConditionFalse, LastTransitionTime: now}

	switch {
	case len(o.refusals) > 0: // the NodeQOSResources object has the reason of each refusal
		want.Reason = cmp.Or(o.refusals[0].Series, nodeqosv1alpha1.ReasonRefused)
		want.Message = refusedMessage(messagesOf(o.refusals), effective)
	case len(o.refusedChanges) > 0:
		want.Reason = nodeqosv1alpha1.ReasonChangeRefused
		want.Message = refusedMessage(messagesOf(o.refusedChanges), effective)
	case o.assignments != nil && len(ignored) > 0:
		want.Reason = nodeqosv1alpha1.ReasonAnnotationIgnored
		want.Message = refusedMessage(ignored, effective)
	case o.assignments != nil && (o.anyClass() || current != nil || o.pod.Annotations[classes.EffectiveKey] != ""):
		want.Status, want.Reason, want.Message = corev1.ConditionTrue, nodeqosv1alpha1.ReasonAssigned, joinUpTo(effective, maxMessage)
	default:
		return nil
	}

	if current != nil && current.Status == want.Status {
		want.LastTransitionTime = current.LastTransitionTime
	}
	return want
}

func same(current, want *corev1.PodCondition) bool {
	return current != nil && current.Status == want.Status && current.Reason == want.Reason && current.Message == want.Message
}

// anyClass reports whether the pod has any class, or has requested any class or the system default.
func (o *observed) anyClass() bool {
	known := func(a *qosv1alpha1.Assignment) bool {
		return a.GetClass() != "" || a.GetSource() != qosv1alpha1.Source_SOURCE_UNSPECIFIED
	}
	return slices.ContainsFunc(o.assignments.GetQosResources(), known) ||
		slices.ContainsFunc(o.containers(), func(c *qosv1alpha1.ContainerAssignments) bool {
			return slices.ContainsFunc(c.GetQosResources(), known) || len(c.GetVolumes()) > 0
		})
}

// containers returns the assignments of the pod's containers, at most one for each name, in the order of the pod's
// spec. Ephemeral containers come last. Ordinary init containers (not sidecars) are included only while the plugin
// still reports them.
func (o *observed) containers() []*qosv1alpha1.ContainerAssignments {
	var list []*qosv1alpha1.ContainerAssignments
	specified := map[string]bool{}
	add := func(name string, statuses []corev1.ContainerStatus, restarts bool) {
		specified[name] = true
		found := o.find(name, statuses)
		if found == nil && restarts {
			found = o.last[name]
		}
		if found != nil {
			list = append(list, found)
		}
	}

	for i := range o.pod.Spec.InitContainers {
		c := &o.pod.Spec.InitContainers[i]
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		add(c.Name, o.pod.Status.InitContainerStatuses, sidecar)
	}
	for i := range o.pod.Spec.Containers {
		add(o.pod.Spec.Containers[i].Name, o.pod.Status.ContainerStatuses, true)
	}
	for _, c := range o.assignments.GetContainers() {
		if !specified[c.GetName()] {
			list = append(list, c)
		}
	}
	return list
}

// find returns the named container. If the plugin reports both a restarted container and its predecessor, it returns
// the container whose ID is in the pod's status.
func (o *observed) find(name string, statuses []corev1.ContainerStatus) *qosv1alpha1.ContainerAssignments {
	var found *qosv1alpha1.ContainerAssignments
	for _, c := range o.assignments.GetContainers() {
		current := func(s corev1.ContainerStatus) bool {
			return s.Name == name && strings.HasSuffix(s.ContainerID, "://"+c.GetId())
		}
		if c.GetName() == name && (found == nil || slices.ContainsFunc(statuses, current)) {
			found = c
		}
	}
	return found
}

// effective describes the class of every resource, including default classes. It begins with the classes of the pod,
// followed by the classes of each container.
func (o *observed) effective() []string {
	var parts []string
	add := func(name string, assignments []*qosv1alpha1.Assignment) {
		if len(assignments) > 0 {
			parts = append(parts, name+": "+describe(assignments))
		}
	}

	add("pod", o.assignments.GetQosResources())
	for _, c := range o.containers() {
		add(c.GetName(), c.GetQosResources())
		for _, volume := range c.GetVolumes() {
			parts = append(parts, c.GetName()+" volume "+volume.GetPath()+": "+describeVolume(volume))
		}
	}
	return parts
}

func describeVolume(volume *qosv1alpha1.VolumeAssignments) string {
	var names []string
	foreign := ""
	for _, a := range volume.GetQosResources() {
		if a.GetForeign() != "" {
			foreign = ", and another program has set " + a.GetForeign()
		}
		switch {
		case a.GetClass() == "":
		case a.GetSource() == qosv1alpha1.Source_SOURCE_CLAIM:
			names = append(names, a.GetClass()+" of claim "+a.GetRequestedBy())
		default:
			names = append(names, a.GetClass())
		}
	}

	if len(names) == 0 {
		return "not in force"
	}
	return strings.Join(names, " and ") + ", in force on " + cmp.Or(volume.GetDevice(), "unknown devices") + foreign
}

func describe(assignments []*qosv1alpha1.Assignment) string {
	parts := make([]string, 0, len(assignments))
	for _, a := range assignments {
		parts = append(parts, podspec.AssignedText(a.GetName(), a.GetClass(), a.GetForeign(), a.SourceText(), a.GetStale(), a.GetLimited()))
	}
	return strings.Join(parts, ", ")
}

// ignored describes the annotations that request nothing.
func (o *observed) ignored() []string {
	var messages []string
	for _, ignored := range classes.Ignored(o.pod.Annotations, podspec.Containers(o.pod)) {
		messages = append(messages, ignored.Problem)
	}
	return messages
}

func messagesOf(records []podevents.Record) []string {
	var messages []string
	for _, r := range records {
		messages = append(messages, r.Message)
	}
	return messages
}

func refusedMessage(messages, effective []string) string {
	text := cut(strings.Join(messages, "; "), maxMessage/2)
	if len(effective) == 0 {
		return text
	}

	text += podspec.InEffect
	return text + joinUpTo(effective, maxMessage-len(text))
}

// joinUpTo joins parts to a text of at most limit bytes. It omits parts that do not fit, and adds their number.
func joinUpTo(parts []string, limit int) string {
	all := strings.Join(parts, "; ")
	if len(all) <= limit || len(parts) < 2 {
		return cut(all, limit)
	}

	const remark = "; and %d more: see \"qos-nri-plugin assignments\" on the node"
	limit -= len(remark) + 8 // room for the number
	text, used := parts[0], 1
	for ; used < len(parts) && len(text)+2+len(parts[used]) <= limit; used++ {
		text += "; " + parts[used]
	}
	return cut(text, limit) + fmt.Sprintf(remark, len(parts)-used)
}

func cut(text string, limit int) string { return kubeapi.Cut(text, limit, " … (cut)") }
