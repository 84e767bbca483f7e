// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/qos-nri/qos-nri-plugin/internal/unixsocket"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// modifiable has the manifests of a CSI volume with a handle, of its claim, and of a pod on node-1 whose container main runs.
var modifiable = strings.NewReplacer(
	"csi: {driver: topolvm.io}", "csi: {driver: topolvm.io, volumeHandle: handle-1}",
	"spec:\n  nodeName:", "status: {containerStatuses: [{name: main, state: {running: {}}}]}\nspec:\n  nodeName:",
).Replace(manifests)

// nodeWithLimits is the NodeQOSResources object of node-1 while the limits of class silver are in force on the node.
const nodeWithLimits = `metadata: {name: node-1, generation: 2}
spec:
  written: true
  volumeClasses: [{name: silver, maxReadIops: 500, maxWriteIops: 500}]
  volumes:
  - {podUID: u1, container: main, path: /data, claim: a/data, class: silver}
  - {podUID: u1, container: setup, path: /init, claim: a/data, class: silver}
status:
  observedGeneration: 2
  volumes:
  - {podUID: u1, container: main, path: /data, claim: a/data, class: silver, state: InForce}
  - {podUID: u1, container: setup, path: /init, claim: a/data, class: silver, state: NotEnforced, reason: NotRunning}
`

func (c stillController) endpoint() *csiEndpoint {
	return &csiEndpoint{controller: c.controller, driver: "topolvm.io", version: "v1"}
}

// modify requests the limits in the parameters for the volume.
func (c stillController) modify(t *testing.T, parameters map[string]string) error {
	t.Helper()
	request := &csi.ControllerModifyVolumeRequest{VolumeId: "handle-1", MutableParameters: parameters}
	_, err := c.endpoint().ControllerModifyVolume(t.Context(), request)
	return err
}

// TestAVolumeIsModifiedWhenItsLimitsAreInForce: the limits must be in force for the volumes of running containers. Those of other
// containers must have no problem with the limits. `want` is a part of the message if there is a code.
func TestAVolumeIsModifiedWhenItsLimitsAreInForce(t *testing.T) {
	silver := map[string]string{"iops": "500"}
	for _, test := range []struct {
		name       string
		objects    []string // replacements in the manifests
		node       []string // replacements in the object of the node
		parameters map[string]string
		code       codes.Code
		want       string
	}{
		{name: "the limits are in force", parameters: silver},
		{name: "the external-resizer has added metadata to the parameters", parameters: map[string]string{"iops": "500", "csi.storage.k8s.io/pvc/name": "data"}},
		{name: "a volume of mode Block", objects: asBlock(), node: []string{"path: /data", "path: /dev/data"}, parameters: silver},
		{name: "the limits of a volume of mode Block are not in force", objects: asBlock(), parameters: silver,
			node: []string{"path: /data", "path: /dev/data", "state: InForce", "state: NotEnforced"},
			code: codes.FailedPrecondition, want: "volume /dev/data of container main: "},
		{name: "the pod has no node", objects: []string{"nodeName: node-1", "nodeName: ''"}, node: []string{nodeWithLimits, ""}, parameters: silver},
		{name: "the container does not run", objects: []string{"{running: {}}", "{waiting: {}}"}, node: []string{"state: InForce", "state: NotEnforced, reason: NotRunning"}, parameters: silver},
		{name: "the container cannot start with the limits", objects: []string{"{running: {}}", "{waiting: {}}"},
			node: []string{"state: InForce", "state: NotEnforced, reason: SharedDisk, message: it is shared"}, parameters: silver,
			code: codes.FailedPrecondition, want: "pod a/db on node node-1: volume /data of container main: SharedDisk: it is shared"},
		{name: "the node does not know yet that the container runs", node: []string{"state: InForce", "state: NotEnforced, reason: NotRunning"}, parameters: silver,
			code: codes.FailedPrecondition, want: "volume /data of container main: NotRunning"},
		{name: "a parameter with the prefix of the external-resizer's metadata", parameters: map[string]string{"iops": "500", "csi.storage.k8s.io/fstype": "xfs"},
			code: codes.InvalidArgument, want: `parameter "csi.storage.k8s.io/fstype" is unknown`},
		{name: "a claim that was created again", objects: []string{"name: data, uid: c1}}", "name: data, uid: former}}"},
			parameters: silver, code: codes.NotFound, want: "is bound to a claim"},
		{name: "an unknown parameter", parameters: map[string]string{"iopz": "500"}, code: codes.InvalidArgument, want: `parameter "iopz" is unknown`},
		{name: "no parameter", parameters: map[string]string{"csi.storage.k8s.io/pvc/name": "data"}, code: codes.InvalidArgument, want: "it sets no limit"},
		{name: "an unknown handle", objects: []string{"handle-1", "handle-2"}, parameters: silver, code: codes.NotFound,
			want: `no PersistentVolume of driver topolvm.io with the handle "handle-1" is bound to a claim`},
		{name: "the claim has another class now", parameters: map[string]string{"iops": "1000"}, code: codes.FailedPrecondition, want: "no claim of the volume requests these limits"},
		{name: "a class of another driver", objects: []string{"volumeAttributesClassName: silver", "volumeAttributesClassName: other"}, parameters: silver,
			code: codes.InvalidArgument, want: `VolumeAttributesClass "other" is for driver ebs.csi.aws.com, but the volume has driver topolvm.io`},
		{name: "a class that does not exist yet", objects: []string{"volumeAttributesClassName: silver", "volumeAttributesClassName: lead"}, parameters: silver,
			code: codes.FailedPrecondition, want: `VolumeAttributesClass "lead" does not exist`},
		{name: "no object of the node", node: []string{nodeWithLimits, ""}, parameters: silver, code: codes.FailedPrecondition,
			want: "pod a/db on node node-1: the node has no NodeQOSResources object"},
		{name: "the former class in the spec", node: []string{"maxReadIops: 500", "maxReadIops: 400"}, parameters: silver, code: codes.FailedPrecondition,
			want: "the limits are not in the NodeQOSResources object yet"},
		{name: "a mount that is not in the spec", node: []string{"path: /data, claim", "path: /other, claim"}, parameters: silver, code: codes.FailedPrecondition,
			want: "volume /data of container main: the limits are not in the NodeQOSResources object yet"},
		{name: "a node that has not applied the object", node: []string{"generation: 2}", "generation: 3}"}, parameters: silver, code: codes.FailedPrecondition,
			want: "the node has not applied the NodeQOSResources object yet"},
		{name: "the node does not enforce the limits", node: []string{"state: InForce", "state: NotEnforced, reason: SharedDisk, message: it is shared"}, parameters: silver,
			code: codes.FailedPrecondition, want: "pod a/db on node node-1: volume /data of container main: SharedDisk: it is shared"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newStillController(t, strings.NewReplacer(test.objects...).Replace(modifiable), strings.NewReplacer(test.node...).Replace(nodeWithLimits))
				err := c.modify(t, test.parameters)
				if status.Code(err) != test.code || !strings.Contains(status.Convert(err).Message(), test.want) {
					t.Errorf("got %v, want %s: %s", err, test.code, test.want)
				}
			})
		})
	}
}

