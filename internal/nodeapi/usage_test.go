// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/apitest"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
)

// TestUsageIsStreamed increases the usage and ends the container between the first and the second message. The class keeps
// the usage of the ended container.
func TestUsageIsStreamed(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, "default", "web", "rdt=gold", "main")
	f.Backends[apitest.RDT].Use("id-web-main", 100)
	stream, err := f.client.WatchUsage(t.Context(), &qosv1alpha1.WatchUsageRequest{Interval: durationpb.New(0)})
	must(t, err)

	used := func(bytes float64) []*qosv1alpha1.Measurement {
		return []*qosv1alpha1.Measurement{{Name: nodetest.Used, Value: bytes}}
	}

	container := func(resource, class string, bytes float64) *qosv1alpha1.ContainerUsage {
		return &qosv1alpha1.ContainerUsage{
			Resource: resource, Class: class, PodUid: "uid-web", Namespace: "default", Pod: "web", Container: "main", Id: "id-web-main", Measurements: used(bytes),
		}
	}

	pod := &qosv1alpha1.ContainerUsage{Resource: apitest.Network, PodUid: "uid-web", Namespace: "default", Pod: "web", Id: "sandbox-web", Measurements: used(0)}
	message := func(gold float64, containers ...*qosv1alpha1.ContainerUsage) *qosv1alpha1.WatchUsageResponse {
		return &qosv1alpha1.WatchUsageResponse{Time: timestamppb.Now(), Containers: containers, Classes: []*qosv1alpha1.ClassUsage{
			{Resource: apitest.RDT, Class: "gold", Measurements: used(gold)},
			{Resource: apitest.BlockIO, Measurements: used(0)},
			{Resource: apitest.Network, Measurements: used(0)},
		}}
	}

	for _, want := range []*qosv1alpha1.WatchUsageResponse{
		message(100, container(apitest.RDT, "gold", 100), container(apitest.BlockIO, "", 0), pod),
		message(150, pod),
	} {
		got, err := stream.Recv()
		must(t, err)
		if diff := cmp.Diff(want, got, whenever); diff != "" {
			t.Errorf("usage (-want +got):\n%s", diff)
		}
		f.Backends[apitest.RDT].Use("id-web-main", 150)
		f.Stop("id-web-main")
	}
}
