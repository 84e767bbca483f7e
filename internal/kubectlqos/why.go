// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/qos-nri/qos-nri-plugin/internal/podspec"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// state describes whether a container or pod has a class, and whether this class is known.
type state int

const (
	notRunning state = iota // nothing runs, so nothing is in effect
	inClass                 // the container or pod has a class or the system default
	notKnown                // the container or pod runs in an unknown class
)

// reportTime is the maximum time until a node reports the class of a new container.
const reportTime = time.Minute

// effective returns which class of the resource a container or pod has, and whether this class is known. It takes the newer
// of the node's report and the pod's condition. If the report is complete and has no class, the class is the system default.
// If the node reports two classes, effective prefers the wanted class.
func (v *podView) effective(c containerView, resource, wanted string) (assignment, state) {
	alive, started := v.alive(c)
	held := holdingsOf(v.node, v.pod, c, resource)
	has, listed := held.pick(wanted)
	incomplete := held.omitted || v.now.Sub(started) < reportTime && wanted != classes.SystemDefault
	said, isSaid := conditionOf(v.pod, c, resource)

	switch {
	case podspec.Finished(v.pod):
		return assignment{}, notRunning
	case alive && isSaid && (v.node == nil || v.reportDelayed() || !listed && incomplete):
		return said, inClass
	case listed:
		return has, inClass
	case !alive:
		return assignment{}, notRunning
	case v.node == nil, incomplete:
		return assignment{}, notKnown
	case isSaid && said.class == classes.SystemDefault:
		return said, inClass // the condition also has the source
	}
	return assignment{}, inClass
}

// conditionOf returns the class that the condition qos.noderesource.dev/Assigned has for a container or pod. The condition may
// be newer than the node's report, and a user who may not read NodeQOSResources can still read the condition.
func conditionOf(pod *corev1.Pod, c containerView, resource string) (has assignment, ok bool) {
	if c.Volume != "" {
		return assignment{}, false
	}
	class, foreign, source, ok := podspec.Assigned(podspec.AssignedCondition(pod), c.Container, resource)
	return assignment{class: class, foreign: foreign, source: classes.Source(source)}, ok
}

// alive reports whether a container, or the pod as a whole, runs, and since when it runs.
func (v *podView) alive(c containerView) (alive bool, since time.Time) {
	if c.Container == "" {
		if v.pod.Status.StartTime != nil {
			since = v.pod.Status.StartTime.Time
		}
		return hasSandbox(v.pod), since
	}

	if c.status == nil || c.status.State.Running == nil {
		return false, since
	}
	return true, c.status.State.Running.StartedAt.Time
}

// hasSandbox reports whether a pod has a sandbox. The sandbox may have no containers.
func hasSandbox(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning || slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue
	})
}

// why returns a reason and a message if a container does not have the wanted class, will be evicted, or has a state
// that may be outdated. Otherwise, it returns empty strings. `satisfied` is true if the container has the wanted class.
func (v *podView) why(c containerView, want classes.Assignment, has assignment, is state, satisfied bool) (reason, message string) {
	switch {
	case podspec.Finished(v.pod):
		return v.ending(want.Key)
	case v.pod.Spec.NodeName == "":
		return v.notScheduled()
	case satisfied && has.evicted != "":
		return has.evicted, "the class is no longer configured, and the pod will be evicted"
	case satisfied && has.draining && asks(&want):
		return "Draining", "the class was removed from the class files of the node; the pod keeps the class until the pod ends, and a pod that " +
			"replaces it cannot get the class on this node; change the request, or add the class again"
	case satisfied:
		return v.stale()
	case v.pod.DeletionTimestamp != nil:
		return v.ending(want.Key)
	case is == notRunning && !asks(&want) && want.Class == classes.SystemDefault:
		return "", "" // nothing is requested
	}
	if refusal := refusalOf(v.node, v.pod, c); refusal != nil {
		return refusal.Reason, refusal.Message
	}

	switch is {
	case notRunning:
		reason, message := notCreated(c)
		if v.node == nil || v.node.Status.RefusalsOmitted > 0 || v.reportDelayed() {
			message = v.withCondition(message)
		}
		return reason, message
	case notKnown:
		return v.unknown()
	case inClass:
	}
	return v.differs(c, want, has)
}

