// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestANodeOffersAClassInOnlyOneWay(t *testing.T) {
	for amount, want := range map[string]string{"0": "", "2": "the node still offers qos.noderesource.dev/rdt.gold by a device plugin"} {
		d := newDriver(t, t.TempDir(), state(goldAndSilver()))
		d.client = fake.NewClientset(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: node},
			Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{"qos.noderesource.dev/rdt.gold": resource.MustParse(amount)}},
		})
		err := d.offeredOtherwise(t.Context())
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("with %s devices the error is %v, want %q", amount, err, want)
		}
	}
}
