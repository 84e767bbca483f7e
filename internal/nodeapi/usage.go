// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/node/usage"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// These constants are the times between two messages of WatchUsage.
const (
	minUsageInterval     = time.Second
	defaultUsageInterval = 10 * time.Second
)

func (s *service) WatchUsage(r *qosv1alpha1.WatchUsageRequest, stream grpc.ServerStreamingServer[qosv1alpha1.WatchUsageResponse]) error {
	interval := defaultUsageInterval
	if r.GetInterval() != nil {
		interval = max(minUsageInterval, r.GetInterval().AsDuration())
	}
	closed := make(chan struct{})
	close(closed)

	for {
		sample, err := s.node.Usage(stream.Context())
		if err != nil {
			return status.Errorf(codes.Unavailable, "the usage cannot be measured now: %v", err)
		}
		if err := stream.Send(UsageOf(sample)); err != nil {
			return err
		}
		if err := s.wait(stream.Context(), closed, interval); err != nil {
			return err
		}
	}
}

// UsageOf returns the message for a sample.
func UsageOf(sample usage.Sample) *qosv1alpha1.WatchUsageResponse {
	message := &qosv1alpha1.WatchUsageResponse{Time: timestamppb.New(sample.Time)}
	for _, c := range sample.Classes {
		message.Classes = append(message.Classes, &qosv1alpha1.ClassUsage{
			Resource: c.Resource, Class: c.Class, Measurements: measurementsOf(c.Reading),
		})
	}
	for _, h := range sample.Holders {
		if h.Volume != "" { // ContainerUsage has no volume
			continue
		}
		message.Containers = append(message.Containers, &qosv1alpha1.ContainerUsage{
			Resource: h.Resource, Class: h.Class, PodUid: h.PodUID, Namespace: h.PodNamespace, Pod: h.PodName,
			Container: h.Container, Id: h.ID, Measurements: measurementsOf(h.Reading),
		})
	}
	return message
}

// measurementsOf returns the values of a reading, ordered by name and part.
func measurementsOf(reading classes.Reading) []*qosv1alpha1.Measurement {
	ordered := slices.SortedFunc(maps.Keys(reading), func(a, b classes.Series) int {
		return cmp.Or(strings.Compare(a.Measure, b.Measure), strings.Compare(a.Part, b.Part))
	})
	messages := make([]*qosv1alpha1.Measurement, 0, len(ordered))
	for _, series := range ordered {
		messages = append(messages, &qosv1alpha1.Measurement{Name: series.Measure, Part: series.Part, Value: reading[series]})
	}
	return messages
}
