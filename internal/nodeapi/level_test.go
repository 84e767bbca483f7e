// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// alwaysChanged is a node that always reports a change.
type alwaysChanged struct{ Node }

func (alwaysChanged) Changed() <-chan struct{} {
	changed := make(chan struct{})
	close(changed)
	return changed
}

// TestWatchSendsAStateOnlyIfItHasChanged has a node that signals changes all the time.
func TestWatchSendsAStateOnlyIfItHasChanged(t *testing.T) {
	state := func(version string) *qosv1alpha1.StatusResponse {
		return &qosv1alpha1.StatusResponse{Plugin: &qosv1alpha1.PluginInfo{Version: version}}
	}

	seen := []string{"", "", "a", "a", "b", "a"}
	ctx, cancel := context.WithCancel(t.Context())
	look := func() *qosv1alpha1.StatusResponse {
		next := state(seen[0])
		if seen = seen[1:]; len(seen) == 0 {
			cancel()
		}
		return next
	}

	var sent []*qosv1alpha1.StatusResponse
	send := func(s *qosv1alpha1.StatusResponse) error {
		sent = append(sent, s)
		return nil
	}

	if err := watch(ctx, newService(alwaysChanged{}, ""), look, send); err == nil {
		t.Error("the stream ended without an error")
	}

	want := []*qosv1alpha1.StatusResponse{state(""), state("a"), state("b"), state("a")}
	if diff := cmp.Diff(want, sent, protocmp.Transform()); diff != "" {
		t.Errorf("states that were sent differ (-want +got):\n%s", diff)
	}
}
