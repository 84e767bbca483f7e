// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// How the shim on the node tells of pods. These are internal/podstatus's, which is for Linux alone; a test holds them together.
const (
	assignedType        = corev1.PodConditionType(classes.Domain + "/Assigned")
	reasonChangeRefused = "ChangeRefused"
	shimManager         = "qos-kubelet-shim"
)

// subject is a container of a pod and a resource; in pod scope without the container.
type subject struct{ container, resource string }

// assignment is a class that something has, as it was told.
type assignment struct {
	class  string
	source classes.Source
}

// inEffect is the part of a message before what a pod has in spite of a refusal.
const inEffect = "in effect: "

// toldBy reads from a pod's condition who has which class: the text that the shim writes, which is sooner there than the holders of
// the node. What is not understood, or was cut, is left out.
func toldBy(condition *corev1.PodCondition) map[subject]assignment {
	told := map[subject]assignment{}
	if condition == nil {
		return told
	}
	text := condition.Message
	if condition.Status != corev1.ConditionTrue {
		_, text, _ = strings.Cut(text, "; "+inEffect)
	}
	for part := range strings.SplitSeq(text, "; ") {
		name, list, _ := strings.Cut(part, ": ")
		for item := range strings.SplitSeq(list, ", ") {
			resource, class, ok := strings.Cut(item, " ")
			if !ok || !strings.Contains(resource, "/") {
				continue
			}
			told[subject{name, resource}] = readAssignment(class)
		}
	}
	return told
}

// readAssignment reads "gold (allocated)".
func readAssignment(text string) assignment {
	class, source, _ := strings.Cut(text, " (")
	if class == "system default" {
		class = classes.SystemDefault
	}
	return assignment{class, classes.Source(strings.TrimSuffix(source, ")"))}
}

// assignedCondition is the condition by which the shim tells which classes a pod has.
func assignedCondition(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == assignedType {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// holding is what a node tells of one subject.
type holding struct {
	classes []string
	// omitted says that the node does not name all holders, so that who is not named may hold a class all the same.
	omitted bool
}

// holdingOf looks for a pod, or one of its containers, among the holders of the classes of a resource.
func holdingOf(node *nodeqosv1alpha1.NodeQOSResources, pod *corev1.Pod, s subject) holding {
	var found holding
	for _, r := range scopedResources(node) {
		if r.Name != s.resource {
			continue
		}
		for i := range r.Classes {
			class := &r.Classes[i]
			found.omitted = found.omitted || class.HoldersOmitted > 0
			for _, h := range class.Holders {
				if h.Namespace == pod.Namespace && h.Pod == pod.Name && h.Container == s.container {
					found.classes = append(found.classes, class.Name)
				}
			}
		}
	}
	return found
}

// writtenAt is when the shim last wrote something of an object; zero if that is not known.
func writtenAt(object *metav1.ObjectMeta) time.Time {
	var last time.Time
	for _, entry := range object.ManagedFields {
		if entry.Manager == shimManager && entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}
