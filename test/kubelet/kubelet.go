// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubelettest has the side of a kubelet that device plugins see, over the real sockets and messages, as kubelet
// 1.36 is: the registration of device plugins, their devices, allocations to pods, and the pod-resources API.
package kubelettest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	devicepluginv1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Kubelet is a kubelet that can be killed and started again. What it has allocated outlives that, as by kubelet's
// checkpoint. It is safe for concurrent use.
type Kubelet struct {
	// DuringAllocate, if any, is called between a device plugin's answer to Allocate and what kubelet makes of it.
	DuringAllocate func()

	root string

	mu        sync.Mutex // guards all below
	changed   chan struct{}
	run       *run // nil while it does not run
	hidden    bool
	lists     int
	resources map[string]*resource
	pods      map[podKey]*pod
	crash     error
}

// run is one life of a kubelet.
type run struct {
	ctx     context.Context //nolint:containedctx // it is the life itself
	cancel  context.CancelFunc
	servers []*grpc.Server
	served  sync.WaitGroup // servers
	streams sync.WaitGroup // those to device plugins
	clients map[string]*client
}

// New makes a kubelet with its root directory in dir. Start starts it.
func New(dir string) *Kubelet {
	return &Kubelet{root: dir, changed: make(chan struct{}), resources: map[string]*resource{}, pods: map[podKey]*pod{}}
}

// Root is the kubelet's root directory.
func (k *Kubelet) Root() string { return k.root }

// PluginsDir is where device plugins have their sockets.
func (k *Kubelet) PluginsDir() string { return filepath.Join(k.root, "device-plugins") }

// HidePodResources has kubelet not serve the pod-resources API from its next start on.
func (k *Kubelet) HidePodResources(hidden bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hidden = hidden
}

// Start starts kubelet: all sockets of others are removed, resources are without devices until they are registered
// again, and allocations are as they were. Pods are not known until they are admitted again, see Readmit.
func (k *Kubelet) Start() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.run != nil {
		return errors.New("kubelet runs already")
	}
	if err := os.MkdirAll(k.PluginsDir(), 0o750); err != nil {
		return err
	}
	if err := removeSockets(k.PluginsDir()); err != nil {
		return err
	}
	life := &run{clients: map[string]*client{}}
	life.ctx, life.cancel = context.WithCancel(context.Background())
	for _, r := range k.resources {
		r.devices, r.stopped = nil, true
	}
	for _, p := range k.pods {
		p.told = false
	}
	if !k.hidden {
		server := grpc.NewServer()
		podresourcesv1.RegisterPodResourcesListerServer(server, &lister{kubelet: k})
		if err := life.serve(server, filepath.Join(k.root, "pod-resources")); err != nil {
			life.end()
			return err
		}
	}
	server := grpc.NewServer()
	devicepluginv1beta1.RegisterRegistrationServer(server, &registration{kubelet: k, run: life})
	if err := life.serve(server, k.PluginsDir()); err != nil {
		life.end()
		return err
	}
	k.run = life
	k.announce()
	return nil
}

func removeSockets(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Type() == fs.ModeSocket {
			if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// serve has a server answer on kubelet.sock in dir. The file outlives it, as when the process is killed.
func (r *run) serve(server *grpc.Server, dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	path := filepath.Join(dir, "kubelet.sock")
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	listener.SetUnlinkOnClose(false)
	r.servers = append(r.servers, server)
	r.served.Go(func() { _ = server.Serve(listener) })
	return nil
}

func (r *run) end() {
	r.cancel()
	for _, server := range r.servers {
		server.Stop()
	}
	r.served.Wait()
	r.streams.Wait()
}

// Kill ends kubelet: connections are cut, socket files stay, and pods run on.
func (k *Kubelet) Kill() {
	k.mu.Lock()
	life := k.run
	k.run = nil
	if life != nil {
		life.cancel() // under mu, for connected
	}
	k.announce()
	k.mu.Unlock()
	if life != nil {
		life.end()
	}
}

// announce wakes whoever awaits something. The caller holds mu.
func (k *Kubelet) announce() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// Await returns when met does, which is asked after each change, or with ctx's end.
func (k *Kubelet) Await(ctx context.Context, met func() bool) error {
	for {
		k.mu.Lock()
		changed := k.changed
		k.mu.Unlock()
		if met() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("it never came so far: %w", ctx.Err())
		}
	}
}

// Err tells what would have ended a real kubelet with a panic; nil if nothing would.
func (k *Kubelet) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.crash
}
