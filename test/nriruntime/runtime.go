// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nriruntime is a container runtime for tests and demonstrations. It runs in the test's process. It uses the
// same NRI code as real runtimes (package adaptation). The package itself does what the kubelet and containerd do with
// pods and containers, and an implementation of OCI does what runc does.
//
// Plugins observe the behavior of containerd 2.4: the order and content of hooks, what is undone after a failed hook,
// and one lock around every hook, synchronization and unsolicited update. With Options.CRIO, plugins observe the
// behavior of CRI-O.
package nriruntime

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
)

var (
	// ErrNotFound is returned for pods and containers that do not exist.
	ErrNotFound = errors.New("not found")
	// ErrDown is returned while the runtime is stopped.
	ErrDown = errors.New("the runtime is not running")
	// ErrState is returned for calls that the state of a container does not permit.
	ErrState = errors.New("wrong state")
)

// maxSocketPath is the maximum length of a path in sockaddr_un.
const maxSocketPath = 107

// Options of a Runtime. The zero value is usable.
type Options struct {
	// Name and Version are reported to plugins; containerd v2.4.2 or cri-o 1.37.0 by default.
	Name, Version string
	// SystemdCgroups makes cgroup paths as with the systemd cgroup driver; cgroupfs is the default.
	SystemdCgroups bool
	// CRIO makes the runtime behave like CRI-O 1.37 where it differs from containerd: CreateContainer calls runc create,
	// and if this fails, plugins get no further hook for the container. A container starts even if a plugin's
	// StartContainer hook fails. A sandbox has no process (drop_infra_ctr).
	// Unsolicited updates fail as with UpdatesHang.
	CRIO bool
	// UpdatesHang makes the runtime refuse unsolicited updates. Some real runtimes, e.g. containerd 2.3, may hang instead.
	UpdatesHang bool
	// OCI does what runc does. The default is &NoMachine{}.
	OCI OCI
	// Observe, if set, is called after each hook with the time that all plugins together took. The runtime holds
	// the lock around hooks during this call.
	Observe func(call string, took time.Duration)
	// NRI are further options for the runtime side of NRI.
	NRI []adaptation.Option
}

// Runtime has pods and containers, and calls plugins' hooks for them. All methods are safe for concurrent use. Pods and
// containers outlive Stop and Start, as they do with containerd.
type Runtime struct {
	dir     string
	options Options
	oci     OCI
	bridge  bridge
	exits   sync.WaitGroup // notifications of exits that are being sent

	mu         sync.Mutex // guards the fields below, and the fields of the pods and containers
	pods       []*pod
	containers []*container
	made       int
}

// New makes a runtime that will listen for plugins in `dir`, which must exist and have a short name. It starts nothing.
func New(dir string, options Options) (*Runtime, error) {
	r := &Runtime{dir: dir, options: options, oci: options.OCI}
	if len(r.Socket()) > maxSocketPath {
		return nil, fmt.Errorf("socket path %q is longer than %d bytes", r.Socket(), maxSocketPath)
	}

	if r.oci == nil {
		r.oci = &NoMachine{}
	}

	switch {
	case options.Name != "":
	case options.CRIO:
		r.options.Name, r.options.Version = "cri-o", "1.37.0"
	default:
		r.options.Name, r.options.Version = "containerd", "v2.4.2"
	}

	if options.Observe == nil {
		r.options.Observe = func(string, time.Duration) {}
	}

	routeLog()
	r.bridge.runtime, r.bridge.state, r.bridge.changed = r, map[string]lifecycle{}, make(chan struct{})
	return r, nil
}

// Socket is the path of the socket that plugins connect to.
func (r *Runtime) Socket() string { return filepath.Join(r.dir, "nri.sock") }

// Start listens for plugins.
func (r *Runtime) Start() error {
	options := append([]adaptation.Option{
		adaptation.WithSocketPath(r.Socket()),
		adaptation.WithPluginPath(filepath.Join(r.dir, "plugins")),
		adaptation.WithPluginConfigPath(filepath.Join(r.dir, "conf.d")),
	}, r.options.NRI...)
	return r.bridge.start(r.options.Name, r.options.Version, options)
}

// Stop waits until the plugins have been notified of the containers that have exited. Then it disconnects all plugins
// and stops listening. Containers keep running.
func (r *Runtime) Stop() {
	r.exits.Wait()
	r.bridge.stop()
}

// Restart is Stop and Start.
func (r *Runtime) Restart() error {
	r.Stop()
	return r.Start()
}

// Synchronizations returns how many plugins have been synchronized since New. A plugin that connects again counts
// again.
func (r *Runtime) Synchronizations() int { return r.bridge.synchronizations() }

// WaitSynchronized waits until Synchronizations is at least `n` and the synchronized plugins get events.
func (r *Runtime) WaitSynchronized(ctx context.Context, n int) error {
	return r.bridge.waitSynchronized(ctx, n)
}

// WaitDisconnected waits until the runtime has noticed the end of all plugins. Until then a hook may fail with "ttrpc:
// closed", as in containerd.
func (r *Runtime) WaitDisconnected(ctx context.Context) error {
	return r.bridge.waitDisconnected(ctx)
}
