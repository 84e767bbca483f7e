// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicated runs a controller in several replicas; only the leader writes.
package replicated

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/metrics"
)

// requestsPerSecond and requestBurst limit the requests of a controller to the API server. They are higher than the
// limits of kubeapi.Config, which are for one node, because a controller works for the whole cluster.
const (
	requestsPerSecond = 50
	requestBurst      = 100
)

// Options are the flags that all controllers have.
type Options struct{ Kubeconfig, Namespace, MetricsAddress, Version string }

// AddFlags defines the flags. The present values are the defaults.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig file for the Kubernetes API; empty for the pod's service account")
	flags.StringVar(&o.Namespace, "namespace", o.Namespace, "namespace of the Lease of the leader election")
	flags.StringVar(&o.MetricsAddress, "metrics-address", o.MetricsAddress,
		"address that serves /metrics, /healthz and /readyz; empty for none")
}

// Validate returns an error for the first invalid option.
func (o Options) Validate() error {
	if o.Namespace == "" {
		return errors.New("--namespace is required; pass the namespace of the Lease of the leader election")
	}
	return nil
}

// Clients are the clients of a controller.
type Clients struct {
	Typed    kubernetes.Interface
	Dynamic  dynamic.Interface
	Recorder events.EventRecorder
}

// Controller is a controller for Replica.Run. A type that embeds Informers has to add only the method Run.
type Controller interface {
	// Start runs, until ctx ends, what every replica runs, even if it is not the leader.
	Start(ctx context.Context, group *errgroup.Group)
	// Ready returns an error until the replica can lead.
	Ready() error
	// Run reconciles until ctx ends.
	Run(ctx context.Context)
}

// Replica is one process of a controller.
type Replica struct {
	name, namespace string
	clients         Clients
	listener        net.Listener
}

// New listens for metrics, and makes clients. `name` is the name of the Lease, of the clients, and of the controller in events.
func New(ctx context.Context, o Options, name string) (*Replica, error) {
	r := &Replica{name: name, namespace: o.Namespace}
	var err error
	if r.listener, err = metrics.Listen(ctx, o.MetricsAddress); err != nil {
		return nil, err
	}
	config, err := kubeapi.Config(o.Kubeconfig, name+"/"+o.Version)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = requestsPerSecond, requestBurst
	if r.clients.Typed, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("use the credentials: %w", err)
	}
	if r.clients.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("use the credentials: %w", err)
	}
	return r, nil
}

// Run runs the controller that `build` returns until ctx ends, and lets it reconcile while this process is the leader.
func (r *Replica) Run(ctx context.Context, log *slog.Logger, build func(Clients) (Controller, error)) error {
	group, ctx := errgroup.WithContext(ctx)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: r.clients.Typed.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("record events: %w", err)
	}
	defer broadcaster.Shutdown()
	r.clients.Recorder = broadcaster.NewRecorder(scheme.Scheme, r.name)
	c, err := build(r.clients)
	if err != nil {
		return err
	}

	if r.listener != nil {
		group.Go(func() error { return metrics.NewServer(metrics.NewRegistry(), c.Ready).Serve(ctx, r.listener) })
	}
	c.Start(ctx, group)
	group.Go(func() error {
		return lead(ctx, r.clients.Typed, r.namespace, r.name, func(ctx context.Context, replica string) {
			log.Info("this replica is the leader", "replica", replica)
			c.Run(ctx)
		})
	})
	return group.Wait()
}