// sharedHandle is a second PersistentVolume of the CSI volume, with a claim in another namespace. No pod uses this claim. The
// verb %s stands for the claim's class.
const sharedHandle = `
---
kind: PersistentVolumeClaim
metadata: {name: data, namespace: b}
spec: {volumeName: pv-2, volumeAttributesClassName: %s}
---
kind: PersistentVolume
metadata: {name: pv-2}
spec: {csi: {driver: topolvm.io, volumeHandle: handle-1}, claimRef: {namespace: b, name: data}}
`

// TestEachClaimOfASharedVolumeHasItsOwnLimits modifies a volume of two claims: that of the pod, with class silver, and
// another one with the class `class`. `iops` is the requested limit, and `state` says whether the pod's limits are in force. The
// request succeeds if the limits are in force for those claims that request them; at least one must request them.
func TestEachClaimOfASharedVolumeHasItsOwnLimits(t *testing.T) {
	for _, test := range []struct {
		name, class, iops, state string
		code                     codes.Code
	}{
		{"both claims request the limits", "silver", "500", "InForce", codes.OK},
		{"both claims request the limits, which are not in force for the pod", "silver", "500", "NotEnforced, reason: SharedDisk", codes.FailedPrecondition},
		{"only the other claim requests the limits", "gold", "1000", "NotEnforced, reason: SharedDisk", codes.OK},
		{"only the claim of the pod requests the limits", "gold", "500", "InForce", codes.OK},
		{"the class of the other claim is wrong", "wrong", "500", "InForce", codes.OK},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newStillController(t, modifiable+fmt.Sprintf(sharedHandle, test.class), strings.ReplaceAll(nodeWithLimits, "state: InForce", "state: "+test.state))
				if err := c.modify(t, map[string]string{"iops": test.iops}); status.Code(err) != test.code {
					t.Errorf("got %v, want %s", err, test.code)
				}
			})
		})
	}
}

// TestAModificationWaitsForTheNode changes the object of the node while a request waits.
func TestAModificationWaitsForTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The node has applied generation 2, but not generation 3.
		c := newStillController(t, modifiable, strings.Replace(nodeWithLimits, "generation: 2}", "generation: 3}", 1))
		done := make(chan error)
		go func() { done <- c.modify(t, map[string]string{"iops": "500"}) }()
		synctest.Wait()
		c.putNode(t, nodeWithLimits) // has generation 2
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestTheEndpointAnswersTheQueriesOfTheExternalResizer(t *testing.T) {
	endpoint := newStillController(t, modifiable, nodeWithLimits).endpoint()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- endpoint.serve(ctx, dir) }()
	conn := must.Get(unixsocket.Dial(filepath.Join(dir, "topolvm.io.sock"), 1<<20))(t)
	defer conn.Close()

	identity, controller := csi.NewIdentityClient(conn), csi.NewControllerClient(conn)
	until(t, "the endpoint answers", func() bool {
		probe, err := identity.Probe(t.Context(), &csi.ProbeRequest{})
		return err == nil && probe.GetReady().GetValue()
	})

	info, err := identity.GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	if err != nil || info.GetName() != "topolvm.io" {
		t.Errorf("the driver is %v, %v", info, err)
	}

	has, err := controller.ControllerGetCapabilities(t.Context(), &csi.ControllerGetCapabilitiesRequest{})
	if err != nil || len(has.GetCapabilities()) != 1 || has.GetCapabilities()[0].GetRpc().GetType() != csi.ControllerServiceCapability_RPC_MODIFY_VOLUME {
		t.Errorf("the capabilities are %v, %v", has, err)
	}

	node, err := csi.NewNodeClient(conn).NodeGetCapabilities(t.Context(), &csi.NodeGetCapabilitiesRequest{})
	if err != nil || len(node.GetCapabilities()) > 0 {
		t.Errorf("the capabilities of the node are %v, %v", node, err)
	}

	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
