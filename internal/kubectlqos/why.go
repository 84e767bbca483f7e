// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// state is what is known of a class in effect.
type state int

const (
	notRunning state = iota // nothing runs, so nothing is in effect
	inClass                 // it has the class, or the system default
	notKnown                // it runs, in which class is not told
)

// newsTime is how long the news of a container's class may take to be told.
const newsTime = time.Minute

// effective says which class a container, or a pod, has of a resource: what the node tells, or the pod's condition, whichever is newer;
// else the system default.
func (v *podView) effective(c containerView, resource string) (assignment, state) {
	if finished(v.pod) {
		return assignment{}, notRunning
	}
	alive, started := v.alive(c)
	told, isTold := v.toldOf(subject{c.name, resource})
	held := holding{}
	if v.node != nil {
		held = holdingOf(v.node, v.pod, subject{c.name, resource})
	}
	newer := v.node == nil || writtenAt(&v.pod.ObjectMeta).After(writtenAt(&v.node.ObjectMeta))
	switch {
	case isTold && alive && (newer || held.omitted && len(held.classes) == 0):
		return told, inClass
	case isTold && slices.Contains(held.classes, told.class):
		return told, inClass
	case len(held.classes) > 0:
		return assignment{class: held.classes[0]}, inClass
	case !alive:
		return assignment{}, notRunning
	case v.node == nil, held.omitted, !isTold && v.now.Sub(started) < newsTime && v.mayHaveClass(c, resource):
		return assignment{}, notKnown
	}
	return assignment{source: told.source}, inClass
}

func (v *podView) toldOf(s subject) (assignment, bool) {
	if s.container == "" {
		s.container = "pod"
	}
	told, is := v.told[s]
	return told, is
}

// mayHaveClass says whether a class is asked for, or a default, so that news of it may be under way.
func (v *podView) mayHaveClass(c containerView, resource string) bool {
	wanted, err := v.catalog.Resolve(requestOf(v.offers, v.pod, c.name))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(wanted, func(a classes.Assignment) bool { return a.Resource == resource && a.Class != classes.SystemDefault })
}

// alive says whether a container runs, and since when.
func (v *podView) alive(c containerView) (alive bool, since time.Time) {
	if c.name == "" {
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

// hasSandbox says whether a pod is there, though perhaps none of its containers.
func hasSandbox(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning || slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue
	})
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// why says why something has not the class that it should have, in a word and a sentence; nothing when all is well.
func (v *podView) why(c containerView, want classes.Assignment, has assignment, is state, satisfied bool) (reason, message string) {
	switch {
	case finished(v.pod):
		return v.ending()
	case v.pod.Spec.NodeName == "":
		return v.notScheduled()
	case satisfied:
		return v.stale()
	case is == notRunning && !asks(want) && want.Class == classes.SystemDefault:
		return "", "" // nothing is missing
	}
	if reason, message := v.refusalOf(c.name); reason != "" {
		return reason, message
	}
	switch is {
	case notRunning:
		return notCreated(c)
	case notKnown:
		return v.unknown()
	case inClass:
	}
	return v.differs(want, has)
}

func (v *podView) ending() (reason, message string) {
	if v.pod.Status.Reason != "" {
		return v.pod.Status.Reason, v.pod.Status.Message
	}
	return string(v.pod.Status.Phase), v.pod.Status.Message
}

func (v *podView) notScheduled() (reason, message string) {
	for _, c := range v.pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			return c.Reason, c.Message
		}
	}
	return "Pending", "it has no node yet"
}

// stale says that what is shown is what was known last, if it is.
func (v *podView) stale() (reason, message string) {
	if v.node == nil {
		return "", ""
	}
	ready := readyCondition(v.node)
	if ready == nil || ready.Status == metav1.ConditionTrue {
		return "", ""
	}
	return "PluginAway", fmt.Sprintf("known last: qos-nri-plugin of %s is away since %s", v.node.Name, timeText(&ready.LastTransitionTime))
}

// refusalOf reads from the pod's condition why a container, or the pod, was refused its classes.
func (v *podView) refusalOf(container string) (reason, message string) {
	condition := assignedCondition(v.pod)
	if condition == nil || condition.Status == corev1.ConditionTrue {
		return "", ""
	}
	text, _, _ := strings.Cut(condition.Message, "; "+inEffect)
	for of, line := range refusalLines(text, v.pod) {
		if of == container {
			return condition.Reason, line
		}
	}
	return "", ""
}

// containerPart is how the name of a container begins what is said of it.
var containerPart = regexp.MustCompile(`^:? ?container ([a-z0-9-]+): `)

// refusalLines has what a message says, by container; of the pod as a whole with "". Each part begins with the pod's name.
func refusalLines(text string, pod *corev1.Pod) map[string]string {
	lines := map[string]string{}
	name := "pod " + pod.Namespace + "/" + pod.Name
	for part := range strings.SplitSeq(strings.TrimPrefix(text, name), "; "+name) {
		container, line := "", strings.TrimPrefix(part, ": ")
		if found := containerPart.FindStringSubmatch(part); found != nil {
			container, line = found[1], part[len(found[0]):]
		}
		if before := lines[container]; before != "" {
			line = before + "; " + line
		}
		lines[container] = line
	}
	return lines
}

// notCreated is what the kubelet says of a container that does not run.
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
		return "NodeTellsNothing", "there are no NodeQOSResources of " + v.pod.Spec.NodeName + " that can be read; does qos-kubelet-shim run there?"
	}
	if reason, message := v.stale(); reason != "" {
		return reason, message
	}
	return "NotTold", `it has just started, or its node names not all holders; on the node, "qos-nri-plugin assignments" knows`
}

// differs says why what runs is in another class than it asks for.
func (v *podView) differs(want classes.Assignment, has assignment) (reason, message string) {
	switch {
	case has.source == classes.SourceUpdate:
		return "Changed", "its class was changed while it runs; a container that replaces it gets what the pod asks for"
	case has.source == classes.SourceAdopted:
		return "Adopted", "it was in this class when the plugin found it"
	case want.Source == classes.SourceContainer || want.Source == classes.SourcePod:
		return "NotFollowed", "asked for since it runs, and not changed yet; without --follow-annotations of qos-kubelet-shim it counts for new pods only"
	}
	return "CreatedBefore", "it was created when plugin or class files were not as they are now; create it anew"
}

// refusal is what the node's rules say against a request.
func refusal(err *classes.RequestError, anywhere bool) (reason, message string) {
	reason, message = "BadRequest", err.Problem
	for _, known := range []struct {
		is   error
		word string
	}{
		{classes.ErrUnknownResource, "UnknownResource"},
		{classes.ErrUnknownClass, "UnknownClass"},
		{classes.ErrUnavailable, "Unavailable"},
		{classes.ErrContradiction, "Contradiction"},
	} {
		if errors.Is(err, known.is) {
			reason = known.word
		}
	}
	if anywhere {
		message = strings.Replace(message, "on this node", "on any node", 1)
	}
	return reason, message
}
