// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/podstatus"
	"github.com/qos-nri/qos-nri-plugin/test/bubble"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

func TestRefusedChangesArePublishedUntilTheirPodEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster(t, pod("web"))
		r.plugin.set(nil, "web=gold")
		var refused sync.Map // by pod
		r.start(podstatus.Options{
			FollowAnnotations: true,
			Update: func(context.Context, *qosv1alpha1.UpdateContainerQOSResourcesRequest) error {
				return status.Error(codes.ResourceExhausted, "class silver is full")
			},
			RefusedChanges: func(pod string, refusals []nodeqosv1alpha1.Refusal) { refused.Store(pod, refusals) },
		})
		defer r.stop()
		want := func(when string, want ...nodeqosv1alpha1.Refusal) {
			got, _ := refused.Load("default/web")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}

		want("before any change")

		r.annotate("web", "rdt=silver")
		bubble.Pass(time.Minute)
		want("while silver is full", nodeqosv1alpha1.Refusal{
			Namespace: "default", Pod: "web", PodUID: "uid-web", Container: "main", Reason: "ChangeRefused", Message: "class silver is full",
		})

		must.Do(t, r.client.CoreV1().Pods("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))

		bubble.Pass(time.Minute)
		want("after the end of the pod")
	})
}
