// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/qos-nri/qos-nri-plugin/internal/config"
)

// oldRuntime is a containerd whose NRI cannot set all properties.
type oldRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
}

func (oldRuntime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "containerd", RuntimeVersion: "v2.2.1"}, nil
}

func TestCheckNamesThePropertiesThatTheRuntimeCannotSet(t *testing.T) {
	const file = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: vendor.example/profile
  linux: {classes: {a: {oomScoreAdj: 5, scheduler: {policy: batch}, memoryPolicy: {mode: local}, rlimits: {nofile: 5}, pids: {max: 5}}}}
`
	f := newCheckFixture(t, map[string]string{"a.yaml": file})
	f.Kinds = config.OfflineKinds()
	socket := filepath.Join(f.dir, "cri.sock")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	must(t, err)
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, oldRuntime{})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	// This containerd is older than NRI 0.12, which added linux.memoryPolicy.
	got := f.check(t, f.dir, "--offline", "--runtime-endpoint", "unix://"+socket)
	const want = "runtime: problem: the NRI of containerd v2.2.1 cannot set linux.memoryPolicy of vendor.example/profile, " +
		"so containers of its classes are refused; use containerd 2.3.0 or later, which has NRI 0.12\n"
	if got.Code != 1 || !strings.Contains(got.Out, want) || strings.Count(got.Out, "vendor.example/profile") != 1 {
		t.Errorf("answer is %+v", got)
	}
}
