// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulsets

import (
	"context"
	"log/slog"

	"github.com/qos-nri/qos-nri-plugin/internal/replicated"
)

// name is the name of the controller in events, and of the Lease of its leader.
const name = "qos-storage-resize"

// Run resizes the volumes of StatefulSets while this process is the leader, until ctx ends.
func Run(ctx context.Context, o replicated.Options, log *slog.Logger) error {
	log.Info("starting", "version", o.Version)
	defer log.Info("qos-storage resize ended; claims stay as they are")
	return replicated.Run(ctx, o, name, log, func(clients replicated.Clients) (replicated.Controller, error) {
		return newController(clients.Typed, clients.Dynamic, clients.Recorder, log)
	})
}
