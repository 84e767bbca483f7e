// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/qos-nri/qos-nri-plugin/internal/replicated"
)

// Options are the flags of the process.
type Options struct {
	replicated.Options
	// Drivers has the names of the drivers whose volumes get limits.
	Drivers []string
	// CSIDir is the directory of the sockets for the external-resizers. If it is empty, there are no such sockets.
	CSIDir string
}

// Validate returns an error for the first invalid option.
func (o Options) Validate() error {
	if len(o.Drivers) == 0 {
		return errors.New("--drivers is empty; name the CSI drivers whose volumes get limits, or " + LocalDriver + " for local volumes")
	}
	return o.Options.Validate()
}

// csiDrivers returns the drivers for which external-resizers have a socket.
func (o Options) csiDrivers() []string {
	if o.CSIDir == "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(o.Drivers), func(driver string) bool { return driver == LocalDriver })
}

// server is a controller with the sockets for external-resizers.
type server struct {
	*controller
	options Options
}

// Start implements replicated.Controller.
func (s server) Start(ctx context.Context, group *errgroup.Group) {
	s.controller.Start(ctx, group)
	for _, driver := range s.options.csiDrivers() {
		endpoint := &csiEndpoint{controller: s.controller, driver: driver, version: s.options.Version}
		group.Go(func() error { return endpoint.serve(ctx, s.options.CSIDir) })
	}
}

// Run writes the limits of volumes while this process is the leader, until ctx ends.
func Run(ctx context.Context, o Options, log *slog.Logger) error {
	log.Info("starting", "version", o.Version, "drivers", o.Drivers)
	defer log.Info("qos-storage ended; volumes keep their limits")
	return replicated.Run(ctx, o.Options, "qos-storage", log, func(clients replicated.Clients) (replicated.Controller, error) {
		c, err := newController(clients.Typed, clients.Dynamic, clients.Recorder, o.Drivers, log)
		return server{c, o}, err
	})
}
