// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/apitest"
)

// The class files in evicting have onClassRemoved: evict for the resource of pod scope. The class files in withoutFast
// lack class fast of this resource, and are otherwise the same.
var (
	evicting    = strings.Replace(apitest.Files, "  scope: pod\n", "  scope: pod\n  onClassRemoved: evict\n", 1)
	withoutFast = strings.ReplaceAll(strings.ReplaceAll(evicting, "{name: fast}", "{name: slow}"), "[fast]", "[slow]")
)

func TestListAssignmentsReportsEvictionTargets(t *testing.T) {
	f := newFixture(t)
	load := func(files string) {
		t.Helper()
		must(t, f.Load(t.Context(), files))
	}

	load(evicting)
	f.mustRun(t, "default", "web", "vendor.example/network=fast", "main")
	f.mustRun(t, "other", "batch", "vendor.example/network=fast", "main")
	load(withoutFast)
	eviction := func(namespace, pod string) *qosv1alpha1.Eviction {
		return &qosv1alpha1.Eviction{
			PodUid: "uid-" + pod, Namespace: namespace, Pod: pod, Resource: apitest.Network, Class: "fast", Reason: "ClassRemoved",
			Message: "pod " + namespace + "/" + pod +
				`: class "fast" of vendor.example/network was removed from the class files, and its resource has onClassRemoved: evict`,
		}
	}

	web, batch := eviction("default", "web"), eviction("other", "batch")
	for _, test := range []struct {
		name    string
		request *qosv1alpha1.ListAssignmentsRequest
		want    []*qosv1alpha1.Eviction
	}{
		{"of all pods", &qosv1alpha1.ListAssignmentsRequest{}, []*qosv1alpha1.Eviction{web, batch}},
		{"of a namespace", &qosv1alpha1.ListAssignmentsRequest{Namespace: "other"}, []*qosv1alpha1.Eviction{batch}},
		{"of a UID", &qosv1alpha1.ListAssignmentsRequest{PodUid: "uid-web"}, []*qosv1alpha1.Eviction{web}},
	} {
		t.Run(test.name, func(t *testing.T) {
			list, err := f.client.ListAssignments(t.Context(), test.request)
			must(t, err)
			if diff := cmp.Diff(test.want, list.GetEvictions(), protocmp.Transform()); diff != "" {
				t.Errorf("evictions differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAStreamReportsTheEndOfEvictions(t *testing.T) {
	f := newFixture(t)
	stream, err := f.client.WatchAssignments(t.Context(), &qosv1alpha1.WatchAssignmentsRequest{})
	must(t, err)

	f.mustRun(t, "default", "web", "vendor.example/network=fast", "main")
	for _, step := range []struct {
		files     string
		evictions int
	}{{evicting, 0}, {withoutFast, 1}, {evicting, 0}} {
		must(t, f.Load(t.Context(), step.files))
		for got := -1; got != step.evictions; {
			response, err := stream.Recv()
			must(t, err)
			got = len(response.GetAssignments().GetEvictions())
		}
	}
}
