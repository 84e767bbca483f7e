// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"testing"
	"time"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// TestTransitionTimes checks the hour in which the health of a condition last changed.
func TestTransitionTimes(t *testing.T) {
	healthy, unhealthy, gone := true, false, (*bool)(nil)
	for _, test := range []struct {
		name string
		// states has the health of the condition at the hours 0, 1, 2, … The value nil means that the condition is
		// missing.
		states []*bool
		want   int
	}{
		{"is that of the first status with the condition", []*bool{&healthy}, 0},
		{"stays while health does", []*bool{&unhealthy, &unhealthy, &unhealthy}, 0},
		{"moves when health does", []*bool{&healthy, &unhealthy, &unhealthy}, 1},
		{"moves at every change", []*bool{&healthy, &unhealthy, &healthy}, 2},
		{"is forgotten when the condition is gone", []*bool{&healthy, gone, &healthy}, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			now := time.Unix(0, 0)
			times := newTransitions(func() time.Time { return now })
			var last *qosv1alpha1.Condition
			for hour, state := range test.states {
				now = time.Unix(int64(hour)*3600, 0)
				last = dated(times, state)
			}
			if got := int(last.GetLastTransitionTime().GetSeconds() / 3600); got != test.want {
				t.Errorf("the last transition was at hour %d, want %d", got, test.want)
			}
		})
	}
}

func dated(times *transitions, healthy *bool) *qosv1alpha1.Condition {
	resource := &qosv1alpha1.QOSResourceInfo{Name: "test.example/r"}
	if healthy != nil {
		resource.Conditions = []*qosv1alpha1.Condition{{Type: "Works", Healthy: *healthy}}
	}
	status := times.date(func() *qosv1alpha1.StatusResponse {
		return &qosv1alpha1.StatusResponse{Resources: &qosv1alpha1.ResourcesInfo{PodQosResources: []*qosv1alpha1.QOSResourceInfo{resource}}}
	})
	for _, c := range status.GetResources().GetPodQosResources()[0].GetConditions() {
		return c
	}
	return nil
}
