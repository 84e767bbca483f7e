// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubelettest simulates the kubelet as device plugins see it, over the real sockets and messages, like kubelet
// 1.36: the registration of device plugins, their devices, allocations to pods, and the pod-resources API.
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

// Kubelet is a simulated kubelet that can be killed and started again. It keeps allocations over a restart, as kubelet
// does with its checkpoint file. It is safe for concurrent use.
type Kubelet struct {
	// DuringAllocate, if set, is called after a device plugin has answered Allocate, and before kubelet uses the
	// answer.
	DuringAllocate func()
	// DuringRegister, if set, is called before kubelet answers a registration.
	DuringRegister func(ctx context.Context)

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

// run is a kubelet from its start to its end.
type run struct {
	ctx     context.Context //nolint:containedctx // it is the life of the run
	cancel  context.CancelFunc
	servers []*grpc.Server
	served  sync.WaitGroup // servers
	streams sync.WaitGroup // goroutines that read the device lists of device plugins
}

// New makes a kubelet with its root directory in `dir`. Start starts it.
func New(dir string) *Kubelet {
	return &Kubelet{root: dir, changed: make(chan struct{}), resources: map[string]*resource{}, pods: map[podKey]*pod{}}
}

// Root is the kubelet's root directory.
func (k *Kubelet) Root() string { return k.root }

// PluginsDir is where device plugins have their sockets.
func (k *Kubelet) PluginsDir() string { return filepath.Join(k.root, "device-plugins") }

// HidePodResources sets whether the pod-resources API is missing after the next start of kubelet.
func (k *Kubelet) HidePodResources(hidden bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hidden = hidden
}

// Start starts kubelet. It removes all sockets of device plugins. Resources have no devices until they are registered again.
// Allocations are as before. Pods are unknown until they are admitted again, see Readmit.
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

	life := &run{}
	life.ctx, life.cancel = context.WithCancel(context.Background())
	for _, r := range k.resources {
		r.devices, r.stopped = nil, true
	}

	for _, p := range k.pods {
		p.known = false
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

// serve starts a server on kubelet.sock in `dir`. The file stays after the server has ended, as when the process is
// killed.
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

// Kill ends kubelet: connections are cut, socket files stay, and pods continue to run.
func (k *Kubelet) Kill() {
	k.mu.Lock()
	life := k.run
	k.run = nil
	if life != nil {
		life.cancel() // while mu is locked, so that the method `connected` starts no new stream
	}
	k.announce()
	k.mu.Unlock()
	if life != nil {
		life.end()
	}
}

// announce wakes all calls of Await. The caller holds mu.
func (k *Kubelet) announce() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// Await waits until `met` returns true, or `ctx` ends. It calls `met` after each change.
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
			return fmt.Errorf("timeout: %w", ctx.Err())
		}
	}
}

// Err returns what would have made a real kubelet panic, or nil.
func (k *Kubelet) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.crash
}
