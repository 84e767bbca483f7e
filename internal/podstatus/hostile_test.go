// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/bubble"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// hostileMirrorOf returns a pod whose annotation falsely states that it is the mirror pod of another pod.
func hostileMirrorOf(victim string) *corev1.Pod {
	p := pod("hostile")
	p.Annotations[corev1.MirrorPodAnnotationKey] = "uid-" + victim
	return p
}

func TestAFalseMirrorPodGetsNoEventsOfAnotherPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster(t, pod("web"), hostileMirrorOf("web"))
		r.plugin.set(nil, "web=gold")
		r.start(both())
		defer r.stop()
		r.annotate("hostile", "rdt=silver") // so that it is reconciled before web, which changes 300 ms later
		bubble.Pass(300 * time.Millisecond)
		r.plugin.set(nil, "web=silver")
		bubble.Pass(5 * time.Second)
		r.wantEvents("after a change", "Normal QOSClassChanged x1 web: main: k8s.io/rdt gold -> silver")
	})
}

// TestDeletingAFalseMirrorPodKeepsTheStateOfAnotherPod: the plugin has refused a change of pod web. The publisher must remember this when
// the false mirror pod is deleted, and must not request the change again.
func TestDeletingAFalseMirrorPodKeepsTheStateOfAnotherPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster(t, pod("web"), hostileMirrorOf("web"))
		r.plugin.set(nil, "web=gold")
		var updates atomic.Int32
		follow := both()
		follow.FollowAnnotations = true
		follow.Update = func(context.Context, *qosv1alpha1.UpdateContainerQOSResourcesRequest) error {
			updates.Add(1)
			return status.Error(codes.InvalidArgument, "no")
		}

		r.start(follow)
		defer r.stop()
		r.annotate("web", "rdt=silver")
		bubble.Pass(time.Minute)
		must.Do(t, r.client.CoreV1().Pods("default").Delete(t.Context(), "hostile", metav1.DeleteOptions{}))

		bubble.Pass(time.Minute)
		r.plugin.set(refusal(1, time.Now(), time.Now()), "web=gold") // a refusal makes the publisher reconcile pod web
		bubble.Pass(time.Minute)
		if got := updates.Load(); got != 1 {
			t.Errorf("%d updates, want one, because the refused request is the same", got)
		}
	})
}
