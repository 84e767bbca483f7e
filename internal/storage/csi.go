// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/qos-nri/qos-nri-plugin/internal/unixsocket"
)

const (
	// modifyWait is how long a request waits until the limits are in force. It is shorter than the default timeout of the
	// external-resizer, 10 s, because after a timeout, the external-resizer would not let the user choose another class.
	modifyWait = 5 * time.Second
	// modifyPoll is the time between two checks of a request that waits. A check reads only the caches.
	modifyPoll = 250 * time.Millisecond
)

// csiEndpoint serves those parts of CSI that the external-resizer calls to change the class of volumes. It changes nothing, because
// the controller writes the limits of each claim anyway. A request for a change succeeds when the limits are in force.
type csiEndpoint struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer

	controller      *controller
	driver, version string
}

// serve creates the socket of the driver in `dir`, and serves CSI on it until ctx ends.
func (e *csiEndpoint) serve(ctx context.Context, dir string) error {
	path := filepath.Join(dir, e.driver+".sock")
	if err := unixsocket.RemoveStale(ctx, path); err != nil {
		return fmt.Errorf("listen on %s: %w", path, err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("listen for an external-resizer: %w", err)
	}

	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, e)
	csi.RegisterControllerServer(server, e)
	csi.RegisterNodeServer(server, e)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	if err := server.Serve(listener); ctx.Err() == nil {
		return fmt.Errorf("serve %s: %w", path, err)
	}
	return nil
}

// GetPluginInfo returns the name of the driver that provides the volumes, because the external-resizer handles the volumes of the
// driver with this name.
func (e *csiEndpoint) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: e.driver, VendorVersion: e.version}, nil
}

// GetPluginCapabilities implements csi.IdentityServer.
func (e *csiEndpoint) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	service := &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}
	return &csi.GetPluginCapabilitiesResponse{
		Capabilities: []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{Service: service}}},
	}, nil
}

// Probe reports whether this process has listed all the API objects that its controller watches.
func (e *csiEndpoint) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(e.controller.Ready() == nil)}, nil
}

// ControllerGetCapabilities returns MODIFY_VOLUME, the only capability.
func (e *csiEndpoint) ControllerGetCapabilities(
	context.Context, *csi.ControllerGetCapabilitiesRequest,
) (*csi.ControllerGetCapabilitiesResponse, error) {
	modify := &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_MODIFY_VOLUME}
	return &csi.ControllerGetCapabilitiesResponse{
		Capabilities: []*csi.ControllerServiceCapability{{Type: &csi.ControllerServiceCapability_Rpc{Rpc: modify}}},
	}, nil
}

// NodeGetCapabilities returns no capabilities. It exists because the external-resizer calls it.
func (e *csiEndpoint) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

// ControllerModifyVolume succeeds when the limits in the parameters are in force. The error has the code InvalidArgument if the volume
// can never have these limits, and FailedPrecondition if the limits are not in force within modifyWait. These codes let the user choose
// another class at once.
func (e *csiEndpoint) ControllerModifyVolume(ctx context.Context, r *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	parameters := maps.Clone(r.GetMutableParameters())
	maps.DeleteFunc(parameters, isOfResizer)
	limits, err := ParseLimits(parameters)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, oneLine(err))
	}
	if err := e.controller.Ready(); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}

	ctx, cancel := context.WithTimeout(ctx, modifyWait)
	defer cancel()
	var problem error
	err = wait.PollUntilContextCancel(ctx, modifyPoll, true, func(context.Context) (bool, error) {
		problem = e.controller.checkVolume(e.driver, r.GetVolumeId(), limits)
		return problem == nil || errors.Is(problem, errNoVolume), nil
	})
	switch {
	case problem == nil && err == nil:
		return &csi.ControllerModifyVolumeResponse{}, nil
	case problem == nil:
		return nil, status.FromContextError(err).Err()
	case errors.Is(problem, errNoVolume):
		return nil, status.Error(codes.NotFound, problem.Error())
	case errors.As(problem, new(invalidClass)):
		return nil, status.Error(codes.InvalidArgument, problem.Error())
	}
	return nil, status.Errorf(codes.FailedPrecondition, "the limits are not in force: %v", problem)
}

// isOfResizer reports whether the external-resizer adds a parameter itself, with --extra-modify-metadata.
func isOfResizer(key, _ string) bool {
	switch key {
	case "csi.storage.k8s.io/pvc/name", "csi.storage.k8s.io/pvc/namespace", "csi.storage.k8s.io/pv/name":
		return true
	}
	return false
}
