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

// assignment is the class of one resource that a container or pod has.
type assignment struct {
	class string
	// `foreign` describes the values that another program has set in place of a class, e.g. "resctrl group batch". It
	// is empty if there is a class.
	foreign string
	source  classes.Source
	// device has the numbers of the devices that have a volume's limits. `since` has the time when
	// these limits were put in force.
	device string
	since  *metav1.Time
	// evicted has the reason why the pod is to be evicted. It is empty if the pod is not to be evicted.
	evicted string
	// draining is true if the class was removed from the class files of the node.
	draining bool
}

// isDecidedByNode reports whether a rule of the class file, or the runtime handler of the pod, has decided the class. A node does not publish
// its rules and runtime handlers.
func (a assignment) isDecidedByNode() bool {
	return a.source == classes.SourceRuntimeHandler || strings.HasPrefix(string(a.source), string(classes.SourceRule)+" ")
}

// holdings has what a node reports for one resource and one container or pod. It has two assignments if the runtime
// still has the previous instance of a container, and this instance has another class.
type holdings struct {
	assignments []assignment
	// omitted is true if the node does not list all holders. An unlisted container or pod may then have a class.
	omitted bool
}

// holdingsOf returns the classes of a resource that the node reports for a container, a volume of it, or the pod itself.
func holdingsOf(node *nodeqosv1alpha1.NodeQOSResources, pod *corev1.Pod, c containerView, resource string) holdings {
	var found holdings
	if node == nil {
		return found
	}
	for _, r := range node.Status.QOSResources.All() {
		if r.Name != resource {
			continue
		}
		found.omitted = found.omitted || r.ForeignOmitted > 0
		for _, f := range r.Foreign {
			if c.Volume == "" && f.Namespace == pod.Namespace && f.Pod == pod.Name && f.Container == c.Container {
				found.assignments = append(found.assignments, assignment{foreign: f.Setting})
			}
		}
		for i := range r.Classes {
			class := &r.Classes[i]
			found.omitted = found.omitted || class.HoldersOmitted > 0
			for _, h := range class.Holders {
				if h.Namespace == pod.Namespace && h.Pod == pod.Name && h.Container == c.Container && h.Volume == c.Volume {
					found.assignments = append(found.assignments, assignment{
						class: class.Name, source: classes.Source(h.Source), device: h.Device, since: h.Since, evicted: h.Reason,
						draining: class.Draining,
					})
				}
			}
		}
	}
	return found
}

// pick returns the assignment of a class. If there is no assignment of this class, pick returns the first assignment.
func (h *holdings) pick(class string) (picked assignment, ok bool) {
	for _, a := range h.assignments {
		if a.class == class {
			return a, true
		}
	}
	if len(h.assignments) == 0 {
		return assignment{}, false
	}
	return h.assignments[0], true
}

// refusalOf returns the refusal that a node reports for a container, a volume, or the pod itself, or nil. If there are two,
// it returns the refused change, which nodes report first.
func refusalOf(node *nodeqosv1alpha1.NodeQOSResources, pod *corev1.Pod, c containerView) *nodeqosv1alpha1.Refusal {
	if node == nil {
		return nil
	}
	for i := range node.Status.Refusals {
		r := &node.Status.Refusals[i]
		if r.Namespace == pod.Namespace && r.Pod == pod.Name && r.Subject() == c.Subject {
			return r
		}
	}
	return nil
}

// writtenAt returns when qos-kubelet-shim last wrote an object.
func writtenAt(object *metav1.ObjectMeta) time.Time {
	var last time.Time
	for _, entry := range object.ManagedFields {
		if entry.Manager == nodeqosv1alpha1.FieldManager && entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}
