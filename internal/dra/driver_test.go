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

	"github.com/qos-nri/qos-nri-plugin/test/must"
)

func TestTheDriverNoticesThatADevicePluginStillOffersAClass(t *testing.T) {
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

// TestARetiringDriverServesOnlyPreparedClaims restarts a driver with --retire while a pod has a claim. The retiring
// driver has a socket of its own, because device plugins do not register while a driver serves the usual one.
func TestARetiringDriverServesOnlyPreparedClaims(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t, dir, state(goldAndSilver()))
	c := claim("1", "rdt-gold")
	must.Get(d.prepareOne(t, c))(t)
	retired := newDriver(t, dir, state(goldAndSilver()))
	retired.options.Retire = true
	resources, err := retired.update(state(goldAndSilver()), false)
	if err != nil || len(resources.Pools[node].Slices[0].Devices) > 0 {
		t.Errorf("a driver that retires offers %+v, %v", resources, err)
	}
	if retired.socket() == d.socket() {
		t.Error("a retiring driver has the usual socket, so the device plugins do not register")
	}
	if devices, err := retired.prepareOne(t, c); err != nil || devices["request-0"] != goldDevice {
		t.Errorf("the claim of a running pod gets %v, %v", devices, err)
	}
	if devices, err := retired.prepareOne(t, claim("2", "rdt-gold")); err == nil || !strings.Contains(err.Error(), "this node offers its classes by device plugins now") {
		t.Errorf("a new claim gets %v, %v", devices, err)
	}
	if err := retired.unprepareOne(t, c); err != nil || len(retired.record.claims) > 0 {
		t.Errorf("unprepare returned %v and left the claims %v, want none", err, retired.record.claims)
	}
}
