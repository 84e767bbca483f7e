// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package claimdefaults writes the default VolumeAttributesClass of a StorageClass into claims that name none, so that quotas count it.
package claimdefaults

import (
	"context"
	"errors"
	"log/slog"

	"github.com/qos-nri/qos-nri-plugin/internal/replicated"
	"github.com/qos-nri/qos-nri-plugin/internal/storage"
)

// name is the name of the controller in events, of the Lease of its leader, and of the field manager of its patches.
const name = "qos-storage-defaults"

// Options are the flags of the process.
type Options struct {
	replicated.Options
	// Drivers has the names of the drivers whose claims get classes.
	Drivers []string
}

// Validate returns an error for the first invalid option.
func (o Options) Validate() error {
	if len(o.Drivers) == 0 {
		return errors.New("--drivers is empty; name the drivers of qos-storage, e.g. " + storage.LocalDriver + " for local volumes")
	}
	return o.Options.Validate()
}

// Run writes classes into claims while this process is the leader, until ctx ends.
func Run(ctx context.Context, o Options, log *slog.Logger) error {
	log.Info("starting", "version", o.Version, "drivers", o.Drivers)
	defer log.Info("qos-storage defaults ended; claims stay as they are")
	return replicated.Run(ctx, o.Options, name, log, func(clients replicated.Clients) (replicated.Controller, error) {
		return newController(clients.Typed, clients.Recorder, o.Drivers, log)
	})
}
