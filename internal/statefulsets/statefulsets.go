// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulsets

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/leader"
	"github.com/qos-nri/qos-nri-plugin/internal/metrics"
)

// leaseName is the name of the Lease of the leader, and of the controller in events.
const leaseName = "qos-storage-resize"

// Options are the flags of the process.
type Options struct{ Kubeconfig, Namespace, MetricsAddress, Version string }

// Validate returns an error for the first invalid option.
func (o Options) Validate() error {
	if o.Namespace == "" {
		return errors.New("--namespace is required; pass the namespace of the Lease of the leader election")
	}
	return nil
}

// Run resizes the volumes of StatefulSets while this process is the leader, until ctx ends.
func Run(ctx context.Context, o Options, log *slog.Logger) error {
	listener, err := metrics.Listen(ctx, o.MetricsAddress)
	if err != nil {
		return err
	}
	config, err := kubeapi.Config(o.Kubeconfig, leaseName+"/"+o.Version)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("use the credentials: %w", err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("use the credentials: %w", err)
	}

	log.Info("starting", "version", o.Version)
	defer log.Info("qos-storage resize ended; claims stay as they are")
	group, ctx := errgroup.WithContext(ctx)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("record events: %w", err)
	}
	defer broadcaster.Shutdown()
	c, err := newController(client, objects, broadcaster.NewRecorder(scheme.Scheme, leaseName), log)
	if err != nil {
		return err
	}

	if listener != nil {
		group.Go(func() error { return metrics.NewServer(metrics.NewRegistry(), c.ready).Serve(ctx, listener) })
	}
	c.start(ctx, group)
	group.Go(func() error {
		return leader.Run(ctx, client, o.Namespace, leaseName, func(ctx context.Context, replica string) {
			log.Info("this replica is the leader", "replica", replica)
			c.run(ctx)
		})
	})
	return group.Wait()
}
