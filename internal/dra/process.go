// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/metrics"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// gcPercent is the growth of the heap before the next garbage collection, in per cent. The heap has about 2 MiB, so a
// collection takes milliseconds, and there is one for several claims. With Go's default, 100, the driver uses 1.5 MiB
// more.
const gcPercent = 50

// Options are the options of the driver, which the command's flags set.
type Options struct {
	// APISocket is the socket of the plugin's node API.
	APISocket string
	// KubeletDir is the kubelet's root directory. It has the directories plugins and plugins_registry.
	KubeletDir string
	// CDIDir is the directory in which the runtime finds CDI devices.
	CDIDir                               string
	NodeName, Kubeconfig, MetricsAddress string
	// Grace is the time for which the classes of the node can still be allocated while the plugin is not ready.
	Grace time.Duration
	// Retire makes the driver offer no classes and serve only the claims that it has prepared.
	Retire bool
	// NoExecute makes Kubernetes delete the pods of removed classes whose resources have onClassRemoved: evict.
	NoExecute bool
	// PerDomain has the names or short names of resources whose classes have a device for each domain instead of one
	// for the node.
	PerDomain []string
	// SysDir is the mount point of the kernel's sysfs.
	SysDir  string
	Version string
}

// DefaultOptions returns the default options.
func DefaultOptions() Options {
	return Options{
		APISocket: "/run/qos-nri-plugin/qos.sock", KubeletDir: "/var/lib/kubelet", CDIDir: "/var/run/cdi",
		MetricsAddress: "127.0.0.1:9422", Grace: 30 * time.Second, SysDir: "/sys",
	}
}

// Validate returns an error for the first invalid option. The error includes the remedy.
func (o *Options) Validate() error {
	switch {
	case o.Grace < time.Second:
		return fmt.Errorf("--grace %s is too short for a restart of the plugin; use at least 1s, usually 30s", o.Grace)
	case o.NodeName == "":
		return errors.New("--node-name is required; pass the name of the Node object")
	}
	for _, name := range o.PerDomain {
		if err := classes.ValidateResourceName(classes.CanonicalResource(name)); err != nil {
			return fmt.Errorf("--per-domain %q is no name of a resource, such as k8s.io/rdt: %w", name, err)
		}
	}
	return nil
}

// Run runs the driver until `ctx` ends. After that, running pods keep their classes, and new pods with claims wait for
// a driver.
func Run(ctx context.Context, o Options, log *slog.Logger) error {
	listener, err := metrics.Listen(ctx, o.MetricsAddress)
	if err != nil {
		return err
	}
	config, err := kubeapi.Config(o.Kubeconfig, "qos-dra-driver/"+o.Version)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("use the credentials for the Kubernetes API: %w", err)
	}

	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	log.Info("starting", "version", o.Version, "node", o.NodeName)
	defer log.Info("qos-dra-driver ended; running pods keep their classes")
	cache := nodecache.New(o.APISocket, log)
	driver := New(cache, client, o, log)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return cache.Run(ctx) })
	group.Go(func() error { return driver.Run(ctx) })
	if listener != nil {
		ready := func() error {
			if state, _ := cache.Get(); !state.Ready() {
				return errors.New(state.Problem)
			}
			return driver.Healthy()
		}
		group.Go(func() error { return metrics.NewServer(metrics.NewRegistry(), ready).Serve(ctx, listener) })
	}
	return group.Wait()
}
