// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics tells Prometheus and probes how a program is.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
)

// Hooks counts and times the runtime's hooks.
type Hooks struct {
	seconds *prometheus.HistogramVec
	errors  *prometheus.CounterVec
}

// NewHooks makes metrics that have seen nothing.
func NewHooks() *Hooks {
	return &Hooks{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "qos_hook_duration_seconds", Help: "Time that the runtime waited for a hook.",
			Buckets: prometheus.ExponentialBuckets(0.00001, 4, 9),
		}, []string{"hook"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "qos_hook_errors_total", Help: "Hooks that were answered with an error, refusals included.",
		}, []string{"hook"}),
	}
}

// Observe counts one hook.
func (h *Hooks) Observe(hook string, took time.Duration, err error) {
	h.seconds.WithLabelValues(hook).Observe(took.Seconds())
	if err != nil {
		h.errors.WithLabelValues(hook).Inc()
	}
}

// Server answers /metrics, /healthz and /readyz.
type Server struct{ http.Server }

// NewServer makes a server of what is registered and of a program's readiness; ready says why it does not do its job. It
// starts nothing.
func NewServer(registry *prometheus.Registry, ready func() error) *Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	return &Server{http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}}
}

// NewRegistry makes a registry with what is known of every process.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// NewNodeServer makes the server of a node's metrics.
func NewNodeServer(n *node.Node, hooks *Hooks) *Server {
	registry := NewRegistry()
	registry.MustRegister(hooks.seconds, hooks.errors, newCollector(n))
	return NewServer(registry, func() error { return Ready(n.Status()) })
}

// Listen listens on the address of a program's --metrics-address; an empty one is off, and the listener nil.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil //nolint:nilnil // nothing to listen on is no error
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w; choose another --metrics-address, or an empty one", err)
	}
	return listener, nil
}

// Ready says why the plugin does not do its job; nil when it does.
func Ready(status node.Status) error {
	switch {
	case status.Config.Err != nil:
		return fmt.Errorf("class files are not applied: %w", status.Config.Err)
	case !status.Runtime.Synchronized:
		return errors.New("not registered with the container runtime")
	}
	return nil
}

// Serve answers until ctx ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		stopped <- s.Shutdown(grace)
	}()
	if err := s.Server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return <-stopped
}
