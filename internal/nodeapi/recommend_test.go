// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/internal/node/recommend"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeapi"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

func TestRecommendationsAreConverted(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	c := history.Container{ID: "c", PodUID: "u", Namespace: "shop", Pod: "db", Name: "main"}
	report := recommend.Report{Recommendations: []recommend.Recommendation{
		{Container: c, Resource: "r", Present: "slow", Problem: "too little"},
		{
			Container: c, Resource: "s", From: at, To: at.Add(time.Hour), Points: 5, Full: true, Mutable: true,
			Advice: recommend.Advice{Outcome: recommend.Add, Class: "new", Left: 0.3, Held: true, Figures: []recommend.Figure{{
				Name: "limit", Series: classes.Series{Measure: "m", Part: "p"}, Need: 1, Most: 2, Bound: 3, Close: 0.4, Held: 0.5,
			}}},
			ClassFile: map[string]any{"kind": "QOSClassConfig"},
		},
	}}
	file, err := structpb.NewStruct(map[string]any{"kind": "QOSClassConfig"})
	if err != nil {
		t.Fatal(err)
	}
	want := &qosv1alpha1.RecommendResponse{Recommendations: []*qosv1alpha1.ClassRecommendation{
		{Namespace: "shop", Pod: "db", PodUid: "u", Container: "main", Resource: "r", PresentClass: "slow", Problem: "too little"},
		{
			Namespace: "shop", Pod: "db", PodUid: "u", Container: "main", Resource: "s", From: timestamppb.New(at), To: timestamppb.New(at.Add(time.Hour)),
			Outcome: "add", Class: "new", Left: 0.3, Held: true, Full: true, Mutable: true, ClassFile: file,
			Figures: []*qosv1alpha1.ClassFigure{{Limit: "limit", Name: "m", Part: "p", Need: 1, Most: 2, Bound: 3, Close: 0.4, Held: 0.5}},
		},
	}}
	got, err := nodeapi.RecommendationsOf(report)
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
