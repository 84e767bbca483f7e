// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// transitions remembers since when conditions are as they are, in memory only: it begins anew with the process.
type transitions struct {
	now func() time.Time

	mu    sync.Mutex
	since map[conditionKey]transition
}

// conditionKey names a condition; resource is empty for those of the plugin.
type conditionKey struct{ resource, conditionType string }

type transition struct {
	healthy bool
	at      *timestamppb.Timestamp
}

func newTransitions(now func() time.Time) *transitions {
	return &transitions{now: now, since: map[conditionKey]transition{}}
}

// date sets the transition times of all conditions in the status that look returns. Conditions that are gone are
// forgotten. It looks under its lock, so that no older state is dated after a newer one.
func (t *transitions) date(look func() *qosv1alpha1.StatusResponse) *qosv1alpha1.StatusResponse {
	t.mu.Lock()
	defer t.mu.Unlock()
	status := look()
	now := timestamppb.New(t.now())
	seen := map[conditionKey]transition{}
	dateAll := func(resource string, conditions []*qosv1alpha1.Condition) {
		for _, c := range conditions {
			key := conditionKey{resource, c.GetType()}
			at, known := t.since[key]
			if !known || at.healthy != c.GetHealthy() {
				at = transition{healthy: c.GetHealthy(), at: now}
			}
			seen[key] = at
			c.LastTransitionTime = at.at
		}
	}
	dateAll("", status.GetConditions())
	for _, r := range status.GetResources().GetPodQosResources() {
		dateAll(r.GetName(), r.GetConditions())
	}
	for _, r := range status.GetResources().GetContainerQosResources() {
		dateAll(r.GetName(), r.GetConditions())
	}
	t.since = seen
	return status
}
