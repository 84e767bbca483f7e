// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command csidriver is a CSI driver for tests. A volume is a file in DIR, which the driver attaches to a loop device. The
// driver creates, deletes, expands, stages and publishes volumes. With the argument "modify", it also modifies volumes.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const usage = "usage: csidriver NAME NODE DIR [modify]"

// kubeletDir is the default root directory of the kubelet.
const kubeletDir = "/var/lib/kubelet"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "csidriver:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	modifies := len(args) == 4 && args[3] == "modify"
	if len(args) != 3 && !modifies {
		return errors.New(usage)
	}

	d := &driver{name: args[0], node: args[1], volumes: volumes{dir: args[2]}, modifies: modifies}
	d.socket = filepath.Join(kubeletDir, "plugins", d.name, "csi.sock")
	if err := os.MkdirAll(d.volumes.dir, 0o755); err != nil {
		return err
	}

	failed := make(chan error)
	go func() {
		failed <- serve(d.socket, func(s *grpc.Server) {
			csi.RegisterIdentityServer(s, d)
			csi.RegisterControllerServer(s, d)
			csi.RegisterNodeServer(s, d)
		})
	}()

	go func() {
		path := filepath.Join(kubeletDir, "plugins_registry", d.name+"-reg.sock")
		failed <- serve(path, func(s *grpc.Server) { registration.RegisterRegistrationServer(s, &registrar{driver: d}) })
	}()

	return <-failed
}

func serve(path string, register func(*grpc.Server)) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	register(server)
	return server.Serve(listener)
}

// registrar answers the kubelet's plugin watcher.
type registrar struct {
	registration.UnimplementedRegistrationServer
	driver *driver
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: r.driver.name, Endpoint: r.driver.socket, SupportedVersions: []string{"1.0.0"}}, nil
}

func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	fmt.Fprintf(os.Stderr, "registered: %t %s\n", s.GetPluginRegistered(), s.GetError())
	return &registration.RegistrationStatusResponse{}, nil
}

type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	name, node, socket string
	volumes            volumes
	modifies           bool // the driver has the capability MODIFY_VOLUME
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.name, VendorVersion: "1"}, nil
}

func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	service := &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}
	return &csi.GetPluginCapabilitiesResponse{
		Capabilities: []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{Service: service}}},
	}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}
