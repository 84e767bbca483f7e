// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package statefulsets resizes the volumes of StatefulSets, as KEP-0661 describes it. It reads StatefulSetVolumes objects, and patches
// the claims of the pods of the StatefulSet with the same name.
package statefulsets

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
)

// phase is how far the volume of one replica is.
type phase int

const (
	// `ready` means that the volume has the requested size and class.
	ready phase = iota
	// changing means that the external-resizer, the driver or the kubelet is working.
	changing
	// patchable means that the claim can be patched now.
	patchable
	// queued means that an earlier replica comes first.
	queued
	// pending means that the pod or the claim is not in a state in which the volume may be changed.
	pending
	// noTemplate means that the StatefulSet has no such claim template.
	noTemplate
	// invalidSize means that the object requests a size that does not match the pattern.
	invalidSize
	// tooMany means that the StatefulSet has too many volumes.
	tooMany
	// notAllowed means that the StorageClass does not allow the expansion.
	notAllowed
	// refused means that the API server has refused the patch of the claim.
	refused
	// failed means that the driver has reported a failure.
	failed
)

// stalled reports whether a person has to act.
func (p phase) stalled() bool { return p >= noTemplate }

// step is the state of the volume of one replica and one claim template, and the change that it needs.
type step struct {
	template, claim string
	phase           phase
	// message is the reason for a phase other than ready.
	message string
	// modify is true if the step is about the VolumeAttributesClass and not about the size.
	modify bool
	// patch is set in the phase patchable.
	patch patch
}

// patch is a change of the spec of a claim. It has only what changes.
type patch struct {
	claim   *corev1.PersistentVolumeClaim
	storage *resource.Quantity
	class   string
}

// snapshot has the objects that determine the state of a StatefulSet's volumes.
type snapshot struct {
	set *appsv1.StatefulSet
	// pods and claims have the objects in the namespace of the StatefulSet, by name.
	pods   map[string]*corev1.Pod
	claims map[string]*corev1.PersistentVolumeClaim
	// expandable has the names of the StorageClasses that allow expansion.
	expandable map[string]bool
}

// plan returns the state of the volumes of all replicas, in the order of the replicas. With the policy OrderedReady, it has patches for
// at most one replica: the first one whose pod is not ready or whose volumes are not. With Parallel, it has all patches.
func plan(s snapshot, spec nodeqosv1alpha1.StatefulSetVolumesSpec) (steps []step) {
	templates := slices.DeleteFunc(slices.Clone(spec.VolumeClaimTemplates), func(t nodeqosv1alpha1.VolumeClaimTemplate) bool {
		problem, message := s.check(t)
		if message != "" {
			steps = append(steps, step{template: t.Name, phase: problem, message: message})
		}
		return message != ""
	})
	if len(templates) == 0 {
		return steps
	}

	blocker := "" // the first replica that is not settled, if replicas are changed in order
	for pod := range replicas(s.set) {
		settled := podReady(s.pods[pod])
		for i := range templates {
			next := s.step(pod, &templates[i])
			if blocker != "" && next.phase == patchable {
				next = step{template: next.template, claim: next.claim, phase: queued, message: "waits for pod " + blocker}
			}
			settled = settled && next.phase == ready
			steps = append(steps, next)
		}
		if !settled && blocker == "" && s.set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement {
			blocker = pod
		}
	}
	return steps
}

// check returns why no volume of a template can be changed, or "".
func (s snapshot) check(t nodeqosv1alpha1.VolumeClaimTemplate) (problem phase, message string) {
	known := slices.ContainsFunc(s.set.Spec.VolumeClaimTemplates, func(c corev1.PersistentVolumeClaim) bool { return c.Name == t.Name })
	switch {
	case len(s.set.Spec.VolumeClaimTemplates) > maxTemplates:
		return tooMany, fmt.Sprintf("StatefulSet %s has more than %d claim templates; patch its claims by other means", s.set.Name, maxTemplates)
	case !known:
		return noTemplate, fmt.Sprintf("StatefulSet %s has no claim template %q; correct the name", s.set.Name, t.Name)
	case t.Storage == nil && t.VolumeAttributesClassName == "": // the API server accepts no such template; see readObject
		return invalidSize, fmt.Sprintf("the storage of template %q must be a size without an exponent, e.g. 100Gi", t.Name)
	case tooManyVolumes(s.set):
		const message = "StatefulSet %s has %d replicas with %d claim templates, which is more than %d volumes; patch its claims by other means"
		return tooMany, fmt.Sprintf(message, s.set.Name, replicaCount(s.set), len(s.set.Spec.VolumeClaimTemplates), nodeqosv1alpha1.MaxVolumes)
	}
	return ready, ""
}

func tooManyVolumes(set *appsv1.StatefulSet) bool {
	return len(set.Spec.VolumeClaimTemplates) > maxTemplates || replicaCount(set)*max(1, len(set.Spec.VolumeClaimTemplates)) > nodeqosv1alpha1.MaxVolumes
}

func replicaCount(set *appsv1.StatefulSet) int {
	if set.Spec.Replicas == nil {
		return 1
	}
	return int(*set.Spec.Replicas)
}

// replicas yields the names of the pods that a StatefulSet should have.
func replicas(set *appsv1.StatefulSet) iter.Seq[string] {
	start := 0
	if set.Spec.Ordinals != nil {
		start = int(set.Spec.Ordinals.Start)
	}
	return func(yield func(string) bool) {
		for i := range replicaCount(set) {
			if !yield(fmt.Sprintf("%s-%d", set.Name, start+i)) {
				return
			}
		}
	}
}

