// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/metrics"
)

// These are the times of the leader election. The Kubernetes controllers use the same times.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// leaseName is the name of the Lease of the leader.
const leaseName = "qos-storage"

// ErrLeadershipLost is returned by a replica that is no longer the leader. The process of the replica then exits, and a
// restarted process waits to be the leader.
var ErrLeadershipLost = errors.New("another replica may be the leader now")

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
		return lead(ctx, client, o.Namespace, func(ctx context.Context, replica string) {
			log.Info("this replica is the leader", "replica", replica)
			c.run(ctx)
		})
	})
	return group.Wait()
}

// newIdentity returns the name of this process in the leader election. Two processes never have the same name, not even on one host.
func newIdentity() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find the name of this replica: %w", err)
	}
	return host + "_" + string(uuid.NewUUID()), nil
}

// lead calls run while this process is the leader. The parameter `replica` of run is the name of this process. When ctx ends, lead first
// waits until `run` has returned, and then releases the Lease. So the next leader writes nothing while this process still writes.
func lead(ctx context.Context, client kubernetes.Interface, namespace string, run func(ctx context.Context, replica string)) error {
	identity, err := newIdentity()
	if err != nil {
		return err
	}
	candidacy, resign := context.WithCancel(context.WithoutCancel(ctx))
	defer resign()
	var running sync.Mutex // locked while run is called
	stop := context.AfterFunc(ctx, func() {
		running.Lock()
		defer running.Unlock()
		resign()
	})
	defer stop()

	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaseName}, Client: client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				running.Lock()
				defer running.Unlock()
				leading, end := context.WithCancel(leading)
				defer end()
				defer context.AfterFunc(ctx, end)()
				run(leading, identity)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("elect a leader: %w", err)
	}

	elector.Run(candidacy)
	running.Lock() // waits until run has returned
	defer running.Unlock()
	if ctx.Err() == nil {
		return ErrLeadershipLost
	}
	return nil
}
