// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

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
	return BlameOf(report), nil
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

// BlameOf returns the message for a report.
func BlameOf(report blame.Report) *qosv1alpha1.BlameResponse {
	message := &qosv1alpha1.BlameResponse{From: timestamppb.New(report.From), To: timestamppb.New(report.To), IncompleteContainers: uint32(report.Incomplete)}
	for i := range report.Sufferers {
		s := &report.Sufferers[i]
		sufferer := &qosv1alpha1.Sufferer{Namespace: s.Namespace, Pod: s.Pod, PodUid: s.PodUID, Container: s.Name}
		for j := range s.Findings {
			sufferer.Findings = append(sufferer.Findings, findingOf(&s.Findings[j]))
		}
		message.Sufferers = append(message.Sufferers, sufferer)
	}
	return message
}

func findingOf(f *blame.Finding) *qosv1alpha1.BlameFinding {
	message := &qosv1alpha1.BlameFinding{
		Resource: string(f.Kind), Part: f.Part, From: timestamppb.New(f.From), To: timestamppb.New(f.To),
		Before: f.Before, During: f.During, Always: f.Always,
	}
	for _, own := range f.Own {
		message.Own = append(message.Own, &qosv1alpha1.OwnCause{
			Reason: string(own.Reason), Name: own.Series.Measure, Part: own.Series.Part, Before: own.Before, During: own.During, Limit: own.Limit, Pod: own.Pod,
		})
	}
	for i := range f.Culprits {
		c := &f.Culprits[i]
		culprit := &qosv1alpha1.Culprit{
			Namespace: c.Namespace, Pod: c.Pod, PodUid: c.PodUID, Container: c.Name, Name: c.Series.Measure, Part: c.Series.Part,
			Before: c.Before, During: c.During, Share: c.Share, Correlation: c.Correlation, Ended: c.Ended,
		}
		if to := c.Suggestion; to != nil {
			culprit.Suggestion = &qosv1alpha1.ClassSuggestion{
				Resource: to.Resource, Class: to.Class, Limit: to.Name, Bound: to.Bound, Mutable: to.Mutable, Pod: to.Pod,
			}
		}
		message.Culprits = append(message.Culprits, culprit)
	}
	return message
}
