// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulsets

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/replicated"
	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

// outcome has the steps of an object after a reconcile, and the number of replicas of its StatefulSet. `missing` is true if there is no
// StatefulSet.
type outcome struct {
	steps    []step
	replicas int
	missing  bool
}

// statusOf returns the new status of an object.
func statusOf(object *nodeqosv1alpha1.StatefulSetVolumes, o outcome) nodeqosv1alpha1.StatefulSetVolumesStatus {
	status := nodeqosv1alpha1.StatefulSetVolumesStatus{
		ObservedGeneration: object.Generation, Conditions: slices.Clone(object.Status.Conditions),
	}
	for _, template := range object.Spec.VolumeClaimTemplates {
		status.VolumeClaimTemplates = append(status.VolumeClaimTemplates, o.template(template.Name, object))
	}
	for _, c := range o.conditions() {
		c.ObservedGeneration = object.Generation
		meta.SetStatusCondition(&status.Conditions, c)
	}
	return status
}

// template returns the status of a claim template. If the StatefulSet is missing, FinishedReconciliationGeneration
// does not change.
func (o outcome) template(name string, object *nodeqosv1alpha1.StatefulSetVolumes) nodeqosv1alpha1.VolumeClaimTemplateStatus {
	status, complete := nodeqosv1alpha1.VolumeClaimTemplateStatus{TemplateName: name}, !o.missing
	for _, s := range o.steps {
		switch {
		case s.template != name:
		case s.phase == ready:
			status.ReadyReplicas++
		default:
			complete = false
		}
	}

	if complete {
		status.FinishedReconciliationGeneration = object.Generation
		return status
	}
	for _, before := range object.Status.VolumeClaimTemplates {
		if before.TemplateName == name {
			status.FinishedReconciliationGeneration = before.FinishedReconciliationGeneration
		}
	}
	return status
}

// conditions returns the conditions Ready and Stalled. Their message names the volume that needs the most attention.
func (o outcome) conditions() []metav1.Condition {
	if o.missing {
		const message = "there is no StatefulSet with the name of this object"
		return conditionsOf(metav1.ConditionFalse, metav1.ConditionFalse, nodeqosv1alpha1.ReasonNoStatefulSet, message)
	}
	if worst := slices.IndexFunc(o.steps, func(s step) bool { return s.phase != ready }); worst < 0 {
		message := fmt.Sprintf("the volumes of all replicas are ready (%d)", o.replicas)
		return conditionsOf(metav1.ConditionTrue, metav1.ConditionFalse, nodeqosv1alpha1.ReasonAllReplicasReady, message)
	}

	worst := slices.MaxFunc(o.steps, func(a, b step) int { return cmp.Compare(a.phase, b.phase) }) // the first one of several
	message := worst.message
	if worst.claim != "" {
		message = "claim " + worst.claim + ": " + message
	}
	message = printable.Text(fmt.Sprintf("the volumes of %d of %d replicas are ready; %s", o.readyReplicas(), o.replicas, message), replicated.MaxNote)
	stalled := metav1.ConditionFalse
	if worst.phase.stalled() {
		stalled = metav1.ConditionTrue
	}
	return conditionsOf(metav1.ConditionFalse, stalled, worst.phase.reason(), message)
}

func conditionsOf(isReady, stalled metav1.ConditionStatus, reason, message string) []metav1.Condition {
	return []metav1.Condition{
		{Type: nodeqosv1alpha1.ConditionVolumesReady, Status: isReady, Reason: reason, Message: message},
		{Type: nodeqosv1alpha1.ConditionVolumesStalled, Status: stalled, Reason: reason, Message: message},
	}
}

// readyReplicas returns the number of replicas all of whose volumes are ready.
func (o outcome) readyReplicas() int {
	templates, counts := map[string]bool{}, map[string]int{}
	for _, s := range o.steps {
		templates[s.template] = true
		if s.phase == ready {
			counts[s.template]++
		}
	}
	least := o.replicas
	for name := range templates {
		least = min(least, counts[name])
	}
	return least
}

func (p phase) reason() string {
	switch p { //nolint:exhaustive // the controller waits in the other phases
	case noTemplate:
		return nodeqosv1alpha1.ReasonNoTemplate
	case invalidSize:
		return nodeqosv1alpha1.ReasonInvalidSize
	case tooMany:
		return nodeqosv1alpha1.ReasonTooManyVolumes
	case notAllowed:
		return nodeqosv1alpha1.ReasonExpansionNotAllowed
	case refused:
		return nodeqosv1alpha1.ReasonPatchRefused
	case failed:
		return nodeqosv1alpha1.ReasonVolumeFailed
	}
	return nodeqosv1alpha1.ReasonWaiting
}
