// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stage runs the plugin with the runtime side of NRI, without a container runtime, on a simulated machine or on this one.
package stage

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
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/pkg/iodisks"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// Host is the machine that the classes are applied on.
type Host interface {
	resctrl.FS
	iodisks.FS
	nriruntime.OCI
}

// Stage is the plugin with a runtime, on a host.
type Stage struct {
	Host    Host
	Runtime *nriruntime.Runtime
	API     qosv1alpha1.NodeQOSClient
	// Groups are the resctrl groups of the classes.
	Groups *rdt.Backend

	close []func() error
}

// Raise starts the runtime, and the plugin with a class file. The caller must call Down, even if Raise returns an error.
func Raise(ctx context.Context, h Host, classFile string) (*Stage, error) {
	s := &Stage{Host: h}
	dir, err := os.MkdirTemp("", "qos")
	if err != nil {
		return s, err
	}

	s.close = append(s.close, func() error { return os.RemoveAll(dir) })
	n, err := s.newNode(ctx, classFile)
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
	return s, s.Runtime.WaitSynchronized(waiting, 1)
}

func (s *Stage) newNode(ctx context.Context, classFile string) (*node.Node, error) {
	tree, err := cgroup.Detect(s.Host)
	if err != nil {
		return nil, err
	}

	log := slog.New(slog.DiscardHandler)
	rdtKind := rdt.Kind(rdt.Options{FS: s.Host, Threads: tree, MountResctrl: true, Log: log})
	rdtKind.New = func(string, classes.Scope) classes.Backend { return s.Groups }
	s.Groups = rdt.New(rdt.Options{FS: s.Host, Threads: tree, MountResctrl: true, Log: log})
	kinds := []classes.Kind{rdtKind, blockio.Kind(ioapply.New(ioapply.Options{FS: s.Host, Tree: tree, Log: log}))}
	config, err := classes.Parse([]classes.File{{Name: "classes.yaml", Data: []byte(classFile)}}, kinds, nil)
	if err != nil {
		return nil, err
	}

	n := node.New(node.Options{Kinds: kinds, Log: log})
	s.close = append(s.close, func() error { return s.clean(n) })
	return n, n.Configure(ctx, classes.FileSet{Config: config, Files: []string{"classes.yaml"}, Hash: "stage"})
}

// clean removes the classes from the machine.
func (s *Stage) clean(n *node.Node) error {
	ctx := context.Background()
	if err := n.Configure(ctx, classes.FileSet{Config: &classes.Config{}}); err != nil {
		return err
	}
	// The node only logs what it could not revert, but these calls return the errors.
	return errors.Join(s.Groups.Withdraw(ctx), s.Groups.Release(ctx, func(string) bool { return false }))
}

func (s *Stage) startRuntime(dir string) error {
	// With NRI's default timeout of 2 s, the runtime could disconnect the plugin on a slow machine.
	adaptation.SetPluginRegistrationTimeout(time.Minute)
	adaptation.SetPluginRequestTimeout(time.Minute)
	runtime, err := nriruntime.New(dir, nriruntime.Options{OCI: s.Host})
	if err != nil {
		return err
	}
	s.Runtime = runtime
	s.close = append(s.close, func() error { runtime.Stop(); return nil })
	return runtime.Start()
}

// startPlugin runs the plugin and its node API until Down is called.
func (s *Stage) startPlugin(ctx context.Context, n *node.Node, socket string) error {
	ctx, cancel := context.WithCancel(ctx)
	log := slog.New(slog.DiscardHandler)
	plugin := nriplugin.New(n, nriplugin.Options{Socket: s.Runtime.Socket(), Index: "10", Log: log})
	api := nodeapi.New(n, nodeapi.Options{Socket: socket, Version: "stage", Log: log})
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
	s.API = qosv1alpha1.NewNodeQOSClient(conn)
	return nil
}

// Down stops everything that Raise has started, in reverse order, and removes the classes from the host.
func (s *Stage) Down() error {
	var errs []error
	for i := len(s.close) - 1; i >= 0; i-- {
		errs = append(errs, s.close[i]())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	return nil
}
