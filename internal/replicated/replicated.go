// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicated runs a controller in several replicas; only the leader writes.
package replicated

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

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

const (
	// Debounce is the delay between a change and the reconcile, so that one reconcile covers several related changes.
	Debounce = 200 * time.Millisecond
	// WriteTimeout is the maximum duration of one write.
	WriteTimeout = 30 * time.Second
	// MaxNote is the maximum length of an event's note, in bytes. The API allows 1024. The difference is for the dots at the end of a note
	// that was cut.
	MaxNote = 1021
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

// Controller is a controller for Run. A type that embeds Informers has to add only the method Run.
type Controller interface {
	// Start runs, until ctx ends, what every replica runs, even if it is not the leader.
	Start(ctx context.Context, group *errgroup.Group)
	// Ready returns an error until the replica can lead.
	Ready() error
	// Run reconciles until ctx ends.
	Run(ctx context.Context)
}

// Run runs the controller that `build` returns until ctx ends, and lets it reconcile while this process is the leader. `name` is the name of
// the Lease, of the clients, and of the controller in events.
func Run(ctx context.Context, o Options, name string, log *slog.Logger, build func(Clients) (Controller, error)) error {
	listener, err := metrics.Listen(ctx, o.MetricsAddress)
	if err != nil {
		return err
	}
	config, err := kubeapi.Config(o.Kubeconfig, name+"/"+o.Version)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = requestsPerSecond, requestBurst
	clients := Clients{}
	if clients.Typed, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("use the credentials: %w", err)
	}
	if clients.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return fmt.Errorf("use the credentials: %w", err)
	}

	group, ctx := errgroup.WithContext(ctx)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: clients.Typed.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("record events: %w", err)
	}
	defer broadcaster.Shutdown()
	clients.Recorder = broadcaster.NewRecorder(scheme.Scheme, name)
	c, err := build(clients)
	if err != nil {
		return err
	}

	if listener != nil {
		group.Go(func() error { return metrics.NewServer(metrics.NewRegistry(), c.Ready).Serve(ctx, listener) })
	}
	c.Start(ctx, group)
	group.Go(func() error {
		return lead(ctx, clients.Typed, o.Namespace, name, func(ctx context.Context, replica string) {
			log.Info("this replica is the leader", "replica", replica)
			c.Run(ctx)
		})
	})
	return group.Wait()
}
