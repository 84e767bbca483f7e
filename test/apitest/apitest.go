// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apitest runs a node with simple backends behind a node API, for tests of the API and of its clients.
package apitest

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeapi"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
)

// These are the resources of a Node.
const (
	RDT     = "k8s.io/rdt"
	BlockIO = "k8s.io/blockio"
	Network = "vendor.example/network" // has pod scope
)

// Files is the class file that most tests load into a Node first.
const Files = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/rdt
  defaultClass: bronze
  classes: [{name: gold, capacity: 1, description: for those in a hurry}, {name: bronze}]
  test: {names: [gold, bronze]}
- name: k8s.io/blockio
  classes: [{name: high-prio, capacity: 4}, {name: throttled}]
  test: {names: [high-prio, throttled]}
- name: vendor.example/network
  scope: pod
  classes: [{name: fast}]
  test: {names: [fast]}
`

// Node is a node with the resources RDT, BlockIO and Network. Each resource has a simple backend of package nodetest.
type Node struct {
	*node.Node
	Kinds    []classes.Kind
	Backends map[string]*nodetest.Backend
}

// NewNode makes a node that is registered with a runtime, and offers nothing until Load.
func NewNode() *Node {
	n := &Node{Backends: map[string]*nodetest.Backend{}}
	for _, name := range []string{RDT, BlockIO, Network} {
		n.Backends[name] = nodetest.NewBackend()
	}
	n.Kinds = []classes.Kind{nodetest.Kind("test", []classes.Scope{classes.ContainerScope, classes.PodScope}, n.Backends)}
	n.Node = node.New(node.Options{Kinds: n.Kinds, Log: slog.New(slog.DiscardHandler)})
	n.Connected(n, state.RuntimeInfo{Name: "containerd", Version: "v2.4.2", NRIVersion: "v0.12.3"})
	n.Synchronize(nil, nil)
	return n
}

// Load configures the node with one class file.
func (n *Node) Load(ctx context.Context, file string) error {
	config, err := classes.Parse([]classes.File{{Name: "classes.yaml", Data: []byte(file)}}, n.Kinds, nil)
	return n.Configure(ctx, classes.FileSet{Files: []string{"classes.yaml"}, Hash: "0123456789ab", Config: config, Err: err})
}

// RunPod runs a pod and its containers. The UID of the pod is "uid-" and the name. `request` is the value of the
// annotation "qos.noderesource.dev/pod". If `request` is empty, the pod has no annotation.
func (n *Node) RunPod(ctx context.Context, namespace, name, request string, containers ...string) error {
	return n.RunPodAs(ctx, "uid-"+name, namespace, name, request, containers...)
}

// RunPodAs is RunPod with another UID.
func (n *Node) RunPodAs(ctx context.Context, uid, namespace, name, request string, containers ...string) error {
	id := strings.TrimPrefix(uid, "uid-")
	pod := classes.Holder{ID: "sandbox-" + id, SandboxID: "sandbox-" + id, PodUID: uid, PodNamespace: namespace, PodName: name}
	if request != "" {
		pod.PodAnnotations = map[string]string{classes.Domain + "/pod": request}
	}

	if err := finish(ctx)(n.Node.RunPod(pod)); err != nil {
		return err
	}

	for _, container := range containers {
		ctr := pod
		ctr.ID, ctr.Container = "id-"+id+"-"+container, container
		if err := n.start(ctx, ctr); err != nil {
			return err
		}
	}

	return nil
}

func (n *Node) start(ctx context.Context, ctr classes.Holder) error {
	if _, _, err := n.CreateContainer(ctr); err != nil {
		return err
	}
	ctr.PID = 1
	return finish(ctx)(n.StartContainer(ctr))
}

// finish returns a function that gets the result of a hook, and runs the enforcement that the hook returned.
func finish(ctx context.Context) func(enforce func(context.Context) error, err error) error {
	return func(enforce func(context.Context) error, err error) error {
		if err != nil || enforce == nil {
			return err
		}
		return enforce(ctx)
	}
}

// SetUnified is part of reconcile.Runtime.
func (n *Node) SetUnified(context.Context, string, map[string]string) error { return nil }

// Served is a node API on a socket.
type Served struct {
	Socket string

	cancel context.CancelFunc
	ended  chan error
}

// End stops the server, and does not wait for its end.
func (s *Served) End() { s.cancel() }

// Serve serves a node on a socket in `dir`, until Stop.
func Serve(ctx context.Context, n nodeapi.Node, dir string) (*Served, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &Served{Socket: filepath.Join(dir, "qos.sock"), cancel: cancel, ended: make(chan error, 1)}
	server := nodeapi.New(n, nodeapi.Options{Socket: s.Socket, Version: "v0.1.0", Log: slog.New(slog.DiscardHandler)})
	go func() { s.ended <- server.Run(ctx) }()
	select {
	case <-server.Ready():
		return s, nil
	case err := <-s.ended:
		cancel()
		return nil, errors.Join(errors.New("the server ended before it was ready"), err)
	}
}

// Stop ends the server, waits for its end, and returns its error.
func (s *Served) Stop() error {
	s.cancel()
	return <-s.ended
}