// ending returns the reason why a pod has ended or is ending, and a message, for the row of one request. The parameter `key`
// is the request's key. If the pod's message names extended resources of classes, but not the one in `key`, ending returns
// empty strings.
func (v *podView) ending(key string) (reason, message string) {
	message = v.pod.Status.Message
	if named := v.extendedIn(message); len(named) > 0 && !slices.Contains(named, keyText(key)) {
		return "", ""
	}

	switch {
	case v.pod.Status.Reason != "":
		return v.pod.Status.Reason, message
	case podspec.Finished(v.pod):
		return string(v.pod.Status.Phase), message
	}
	return "Terminating", "the pod is being deleted"
}

// extendedIn returns those words in `text` that name the extended resource of a class.
func (v *podView) extendedIn(text string) []string {
	words := strings.FieldsFunc(text, func(c rune) bool { return unicode.IsSpace(c) || strings.ContainsRune(`,;:"'()`, c) })
	for i := range words {
		words[i] = strings.TrimRight(words[i], ".")
	}
	return slices.DeleteFunc(words, func(word string) bool {
		_, _, ok := classBehind(v.offers, word)
		return !ok
	})
}

func (v *podView) notScheduled() (reason, message string) {
	for _, c := range v.pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			return c.Reason, c.Message
		}
	}
	return "Pending", "the pod has no node yet"
}

// stale returns the reason why the displayed state may be old, and a message. Both are empty if the state is current.
func (v *podView) stale() (reason, message string) {
	if v.node == nil {
		return "", ""
	}
	if reason, text := notCurrent(v.node, v.now); reason != "" {
		return reason, "last known state: " + text
	}
	return "", ""
}

func notCreated(c containerView) (reason, message string) {
	switch {
	case c.status == nil:
		return "NotCreated", ""
	case c.status.State.Waiting != nil:
		return c.status.State.Waiting.Reason, c.status.State.Waiting.Message
	case c.status.State.Terminated != nil:
		return c.status.State.Terminated.Reason, c.status.State.Terminated.Message
	}
	return "NotCreated", ""
}

func (v *podView) unknown() (reason, message string) {
	if v.node == nil {
		return "NodeNotReported", v.withCondition("no NodeQOSResources of " + v.pod.Spec.NodeName + " can be read; check that qos-kubelet-shim runs there")
	}
	if reason, message := v.stale(); reason != "" {
		return reason, message
	}
	return "NotReported", v.withCondition(
		`the container or pod has just started, or its node does not list all containers and pods that have classes; see "qos-nri-plugin assignments" on the node`)
}

// withCondition adds the message of the pod's condition qos.noderesource.dev/Assigned, which may have the reason.
func (v *podView) withCondition(message string) string {
	if condition := podspec.AssignedCondition(v.pod); condition != nil {
		message = strings.TrimSpace(message + " (condition of the pod: " + condition.Message + ")")
	}
	return message
}

// differs returns the reason why the class of a running container differs from the requested class, and a message.
func (v *podView) differs(c containerView, want classes.Assignment, has assignment) (reason, message string) {
	switch {
	case c.Volume != "" && v.reportDelayed():
		return "NotReported", v.withCondition("the node's report is older than the latest change")
	case c.Volume != "":
		return "NotEnforced", "the limits of the class are not in force; if the request was added after the container started, " +
			"recreate the pod; otherwise see the log of qos-nri-plugin"
	case has.source == classes.SourceUpdate:
		return "Changed", "the class was changed at run time; a new container gets the class that the pod requests"
	case has.source == classes.SourceAdopted:
		return "Adopted", "qos-nri-plugin could not move the container or pod from this class; its log has the reason"
	case want.Source == classes.SourceContainer || want.Source == classes.SourcePod:
		if v.node == nil || v.node.Status.FollowsAnnotations {
			return "NotFollowed", "the class was requested after the container started, and is not applied yet"
		}
		return "NotFollowed", "the class was requested after the container started; qos-kubelet-shim runs " +
			"without --follow-annotations, so the request applies only to new pods"
	}
	return "CreatedBefore", "the container or pod was created before qos-nri-plugin started or these class files were applied; recreate the pod"
}

// reportDelayed reports whether the pod's condition qos.noderesource.dev/Assigned is newer than the NodeQOSResources.
// The shim may write the pod's condition first, so the classes and refusals in the NodeQOSResources may be outdated.
func (v *podView) reportDelayed() bool {
	condition, written := podspec.AssignedCondition(v.pod), writtenAt(&v.pod.ObjectMeta)
	return condition != nil && v.now.Sub(written) < reportTime && !written.Before(writtenAt(&v.node.ObjectMeta))
}
