// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"encoding/json"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/node/blame"
	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
)

// Blame implements the node API.
func (s *service) Blame(ctx context.Context, r *qosv1alpha1.BlameRequest) (*qosv1alpha1.BlameResponse, error) {
	report, err := s.node.Blame(ctx, blame.Request{
		Selection: history.Selection{Namespace: r.GetNamespace(), Pod: r.GetPod(), PodUID: r.GetPodUid(), Container: r.GetContainer()},
		Since:     r.GetSince().AsDuration(),
	})
	if err != nil {
		return nil, historyError(err)
	}
	return messageOf(report, &qosv1alpha1.BlameResponse{})
}

// Recommend implements the node API.
func (s *service) Recommend(ctx context.Context, r *qosv1alpha1.RecommendRequest) (*qosv1alpha1.RecommendResponse, error) {
	report, err := s.node.Recommend(ctx, history.Selection{
		Namespace: r.GetNamespace(), Pod: r.GetPod(), PodUID: r.GetPodUid(), Container: r.GetContainer(),
	})
	if err != nil {
		return nil, historyError(err)
	}
	return messageOf(report, &qosv1alpha1.RecommendResponse{})
}

// messageOf fills a message with a report. A report has the same JSON form as its message.
func messageOf[M proto.Message](report any, message M) (M, error) {
	data, err := json.Marshal(report)
	if err == nil {
		err = protojson.Unmarshal(data, message)
	}
	if err != nil {
		err = status.Errorf(codes.Internal, "the report cannot be sent: %v", err)
	}
	return message, err
}

// historyError returns the error of a method that answers from the history.
func historyError(err error) error {
	code := codes.FailedPrecondition
	switch {
	case errors.Is(err, history.ErrUnknown):
		code = codes.NotFound
	case errors.Is(err, history.ErrAmbiguous), errors.Is(err, history.ErrInvalid):
		code = codes.InvalidArgument
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	}
	return status.Error(code, err.Error())
}
