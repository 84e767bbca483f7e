// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAMirrorPodHasTheUIDOfItsStaticPod(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "mirror"}}
	if got := UID(pod); got != "mirror" {
		t.Errorf("the UID is %s, want that of the pod", got)
	}
	pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "static"}
	if got := UID(pod); got != "static" {
		t.Errorf("the UID is %s, want that of the static pod", got)
	}
}
