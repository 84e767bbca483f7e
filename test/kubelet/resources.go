// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelettest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	devicepluginv1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// dialTimeout is how long kubelet tries to reach a device plugin that registers.
const dialTimeout = 10 * time.Second

// resource is an extended resource of a device plugin.
type resource struct {
	devices                 map[string]bool // true if the device with this ID is healthy; nil until a started kubelet gets the first list
	stopped                 bool            // the device plugin or kubelet has gone
	client                  *client
	registrations, messages int
}

// client is a connection of a running kubelet to a device plugin.
type client struct {
	run  *run
	conn *grpc.ClientConn
	api  devicepluginv1beta1.DevicePluginClient
}

// Resource is an extended resource in the node's status, with counts of messages.
type Resource struct {
	// Capacity is the number of devices. Allocatable is the number of healthy devices.
	Capacity, Allocatable int
	// Healthy has the IDs of the healthy devices in the last list, ordered.
	Healthy []string
	// Followed is true while kubelet receives the device lists of a device plugin.
	Followed bool
	// Registrations and Messages count what device plugins have sent, including before restarts of kubelet.
	Registrations, Messages int
}

// Resource returns the state of an extended resource.
func (k *Kubelet) Resource(name string) Resource {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.resources[name]
	if r == nil {
		return Resource{}
	}

	healthy := r.healthy()
	return Resource{
		Capacity: len(r.devices), Allocatable: len(healthy), Healthy: healthy,
		Followed: !r.stopped && k.run != nil, Registrations: r.registrations, Messages: r.messages,
	}
}

// healthy returns the IDs of the healthy devices, ordered.
func (r *resource) healthy() (ids []string) {
	for _, id := range slices.Sorted(maps.Keys(r.devices)) {
		if r.devices[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// Disconnect closes kubelet's connection to a device plugin.
func (k *Kubelet) Disconnect(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.resources[name]; r != nil && r.client != nil {
		_ = r.client.conn.Close()
	}
}

// registration is the service with which device plugins register.
type registration struct {
	devicepluginv1beta1.UnimplementedRegistrationServer

	kubelet *Kubelet
	run     *run
}

// Register connects to the device plugin and asks for its options. After that, it receives the device lists of the plugin in the
// background.
func (s *registration) Register(ctx context.Context, r *devicepluginv1beta1.RegisterRequest) (*devicepluginv1beta1.Empty, error) {
	if r.GetVersion() != devicepluginv1beta1.Version {
		return nil, fmt.Errorf("requested API version %q is not supported by kubelet. Supported version is %q", r.GetVersion(), devicepluginv1beta1.Version)
	}

	domain, _, qualified := strings.Cut(r.GetResourceName(), "/")
	if !qualified || domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") {
		return nil, fmt.Errorf("the ResourceName %q is invalid", r.GetResourceName())
	}

	s.kubelet.counted(r.GetResourceName())
	if s.kubelet.DuringRegister != nil {
		s.kubelet.DuringRegister(ctx)
	}
	c, err := connect(ctx, filepath.Join(s.kubelet.PluginsDir(), r.GetEndpoint()))
	if err != nil {
		return nil, fmt.Errorf("failed to dial device plugin: %w", err)
	}

	if _, err := c.api.GetDevicePluginOptions(ctx, &devicepluginv1beta1.Empty{}); err != nil {
		_ = c.conn.Close()
		return nil, fmt.Errorf("failed to get device plugin options: %w", err)
	}

	c.run = s.run
	s.kubelet.connected(r.GetResourceName(), c)
	return &devicepluginv1beta1.Empty{}, nil
}

// connect waits for a connection, as kubelet does.
func connect(ctx context.Context, path string) (*client, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}))
	if err != nil {
		return nil, err
	}

	conn.Connect()
	for state := conn.GetState(); state.String() != "READY"; state = conn.GetState() {
		if !conn.WaitForStateChange(ctx, state) {
			_ = conn.Close()
			return nil, ctx.Err()
		}
	}

	return &client{conn: conn, api: devicepluginv1beta1.NewDevicePluginClient(conn)}, nil
}

func (k *Kubelet) counted(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.resources[name] == nil {
		k.resources[name] = &resource{}
	}
	k.resources[name].registrations++
	k.announce()
}

// connected makes `c` the current client of a resource, and receives its device lists in the background.
func (k *Kubelet) connected(name string, c *client) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.run.ctx.Err() != nil {
		_ = c.conn.Close()
		return
	}
	r := k.resources[name]
	// As in kubelet, an earlier client of the resource is not closed.
	r.client, r.stopped = c, false
	c.run.streams.Go(func() { k.watch(name, c) })
}

// watch receives the device lists of a device plugin. When the stream ends, kubelet marks all devices of the resource
// unhealthy, and closes the current client of the resource, even if the stream belonged to an earlier client.
func (k *Kubelet) watch(name string, c *client) {
	stream, err := c.api.ListAndWatch(c.run.ctx, &devicepluginv1beta1.Empty{})
	for err == nil {
		var list *devicepluginv1beta1.ListAndWatchResponse
		if list, err = stream.Recv(); err == nil {
			k.listed(name, list)
		}
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	_ = c.conn.Close()
	r := k.resources[name]
	if r.stopped || r.client.run != c.run {
		return // the current client is closed already, or kubelet has been restarted since
	}

	_ = r.client.conn.Close()
	r.stopped = true
	for id := range r.devices {
		r.devices[id] = false
	}

	k.announce()
}

func (k *Kubelet) listed(name string, list *devicepluginv1beta1.ListAndWatchResponse) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.resources[name]
	r.messages++
	r.devices = map[string]bool{}
	for _, d := range list.GetDevices() {
		r.devices[d.GetID()] = d.GetHealth() == devicepluginv1beta1.Healthy
	}
	k.announce()
}
