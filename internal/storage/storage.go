// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/leader"
	"github.com/qos-nri/qos-nri-plugin/internal/metrics"
)

// leaseName is the name of the Lease of the leader.
const leaseName = "qos-storage"

// Options are the flags of the process.
type Options struct {
	Kubeconfig, Namespace, MetricsAddress, Version string
	// Drivers has the names of the drivers whose volumes get limits.
	Drivers []string
	// CSIDir is the directory of the sockets for the external-resizers. If it is empty, there are no such sockets.
	CSIDir string
}

// Validate returns an error for the first invalid option.
func (o Options) Validate() error {
	switch {
	case len(o.Drivers) == 0:
		return errors.New("--drivers is empty; name the CSI drivers whose volumes get limits, or " + LocalDriver + " for local volumes")
	case o.Namespace == "":
		return errors.New("--namespace is required; pass the namespace of the Lease of the leader election")
	}
	return nil
}

// csiDrivers returns the drivers for which external-resizers have a socket.
func (o Options) csiDrivers() []string {
	if o.CSIDir == "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(o.Drivers), func(driver string) bool { return driver == LocalDriver })
}

// Run writes the limits of volumes while this process is the leader, until ctx ends.
func Run(ctx context.Context, o Options, log *slog.Logger) error {
	listener, err := metrics.Listen(ctx, o.MetricsAddress)
	if err != nil {
		return err
	}
	config, err := kubeapi.Config(o.Kubeconfig, "qos-storage/"+o.Version)
	if err != nil {
		return err
	}

	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("use the credentials: %w", err)
	}
	nodes, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("use the credentials: %w", err)
	}

	log.Info("starting", "version", o.Version, "drivers", o.Drivers)
	defer log.Info("qos-storage ended; volumes keep their limits")
	group, ctx := errgroup.WithContext(ctx)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("record events: %w", err)
	}
	defer broadcaster.Shutdown()
	c, err := newController(client, nodes, broadcaster.NewRecorder(scheme.Scheme, "qos-storage"), o.Drivers, log)
	if err != nil {
		return err
	}

	if listener != nil {
		group.Go(func() error { return metrics.NewServer(metrics.NewRegistry(), c.ready).Serve(ctx, listener) })
	}
	c.start(ctx, group)
	for _, driver := range o.csiDrivers() {
		endpoint := &csiEndpoint{controller: c, driver: driver, version: o.Version}
		group.Go(func() error { return endpoint.serve(ctx, o.CSIDir) })
	}
	group.Go(func() error {
		return leader.Run(ctx, client, o.Namespace, leaseName, func(ctx context.Context, replica string) {
			log.Info("this replica is the leader", "replica", replica)
			c.run(ctx)
		})
	})
	return group.Wait()
}