// step returns the state of the volume of one replica and template. It ignores the state of other replicas.
func (s snapshot) step(pod string, template *nodeqosv1alpha1.VolumeClaimTemplate) step {
	result := step{template: template.Name, claim: template.Name + "-" + pod}
	claim := s.claims[result.claim]
	switch {
	case claim == nil || claim.DeletionTimestamp != nil:
		result.phase, result.message = pending, "the claim does not exist or is being deleted"
		return result
	case claim.Status.Phase != corev1.ClaimBound:
		result.phase, result.message = pending, "the claim is not bound to a volume"
		return result
	}

	change := patchOf(claim, template)
	switch {
	case change.storage != nil && !s.allowsExpansion(claim, change.storage):
		result.phase = notAllowed
		result.message = fmt.Sprintf("StorageClass %q does not allow expansion; set its field allowVolumeExpansion, if the driver can expand volumes",
			className(claim))
	case change.storage != nil || change.class != "":
		if reason := s.unavailable(pod, result.claim, template.Name); reason != "" {
			result.phase, result.message = pending, reason
			return result
		}
		result.phase, result.message, result.patch = patchable, "the change is requested", change
	default:
		result.phase, result.message, result.modify = progress(claim, template)
	}
	return result
}

// patchOf returns the change that a claim needs. It makes a claim smaller only if the expansion that this controller has requested has
// failed, and only to a size above the capacity of the volume (KEP-1790). A claim that somebody has made larger by hand stays as it is.
func patchOf(claim *corev1.PersistentVolumeClaim, template *nodeqosv1alpha1.VolumeClaimTemplate) patch {
	change := patch{claim: claim}
	if wanted := template.Storage; wanted != nil {
		requested := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		recovers := expansionFailure(claim) != "" && requestedHere(claim) && wanted.Cmp(claim.Status.Capacity[corev1.ResourceStorage]) > 0
		if order := wanted.Cmp(requested); order > 0 || order < 0 && recovers {
			change.storage = wanted
		}
	}
	if class := template.VolumeAttributesClassName; class != "" {
		if present := claim.Spec.VolumeAttributesClassName; present == nil || *present != class {
			change.class = class
		}
	}
	return change
}

// requestedHere reports whether this controller was the last one to change the requested size of a claim.
func requestedHere(claim *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(claim.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		var fields struct {
			Spec struct {
				Resources struct {
					Requests map[string]any `json:"f:requests"`
				} `json:"f:resources"`
			} `json:"f:spec"`
		}
		if entry.Manager != fieldManager || entry.Subresource != "" || entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			return false
		}
		_, owned := fields.Spec.Resources.Requests["f:"+string(corev1.ResourceStorage)]
		return owned
	})
}

// allowsExpansion reports whether a claim may request a size. It may always request less than before.
func (s snapshot) allowsExpansion(claim *corev1.PersistentVolumeClaim, size *resource.Quantity) bool {
	return s.expandable[className(claim)] || size.Cmp(claim.Spec.Resources.Requests[corev1.ResourceStorage]) < 0
}

func className(claim *corev1.PersistentVolumeClaim) string {
	if claim.Spec.StorageClassName == nil {
		return ""
	}
	return *claim.Spec.StorageClassName
}

// progress returns the phase of a claim whose spec has the requested size and class.
func progress(claim *corev1.PersistentVolumeClaim, template *nodeqosv1alpha1.VolumeClaimTemplate) (now phase, message string, modify bool) {
	if wanted := template.Storage; wanted != nil && wanted.Cmp(claim.Status.Capacity[corev1.ResourceStorage]) > 0 {
		if failure := expansionFailure(claim); failure != "" {
			return failed, "the driver cannot expand the volume: " + failure, false
		}
		switch claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] { //nolint:exhaustive // the driver works in the other states
		case corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress:
			return changing, "the kubelet has to expand the volume; if this lasts, delete the pod, because some drivers expand volumes only then", false
		}
		return changing, "the driver has to expand the volume", false
	}

	class, current, status := template.VolumeAttributesClassName, claim.Status.CurrentVolumeAttributesClassName, claim.Status.ModifyVolumeStatus
	switch {
	case class == "" || current != nil && *current == class:
		return ready, "", false
	case status != nil && status.Status == corev1.PersistentVolumeClaimModifyVolumeInfeasible:
		return failed, "the driver cannot give the volume the class: " + condition(claim, corev1.PersistentVolumeClaimVolumeModifyVolumeError), true
	}
	message = "the driver has to give the volume the class " + class
	if reason := condition(claim, corev1.PersistentVolumeClaimVolumeModifyVolumeError); reason != "" {
		message += ": " + reason
	}
	return changing, message, true
}

// expansionFailure returns why the expansion of a volume has failed, or "".
func expansionFailure(claim *corev1.PersistentVolumeClaim) string {
	for _, kind := range []corev1.PersistentVolumeClaimConditionType{
		corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError,
	} {
		if message := condition(claim, kind); message != "" {
			return message
		}
	}
	switch status := claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]; status { //nolint:exhaustive // the other states are no failures
	case corev1.PersistentVolumeClaimControllerResizeInfeasible, corev1.PersistentVolumeClaimNodeResizeInfeasible:
		return string(status)
	}
	return ""
}

// condition returns the message of a condition that is True, or its type if it has no message, or "".
func condition(claim *corev1.PersistentVolumeClaim, kind corev1.PersistentVolumeClaimConditionType) string {
	for _, c := range claim.Status.Conditions {
		switch {
		case c.Type != kind || c.Status != corev1.ConditionTrue:
		case c.Message == "":
			return string(kind)
		default:
			return strings.Join(strings.Fields(c.Message), " ") // one line
		}
	}
	return ""
}
