// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics serves the metrics and the probes of a program.
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
)

const (
	// maxScrapes is the maximum number of scrapes that collect metrics at the same time. The server refuses further scrapes.
	maxScrapes = 2
	// scrapeTimeout is how long a scrape may collect metrics. A promhttp handler with a timeout buffers the whole response
	// before it writes to the client. A scrape whose client reads slowly therefore does not count against maxScrapes.
	scrapeTimeout = 5 * time.Second
	readTimeout   = 5 * time.Second
	writeTimeout  = 10 * time.Second
	// idleTimeout is longer than the usual interval of scrapes, so a scraper keeps its connection.
	idleTimeout = 90 * time.Second
	// maxHeaderBytes is the maximum size of the headers of a request. net/http allows 4 KiB more.
	maxHeaderBytes = 8 << 10
)

// Server answers /metrics, /healthz and /readyz. Any pod of the cluster may be a client. The server therefore limits the time,
// the memory and the connections that clients can use, so that no client can keep it from answering probes.
type Server struct{ http.Server }

// NewServer returns a server for the metrics of a registry and for the probes of a program. `ready` returns an error
// while the program is not ready. NewServer starts nothing.
func NewServer(registry *prometheus.Registry, ready func() error) *Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		// The response is not compressed, because a compressor takes more memory than the metrics themselves.
		DisableCompression: true, MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})

	return &Server{http.Server{
		Handler: mux, ConnState: new(connections).track, MaxHeaderBytes: maxHeaderBytes,
		ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
	}}
}

// NewRegistry returns a registry with the metrics that every process has.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// Listen listens on the address of --metrics-address. If the address is empty, Listen returns a nil listener.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil //nolint:nilnil // an empty address is not an error
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w; choose another --metrics-address, or an empty one", err)
	}
	return listener, nil
}

// Serve serves until ctx ends. One second later it disconnects the clients that have not read their answers.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if s.Shutdown(grace) == nil {
			stopped <- nil
			return
		}
		stopped <- s.Close()
	}()

	if err := s.Server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return <-stopped
}
