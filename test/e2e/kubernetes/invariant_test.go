// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/test/invariant"
)

const nodeAPISocket = "/run/qos-nri-plugin/qos.sock"

// holds checks what must hold whenever nothing is under way; see package invariant. What disks are limited to is compared by the
// cases themselves.
func (n *node) holds(t *testing.T) {
	t.Helper()
	api, runtime := dial(t, nodeAPISocket), dial(t, containerdSocket)
	invariant.Machine{
		API: qosv1alpha1.NewNodeQOSClient(api), Host: hostfs.Root("/"),
		Live: invariant.LiveByCRI(cri.NewRuntimeServiceClient(runtime), n.cgroupIn),
	}.Hold(t)
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { must(t, connection.Close()) })
	return connection
}

// cgroupIn is where a container is, below the root of the hierarchy; what has none is looked for in vain.
func (n *node) cgroupIn(_ *cri.PodSandbox, id string) string {
	root := filepath.Join(cgroupRoot, "blkio")
	if unified() {
		root = cgroupRoot
	}
	dir, err := n.groups.ofContainer("blkio", id)
	if id == "" || err != nil {
		return "none"
	}
	return strings.TrimPrefix(dir, root)
}
