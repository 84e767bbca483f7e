// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeletshim is the process of the kubelet shim. It follows the plugin's state and publishes it to the
// kubelet and to the Kubernetes API.
package kubeletshim

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/errgroup"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/deviceplugin"
	"github.com/qos-nri/qos-nri-plugin/internal/metrics"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeclient"
)

// Shim is the process of the kubelet shim.
type Shim struct {
	options Options
	log     *slog.Logger
}

// New returns a shim. It does no I/O.
func New(o Options, log *slog.Logger) *Shim { return &Shim{options: o, log: log} }

// Run publishes until ctx ends. After that, the published API objects remain, but the kubelet allocates no devices
// until a shim runs again.
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
	cache := nodecache.New(s.options.APISocket, s.log)
	api := &apiPublishers{options: s.options, cache: cache, client: qosv1alpha1.NewNodeQOSClient(conn), registry: registry, log: s.log}
	registerMetrics(registry, cache, s.options.Version)
	s.log.Info("starting", "version", s.options.Version, "node", s.options.NodeName, "publish", strings.Join(s.options.Publish, ","))
	defer s.log.Info("qos-kubelet-shim ended; running pods keep their classes")

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return cache.Run(ctx) })
	ready := func() error { return pluginReady(cache) }
	if s.options.publishes(DevicePlugin) {
		devices := deviceplugin.New(cache, deviceplugin.Options{
			KubeletDir: s.options.KubeletDir, Grace: s.options.Grace, Registry: registry, Log: s.log,
		})
		group.Go(func() error { return devices.Run(ctx) })
		ready = func() error { return cmp.Or(pluginReady(cache), devices.Healthy()) }
	}
	if s.options.usesAPI() {
		group.Go(func() error { return api.Run(ctx) })
	}
	if listener != nil {
		group.Go(func() error { return metrics.NewServer(registry, ready).Serve(ctx, listener) })
	}
	return group.Wait()
}

// pluginReady returns an error while the plugin is not ready. Failures of the Kubernetes API do not affect the readiness of the shim.
func pluginReady(cache *nodecache.Cache) error {
	if state, _ := cache.Get(); !state.Ready() {
		return errors.New(state.Problem)
	}
	return nil
}

func registerMetrics(registry prometheus.Registerer, cache *nodecache.Cache, version string) {
	factory := promauto.With(registry)
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "qos_shim_plugin_ready", Help: "1 if qos-nri-plugin responds, has class files in force and is registered with the runtime, else 0.",
	}, func() float64 {
		if state, _ := cache.Get(); state.Ready() {
			return 1
		}
		return 0
	})
	factory.NewGaugeVec(prometheus.GaugeOpts{
		Name: "qos_shim_build_info", Help: "The version of the program, as a label; the value is always 1.",
	}, []string{"version"}).WithLabelValues(version).Set(1)
}
