// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/node/blame"
	"github.com/qos-nri/qos-nri-plugin/internal/node/claims"
	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/internal/node/kernel"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/internal/node/usage"
	"github.com/qos-nri/qos-nri-plugin/internal/reports"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Node is the part of *node.Node that the API uses.
type Node interface {
	Status() state.Status
	BlockedCalls() []kernel.BlockedCall
	Assignments() []state.PodAssignments
	Refused() []state.Refused
	Evictions() []state.Eviction
	Runtime() state.RuntimeInfo
	Container(owner qos.Subject) (state.ContainerAssignments, bool)
	// Changed returns a channel that is closed at the next change of the node's state.
	Changed() <-chan struct{}
	Update(ctx context.Context, owner qos.Subject, requests map[string]string) error
	ReportEnforcement(owner qos.Subject, report state.EnforcementReport) error
	SetClaims(ctx context.Context, claimed claims.Claims) error
	Usage(ctx context.Context) (usage.Sample, error)
	Blame(ctx context.Context, r blame.Request) (reports.Blame, error)
	Recommend(ctx context.Context, s history.Selection) (reports.Recommendations, error)
}

type service struct {
	qosv1alpha1.UnimplementedNodeQOSServer

	node        Node
	plugin      *qosv1alpha1.PluginInfo
	transitions *transitions
	stopping    chan struct{} // closed when the server stops
}

func newService(n Node, version string) *service {
	return &service{
		node:        n,
		plugin:      &qosv1alpha1.PluginInfo{Version: version, StartedAt: timestamppb.New(time.Now())},
		transitions: newTransitions(time.Now),
		stopping:    make(chan struct{}),
	}
}

func (s *service) Status(context.Context, *qosv1alpha1.StatusRequest) (*qosv1alpha1.StatusResponse, error) {
	return s.status(), nil
}

func (s *service) status() *qosv1alpha1.StatusResponse {
	return s.transitions.date(func() *qosv1alpha1.StatusResponse {
		return statusOf(s.node.Status(), s.node.BlockedCalls(), s.plugin)
	})
}

func (s *service) Watch(_ *qosv1alpha1.WatchRequest, stream grpc.ServerStreamingServer[qosv1alpha1.WatchResponse]) error {
	return watch(stream.Context(), s, s.status, func(state *qosv1alpha1.StatusResponse) error {
		return stream.Send(&qosv1alpha1.WatchResponse{Status: state})
	})
}

func (s *service) ListAssignments(
	_ context.Context, r *qosv1alpha1.ListAssignmentsRequest,
) (*qosv1alpha1.ListAssignmentsResponse, error) {
	return s.assignments(r.GetNamespace(), r.GetPodUid()), nil
}

func (s *service) assignments(namespace, podUID string) *qosv1alpha1.ListAssignmentsResponse {
	// Read Synchronized before the assignments, so that the list is at least as new as this flag.
	list := &qosv1alpha1.ListAssignmentsResponse{Synchronized: s.node.Runtime().Synchronized}
	selected := func(ofNamespace, ofPod string) bool {
		return (namespace == "" || ofNamespace == namespace) && (podUID == "" || ofPod == podUID)
	}

	for _, pod := range s.node.Assignments() {
		if selected(pod.Namespace, pod.UID) {
			list.Pods = append(list.Pods, podOf(pod))
		}
	}
	for _, r := range s.node.Refused() {
		if selected(r.PodNamespace, r.Subject.PodUID) {
			list.Refusals = append(list.Refusals, refusalOf(r))
		}
	}
	for _, e := range s.node.Evictions() {
		if selected(e.PodNamespace, e.Subject.PodUID) {
			list.Evictions = append(list.Evictions, evictionOf(e))
		}
	}
	return list
}

func (s *service) WatchAssignments(
	r *qosv1alpha1.WatchAssignmentsRequest, stream grpc.ServerStreamingServer[qosv1alpha1.WatchAssignmentsResponse],
) error {
	get := func() *qosv1alpha1.ListAssignmentsResponse { return s.assignments(r.GetNamespace(), r.GetPodUid()) }
	return watch(stream.Context(), s, get, func(state *qosv1alpha1.ListAssignmentsResponse) error {
		return stream.Send(&qosv1alpha1.WatchAssignmentsResponse{Assignments: state})
	})
}

func (s *service) UpdateContainerQOSResources(
	ctx context.Context, r *qosv1alpha1.UpdateContainerQOSResourcesRequest,
) (*qosv1alpha1.UpdateContainerQOSResourcesResponse, error) {
	requests, err := requestsOf(r)
	if err != nil {
		return nil, err
	}

	owner := qos.Subject{PodUID: r.GetPodUid(), Container: r.GetContainer()}
	if err := s.node.Update(ctx, owner, requests); err != nil {
		return nil, statusError(err)
	}

	ctr, ok := s.node.Container(owner)
	if !ok {
		return nil, status.Errorf(codes.NotFound, "%s ended right after the change of its classes", owner)
	}
	return &qosv1alpha1.UpdateContainerQOSResourcesResponse{Container: containerOf(ctr)}, nil
}

// requestsOf checks whether a change is well-formed, and maps the canonical names of its resources to the requested classes. It
// does not check whether the node offers these classes, because the node checks this when it changes the classes.
func requestsOf(r *qosv1alpha1.UpdateContainerQOSResourcesRequest) (map[string]string, error) {
	switch {
	case r.GetPodUid() == "":
		return nil, status.Error(codes.InvalidArgument, "pod_uid is required")
	case len(r.GetQosResources()) == 0:
		return nil, status.Error(codes.InvalidArgument, "qos_resources is required; pass at least one resource with its new class")
	}

	requests := make(map[string]string, len(r.GetQosResources()))
	for _, wanted := range r.GetQosResources() {
		name := classes.CanonicalResource(wanted.GetName())
		if _, twice := requests[name]; twice {
			return nil, status.Errorf(codes.InvalidArgument, "resource %s is named twice", name)
		}
		requests[name] = wanted.GetClass()
	}
	return requests, nil
}

// statusError converts the error of a change into a gRPC error with the code that the API documents, and a message of one line.
func statusError(err error) error {
	return status.Error(codeOf(err), strings.ReplaceAll(err.Error(), "\n", "; "))
}

func codeOf(err error) codes.Code {
	for _, known := range []struct {
		err  error
		code codes.Code
	}{
		{state.ErrNotFound, codes.NotFound},
		{state.ErrNotRunning, codes.FailedPrecondition},
		{state.ErrNotExternal, codes.FailedPrecondition},
		{state.ErrOtherClass, codes.FailedPrecondition},
		{state.ErrNotEnforcer, codes.PermissionDenied},
		{state.ErrImmutable, codes.FailedPrecondition},
		{classes.ErrUnavailable, codes.FailedPrecondition},
		{classes.ErrRuntimeHandler, codes.FailedPrecondition},
		{classes.ErrClassFull, codes.ResourceExhausted},
		{classes.ErrUnknownResource, codes.InvalidArgument},
		{classes.ErrUnknownClass, codes.InvalidArgument},
		{classes.ErrContradiction, codes.InvalidArgument},
		{classes.ErrBadRequest, codes.InvalidArgument},
		{state.ErrNotConnected, codes.Unavailable},
		{state.ErrRuntimeBusy, codes.Unavailable},
		{state.ErrUnanswered, codes.DeadlineExceeded},
		{context.Canceled, codes.Canceled},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
	} {
		if errors.Is(err, known.err) {
			return known.code
		}
	}
	return codes.Internal
}
