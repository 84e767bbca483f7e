// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/node/blame"
	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeapi"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

func TestWithoutAHistoryBothSocketsSayHowToGetOne(t *testing.T) {
	r := newReadOnly(t)
	for _, api := range []qosv1alpha1.NodeQOSClient{qosv1alpha1.NewNodeQOSClient(r.all), qosv1alpha1.NewNodeQOSClient(r.read)} {
		_, blamed := api.Blame(t.Context(), &qosv1alpha1.BlameRequest{Namespace: "default", Pod: "web"})
		_, recommended := api.Recommend(t.Context(), &qosv1alpha1.RecommendRequest{Namespace: "default", Pod: "web"})
		for method, err := range map[string]error{"Blame": blamed, "Recommend": recommended} {
			if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "--history-interval") {
				t.Errorf("%s: error is %v, want code FailedPrecondition and the flag", method, err)
			}
		}
	}
}

func TestAReportIsConverted(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	wrote, high := classes.Series{Measure: history.WrittenBytes, Part: "sda"}, classes.Series{Measure: history.HighEvents}
	report := blame.Report{From: at, To: at.Add(time.Hour), Sufferers: []blame.Sufferer{{
		Container: history.Container{ID: "c", PodUID: "u", Namespace: "shop", Pod: "db", Name: "main"},
		Findings: []blame.Finding{{
			Kind: blame.IO, Part: "sda", From: at.Add(time.Second), To: at.Add(time.Minute), Before: 0.1, During: 0.6, Always: true,
			Own: []blame.Own{{Reason: blame.OwnMemoryLimit, Series: high, Before: 1, During: 2, Limit: 3}},
			Culprits: []blame.Culprit{{
				Container: history.Container{PodUID: "v", Namespace: "batch", Pod: "job", Name: "work"}, Series: wrote, Before: 4, During: 5, Share: 0.7,
				Correlation: 0.8, Ended: true,
				Suggestion: &blame.Suggestion{Offer: blame.Offer{Resource: "r", Class: "slow", Name: "l", Series: wrote, Bound: 9, Mutable: true, Pod: true}},
			}},
		}},
	}}}
	want := &qosv1alpha1.BlameResponse{From: timestamppb.New(at), To: timestamppb.New(at.Add(time.Hour)), Sufferers: []*qosv1alpha1.Sufferer{{
		Namespace: "shop", Pod: "db", PodUid: "u", Container: "main",
		Findings: []*qosv1alpha1.BlameFinding{{
			Resource: "io", Part: "sda", From: timestamppb.New(at.Add(time.Second)), To: timestamppb.New(at.Add(time.Minute)), Before: 0.1, During: 0.6,
			Always: true,
			Own:    []*qosv1alpha1.OwnCause{{Reason: "memory-limit", Name: "memory_high_events_total", Before: 1, During: 2, Limit: 3}},
			Culprits: []*qosv1alpha1.Culprit{{
				Namespace: "batch", Pod: "job", PodUid: "v", Container: "work", Name: "fs_writes_bytes_total", Part: "sda", Before: 4, During: 5,
				Share: 0.7, Correlation: 0.8, Ended: true,
				Suggestion: &qosv1alpha1.ClassSuggestion{Resource: "r", Class: "slow", Limit: "l", Bound: 9, Mutable: true, Pod: true},
			}},
		}},
	}}}
	if diff := cmp.Diff(want, nodeapi.BlameOf(report), protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
