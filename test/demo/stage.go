// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/nri/pkg/adaptation"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeclient"
	"github.com/qos-nri/qos-nri-plugin/internal/nriplugin"
	"github.com/qos-nri/qos-nri-plugin/pkg/blockio"
	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// host is the machine that the classes are applied on.
type host interface {
	rdt.FS
	blockio.FS
	nriruntime.OCI
}

// stage is the plugin with a runtime, on a host.
type stage struct {
	host    host
	runtime *nriruntime.Runtime
	api     qosv1alpha1.NodeQOSClient
	groups  *rdt.Backend
	// classFile is the node's class file.
	classFile string
	close     []func() error
}

// raise starts the runtime and the plugin. The caller must call down, even if raise returns an error.
func raise(ctx context.Context, h host) (*stage, error) {
	s := &stage{host: h}
	dir, err := os.MkdirTemp("", "qos")
	if err != nil {
		return s, err
	}
	s.close = append(s.close, func() error { return os.RemoveAll(dir) })
	n, err := s.newNode(ctx)
	if err != nil {
		return s, err
	}
	if err := s.startRuntime(dir); err != nil {
		return s, err
	}
	if err := s.startPlugin(ctx, n, filepath.Join(dir, "qos.sock")); err != nil {
		return s, err
	}
	waiting, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return s, s.runtime.WaitSynchronized(waiting, 1)
}

func (s *stage) newNode(ctx context.Context) (*node.Node, error) {
	tree, err := cgroup.Detect(s.host)
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.DiscardHandler)
	rdtKind := rdt.Kind(rdt.Options{FS: s.host, Threads: tree, MountResctrl: true, Log: log})
	rdtKind.New = func(string, classes.Scope) classes.Backend { return s.groups }
	s.groups = rdt.New(rdt.Options{FS: s.host, Threads: tree, MountResctrl: true, Log: log})
	kinds := []classes.Kind{rdtKind, blockio.Kind(blockio.Options{FS: s.host, Tree: tree, Log: log})}
	if s.classFile, err = classFileFor(s.host); err != nil {
		return nil, err
	}
	config, err := classes.Parse([]classes.File{{Name: "classes.yaml", Data: []byte(s.classFile)}}, kinds, nil)
	if err != nil {
		return nil, err
	}
	n := node.New(node.Options{Kinds: kinds, Log: log})
	s.close = append(s.close, func() error { return s.clean(n) })
	return n, n.Configure(ctx, classes.FileSet{Config: config, Files: []string{"classes.yaml"}, Hash: "demo"})
}

// clean removes the classes from the machine.
func (s *stage) clean(n *node.Node) error {
	ctx := context.Background()
	if err := n.Configure(ctx, classes.FileSet{Config: &classes.Config{}}); err != nil {
		return err
	}
	// The node only logs what it could not revert. For the demo this is an error.
	return errors.Join(s.groups.Withdraw(ctx), s.groups.Release(ctx, func(string) bool { return false }))
}

func (s *stage) startRuntime(dir string) error {
	// With NRI's default timeout of 2 s, the runtime could disconnect the plugin on a slow machine.
	adaptation.SetPluginRegistrationTimeout(time.Minute)
	adaptation.SetPluginRequestTimeout(time.Minute)
	runtime, err := nriruntime.New(dir, nriruntime.Options{OCI: s.host})
	if err != nil {
		return err
	}
	s.runtime = runtime
	s.close = append(s.close, func() error { runtime.Stop(); return nil })
	return runtime.Start()
}

// startPlugin runs the plugin and its node API until down is called.
func (s *stage) startPlugin(ctx context.Context, n *node.Node, socket string) error {
	ctx, cancel := context.WithCancel(ctx)
	log := slog.New(slog.DiscardHandler)
	plugin := nriplugin.New(n, nriplugin.Options{Socket: s.runtime.Socket(), Index: "10", Log: log})
	api := nodeapi.New(n, nodeapi.Options{Socket: socket, Version: "demo", Log: log})
	ended := make(chan error, 2)
	go func() { ended <- plugin.Run(ctx) }()
	go func() { ended <- api.Run(ctx) }()
	s.close = append(s.close, func() error {
		cancel()
		return errors.Join(<-ended, <-ended)
	})
	conn, err := nodeclient.Connect(socket)
	if err != nil {
		return err
	}
	s.close = append(s.close, conn.Close)
	s.api = qosv1alpha1.NewNodeQOSClient(conn)
	return nil
}

// down ends everything in reverse order.
func (s *stage) down() error {
	var errs []error
	for i := len(s.close) - 1; i >= 0; i-- {
		errs = append(errs, s.close[i]())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	return nil
}
