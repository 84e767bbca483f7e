// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
)

const (
	// InEffect separates the problems from the classes in effect, in the message of the condition
	// qos.noderesource.dev/Assigned. A condition that is True has no problems.
	InEffect = "; in effect: "
	// systemDefault stands for the empty class in messages.
	systemDefault = "system default"
	// beginNote precedes two notes in messages: the stale properties of a class, and the reason why its effect is
	// limited.
	beginNote = " ["
)

// ClassName returns the name of a class for messages. The system default has no name, so ClassName returns "system
// default".
func ClassName(class string) string { return cmp.Or(class, systemDefault) }

// AssignedText describes the class of a resource in the message of the condition. `foreign` is what another program
// has set in place of a class, and `source` is the source of the class. `stale` lists the properties of the class for
// which the container has other values. `limited` describes why the class does not have its full effect. Each of these
// four may be "".
func AssignedText(resource, class, foreign, source, stale, limited string) string {
	text := resource + " " + cmp.Or(foreign, ClassName(class))
	if source != "" {
		text += " (" + source + ")"
	}
	if stale != "" {
		text += beginNote + "stale: " + stale + "]"
	}
	if limited != "" {
		text += beginNote + limited + "]"
	}
	return text
}

// AssignedCondition returns the pod's condition qos.noderesource.dev/Assigned, or nil if the pod does not have it.
func AssignedCondition(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == nodeqosv1alpha1.PodConditionAssigned {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// Assigned reads what AssignedText wrote for a container, or for the pod itself if `container` is "". `found` is false if the
// condition does not have the resource.
func Assigned(condition *corev1.PodCondition, container, resource string) (class, foreign, source string, found bool) {
	if condition == nil {
		return "", "", "", false
	}
	text := condition.Message
	if condition.Status != corev1.ConditionTrue {
		at := strings.LastIndex(text, InEffect)
		if at < 0 {
			return "", "", "", false
		}
		text = text[at+len(InEffect):]
	}

	for part := range strings.SplitSeq(text, "; ") {
		list, _ := strings.CutPrefix(part, cmp.Or(container, "pod")+": ")
		for item := range strings.SplitSeq(list, ", ") {
			value, is := strings.CutPrefix(item, resource+" ")
			if !is || list == part {
				continue
			}
			value, _, _ = strings.Cut(value, beginNote)
			class, source, _ = strings.Cut(strings.TrimSuffix(value, ")"), " (")
			switch {
			case class == systemDefault:
				return "", "", source, true
			case strings.Contains(class, " "): // names of classes have no spaces
				return "", class, source, true
			}
			return class, "", source, true
		}
	}
	return "", "", "", false
}
