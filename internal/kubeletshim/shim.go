// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeletshim is the shim's process: it follows the plugin and publishes to the kubelet and to the Kubernetes API.
package kubeletshim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/deviceplugin"
	"github.com/qos-nri/qos-nri-plugin/internal/metrics"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeclient"
)

// What the shim can publish.
const (
	// DevicePlugin tells the kubelet classes and capacities. It is always on.
	DevicePlugin = "device-plugin"
	// NodeObject keeps the NodeQOSResources object of the node.
	NodeObject = "node-object"
	// PodConditions tells on each pod which classes it has.
	PodConditions = "pod-conditions"
	// Events tells on pods of refusals and changes.
	Events = "events"
	// Evictions evicts pods that have a class which was taken out of class files that ask for it.
	Evictions = "evictions"
)

// Publications lists all that can be published.
func Publications() []string {
	return []string{DevicePlugin, NodeObject, PodConditions, Events, Evictions}
}

// Options of the process; its flags.
type Options struct {
	APISocket, KubeletDir, NodeName, Kubeconfig, MetricsAddress string

	Publish           []string
	FollowAnnotations bool
	// Grace is how long capacity stays as it is while the plugin is away.
	Grace   time.Duration
	Version string
}

// DefaultOptions are those of a node agent.
func DefaultOptions() Options {
	return Options{
		APISocket: "/run/qos-nri-plugin/qos.sock", KubeletDir: "/var/lib/kubelet", MetricsAddress: "127.0.0.1:9421",
		Publish: Publications(), Grace: 30 * time.Second,
	}
}

// Validate says which option is wrong, and what would be right.
func (o Options) Validate() error {
	for _, name := range o.Publish {
		if !slices.Contains(Publications(), name) {
			return fmt.Errorf("--publish %q is not one of %s", name, strings.Join(Publications(), ", "))
		}
	}
	switch {
	case o.Grace < time.Second:
		return fmt.Errorf("--grace %s is too short for a restart of the plugin; at least 1s, usually 30s", o.Grace)
	case o.NodeName == "" && o.usesAPI():
		return errors.New("--node-name is needed for all but --publish=device-plugin: the name that the node has in Kubernetes")
	}
	return nil
}

func (o Options) publishes(name string) bool { return slices.Contains(o.Publish, name) }

func (o Options) usesAPI() bool {
	return o.FollowAnnotations || slices.ContainsFunc(o.Publish, func(name string) bool { return name != DevicePlugin })
}

// Shim is the process.
type Shim struct {
	options Options
	log     *slog.Logger
}

// New makes a shim. It does no I/O.
func New(o Options, log *slog.Logger) *Shim { return &Shim{options: o, log: log} }

// Run publishes until ctx ends. What was published stays, but that the kubelet gives out no more devices until the shim is
// back.
func (s *Shim) Run(ctx context.Context) error {
	listener, err := metrics.Listen(ctx, s.options.MetricsAddress)
	if err != nil {
		return err
	}
	conn, err := nodeclient.Connect(s.options.APISocket)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	registry := metrics.NewRegistry()
	feed := nodecache.New(s.options.APISocket, s.log)
	devices := deviceplugin.New(feed, deviceplugin.Options{
		KubeletDir: s.options.KubeletDir, Grace: s.options.Grace, Registry: registry, Log: s.log,
	})
	registry.MustRegister(newCollector(feed, s.options.Version))
	s.log.Info("starting", "version", s.options.Version, "node", s.options.NodeName, "publish", strings.Join(s.options.Publish, ","))
	defer s.log.Info("ended; pods that run keep their classes")

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return feed.Run(ctx) })
	group.Go(func() error { return devices.Run(ctx) })
	if s.options.usesAPI() {
		api := &apiPublishers{options: s.options, feed: feed, update: updateOver(conn), registry: registry, log: s.log}
		group.Go(func() error { return api.run(ctx) })
	}
	if listener != nil {
		group.Go(func() error {
			return metrics.NewServer(registry, func() error { return ready(feed, devices) }).Serve(ctx, listener)
		})
	}
	return group.Wait()
}

// ready says why capacity is not published as the plugin has it; the Kubernetes API has no part in it.
func ready(feed *nodecache.Cache, devices *deviceplugin.Publisher) error {
	if state, _ := feed.Get(); !state.Ready() {
		return errors.New(state.Problem)
	}
	return devices.Healthy()
}

// updateOver asks the plugin for other classes of a container.
func updateOver(conn *grpc.ClientConn) func(context.Context, *qosv1alpha1.UpdateContainerQOSResourcesRequest) error {
	client := qosv1alpha1.NewNodeQOSClient(conn)
	return func(ctx context.Context, request *qosv1alpha1.UpdateContainerQOSResourcesRequest) error {
		_, err := client.UpdateContainerQOSResources(ctx, request)
		return err
	}
}
