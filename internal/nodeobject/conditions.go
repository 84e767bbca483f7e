// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
)

// conditions converts the plugin's conditions to Kubernetes conditions. The API requires that each condition type
// occurs only once.
func conditions(reported []*qosv1alpha1.Condition, before []metav1.Condition, now time.Time) []metav1.Condition {
	all := make([]metav1.Condition, 0, len(reported))
	for _, r := range reported {
		all = append(without(all, r.GetType()), dated(condition(r), before, now))
	}
	return all
}

func condition(r *qosv1alpha1.Condition) metav1.Condition {
	c := metav1.Condition{Type: r.GetType(), Status: metav1.ConditionFalse, Reason: r.GetReason(), Message: cut(r.GetMessage(), longestMessage)}
	if r.GetHealthy() {
		c.Status = metav1.ConditionTrue
	}
	if c.Reason == "" { // the reason is optional in the node API, but required in Kubernetes
		c.Reason = "AsExpected"
	}
	if r.GetLastTransitionTime() != nil {
		c.LastTransitionTime = metav1.NewTime(r.GetLastTransitionTime().AsTime())
	}
	return c
}

// dated sets the time of a condition's last transition. If the condition had the same status before, dated keeps the
// earlier time. Otherwise it uses the condition's own time. If the condition has no time, it uses now.
func dated(c metav1.Condition, before []metav1.Condition, now time.Time) metav1.Condition {
	if c.LastTransitionTime.IsZero() {
		c.LastTransitionTime = metav1.NewTime(now)
	}
	if b := meta.FindStatusCondition(before, c.Type); b != nil && b.Status == c.Status {
		c.LastTransitionTime = b.LastTransitionTime
		// The message of a connection error may be different at every attempt, so the earlier message is kept.
		if c.Reason == nodeqosv1alpha1.ReasonNotAnswering && b.Reason == c.Reason {
			c.Message = b.Message
		}
	}
	c.LastTransitionTime = seconds(c.LastTransitionTime.Time)
	return c
}

func without(conditions []metav1.Condition, kind string) []metav1.Condition {
	return slices.DeleteFunc(conditions, func(c metav1.Condition) bool { return c.Type == kind })
}

func cut(text string, limit int) string { return kubeapi.Cut(text, limit, "…") }
