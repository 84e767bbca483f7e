// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/internal/node/recommend"
)

// Recommend implements the node API.
func (s *service) Recommend(ctx context.Context, r *qosv1alpha1.RecommendRequest) (*qosv1alpha1.RecommendResponse, error) {
	report, err := s.node.Recommend(ctx, history.Selection{
		Namespace: r.GetNamespace(), Pod: r.GetPod(), PodUID: r.GetPodUid(), Container: r.GetContainer(),
	})
	if err != nil {
		return nil, historyError(err)
	}
	response, err := RecommendationsOf(report)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return response, nil
}

// RecommendationsOf returns the message for a report.
func RecommendationsOf(report recommend.Report) (*qosv1alpha1.RecommendResponse, error) {
	response := &qosv1alpha1.RecommendResponse{}
	for i := range report.Recommendations {
		r := &report.Recommendations[i]
		message := &qosv1alpha1.ClassRecommendation{
			Namespace: r.Container.Namespace, Pod: r.Container.Pod, PodUid: r.Container.PodUID, Container: r.Container.Name,
			Resource: r.Resource, PresentClass: r.Present, Problem: r.Problem, Outcome: string(r.Outcome), Class: r.Class,
			Left: r.Left, Held: r.Held, Full: r.Full, Mutable: r.Mutable,
		}
		if !r.From.IsZero() {
			message.From, message.To = timestamppb.New(r.From), timestamppb.New(r.To)
		}
		for _, f := range r.Figures {
			message.Figures = append(message.Figures, &qosv1alpha1.ClassFigure{
				Limit: f.Name, Name: f.Series.Measure, Part: f.Series.Part, Need: f.Need, Most: f.Most, Bound: f.Bound, Close: f.Close, Held: f.Held,
			})
		}
		if r.ClassFile != nil {
			var err error
			if message.ClassFile, err = structpb.NewStruct(r.ClassFile); err != nil {
				return nil, fmt.Errorf("class file for resource %s: %w", r.Resource, err)
			}
		}
		response.Recommendations = append(response.Recommendations, message)
	}
	return response, nil
}
