// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeclient"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
)

// TestTheFirstClaimsRegisterThePluginAgain checks that the plugin registers for the pod hooks when the node gets its
// first claims. No class file needs these hooks, but the limits of volumes are set in the cgroups of pods.
func TestTheFirstClaimsRegisterThePluginAgain(t *testing.T) {
	r := newRig(t, files)
	volumes := nodetest.Kind("volumeio", []classes.Scope{classes.VolumeScope}, map[string]*nodetest.Backend{classes.ClaimResource: nodetest.NewBackend()})
	volumes.Claims = nodetest.ClaimedClasses()
	r.more = []classes.Kind{volumes}
	r.start(t)

	conn, err := nodeclient.Connect(r.options.APISocket)
	must(t, err)
	defer func() { _ = conn.Close() }()
	request := &qosv1alpha1.SetVolumeClaimsRequest{Classes: []*qosv1alpha1.VolumeClass{{Name: "gold", MaxReadBps: 2}}}
	if _, err := qosv1alpha1.NewNodeQOSClient(conn).SetVolumeClaims(t.Context(), request); err != nil {
		t.Fatal(err)
	}

	r.synchronized(t, 2)
}
