// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// transitions records when each condition last changed its status. The times are kept in memory only, so they are
// lost at a restart.
type transitions struct {
	now func() time.Time

	mu    sync.Mutex
	since map[conditionKey]transition
}

// conditionKey identifies a condition. `resource` is empty for a condition of the plugin as a whole. `class` is empty
// unless it is a condition of a class.
type conditionKey struct{ resource, class, conditionType string }

type transition struct {
	healthy bool
	at      *timestamppb.Timestamp
}

func newTransitions(now func() time.Time) *transitions {
	return &transitions{now: now, since: map[conditionKey]transition{}}
}

// date calls `get`, and sets the transition times of all conditions in the returned status. It forgets conditions that
// the status does not have. It holds the lock while it calls `get`, so that concurrent calls process statuses in the
// order in which they were read.
func (t *transitions) date(get func() *qosv1alpha1.StatusResponse) *qosv1alpha1.StatusResponse {
	t.mu.Lock()
	defer t.mu.Unlock()

	status, now := get(), timestamppb.New(t.now())
	next := map[conditionKey]transition{}
	dateAll := func(resource, class string, conditions []*qosv1alpha1.Condition) {
		for _, c := range conditions {
			key := conditionKey{resource, class, c.GetType()}
			at, known := t.since[key]
			if !known || at.healthy != c.GetHealthy() {
				at = transition{healthy: c.GetHealthy(), at: now}
			}
			next[key] = at
			c.LastTransitionTime = at.at
		}
	}

	dateAll("", "", status.GetConditions())
	for _, r := range status.GetResources().All() {
		dateAll(r.GetName(), "", r.GetConditions())
		for _, class := range r.GetClasses() {
			dateAll(r.GetName(), class.GetName(), class.GetConditions())
		}
	}

	t.since = next
	return status
}
