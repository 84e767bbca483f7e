// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
)

// conditions makes the API's conditions of the plugin's, one of each type, as the API demands it.
func conditions(told []*qosv1alpha1.Condition, before []metav1.Condition, now time.Time) []metav1.Condition {
	all := make([]metav1.Condition, 0, len(told))
	for _, t := range told {
		all = append(without(all, t.GetType()), dated(condition(t), before, now))
	}
	return all
}

func condition(told *qosv1alpha1.Condition) metav1.Condition {
	made := metav1.Condition{Type: told.GetType(), Status: metav1.ConditionFalse, Reason: told.GetReason(), Message: cut(told.GetMessage(), longestMessage)}
	if told.GetHealthy() {
		made.Status = metav1.ConditionTrue
	}
	if made.Reason == "" { // the node API needs none when all is well, Kubernetes does
		made.Reason = "AsExpected"
	}
	if told.GetLastTransitionTime() != nil {
		made.LastTransitionTime = metav1.NewTime(told.GetLastTransitionTime().AsTime())
	}
	return made
}

// dated gives a condition the time of its last transition: the one that it had before if its status is still the same, else its own, else now.
func dated(condition metav1.Condition, before []metav1.Condition, now time.Time) metav1.Condition {
	if condition.LastTransitionTime.IsZero() {
		condition.LastTransitionTime = metav1.NewTime(now)
	}
	for _, b := range before {
		if b.Type != condition.Type || b.Status != condition.Status {
			continue
		}
		condition.LastTransitionTime = b.LastTransitionTime
		// The message of a connection error may differ at every attempt.
		if condition.Reason == nodeqosv1alpha1.ReasonNotAnswering && b.Reason == nodeqosv1alpha1.ReasonNotAnswering {
			condition.Message = b.Message
		}
	}
	condition.LastTransitionTime = seconds(condition.LastTransitionTime.Time)
	return condition
}

func without(conditions []metav1.Condition, kind string) []metav1.Condition {
	return slices.DeleteFunc(conditions, func(c metav1.Condition) bool { return c.Type == kind })
}

// cut gives the first bytes of a text, no more than limit, and says so when some are left off.
func cut(text string, limit int) string { return kubeapi.Cut(text, limit, "…") }
