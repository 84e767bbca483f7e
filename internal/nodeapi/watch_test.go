// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

func TestWatchSendsTheStateAndThenItsChanges(t *testing.T) {
	f := newFixture(t)
	stream, err := f.client.Watch(t.Context(), &qosv1alpha1.WatchRequest{})
	must(t, err)

	goldInUse := func() uint64 {
		t.Helper()
		response, err := stream.Recv()
		must(t, err)
		return response.GetStatus().GetResources().GetContainerQosResources()[0].GetClasses()[0].GetInUse()
	}

	if got := goldInUse(); got != 0 {
		t.Errorf("%d slots of gold are in use in the beginning, want 0", got)
	}

	f.mustRun(t, "default", "web", "rdt=gold", "main")
	if got := goldInUse(); got != 1 {
		t.Errorf("%d in use, want 1", got)
	}

	f.Stop("id-web-main")
	if got := goldInUse(); got != 0 {
		t.Errorf("%d slots of gold are in use in the end, want 0", got)
	}
}

func TestWatchAssignmentsReportsTheNamespaceOnly(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, "other", "theirs", "", "main")
	f.mustRun(t, "mine", "web", "", "main")
	stream, err := f.client.WatchAssignments(t.Context(), &qosv1alpha1.WatchAssignmentsRequest{Namespace: "mine"})
	must(t, err)

	response, err := stream.Recv()
	must(t, err)

	if pods := response.GetAssignments().GetPods(); len(pods) != 1 || pods[0].GetName() != "web" {
		t.Errorf("pods are %v, want web", pods)
	}
}

func TestAWatchThatReadsLateGetsTheLatestState(t *testing.T) {
	f := newFixture(t)
	stream, err := f.client.WatchAssignments(t.Context(), &qosv1alpha1.WatchAssignmentsRequest{})
	must(t, err)

	f.mustRun(t, "default", "first", "", "main")
	f.mustRun(t, "default", "last", "", "main")
	for seen := 0; ; {
		response, err := stream.Recv()
		must(t, err)
		pods := len(response.GetAssignments().GetPods())
		if pods < seen {
			t.Fatalf("a message has %d pods, the message before it had %d", pods, seen)
		}
		if seen = pods; seen == 2 {
			return
		}
	}
}

func TestTheEndOfTheServerEndsStreamsWithUnavailable(t *testing.T) {
	f := newFixture(t)
	stream, err := f.client.Watch(t.Context(), &qosv1alpha1.WatchRequest{})
	must(t, err)

	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}

	ended := make(chan error, 1)
	go func() { _, err := stream.Recv(); ended <- err }()
	f.served.End()
	if err := <-ended; status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "qos-nri-plugin is stopping") {
		t.Errorf("the stream ended with %v, want code Unavailable, from the server", err)
	}
}
