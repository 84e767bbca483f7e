// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"

	"github.com/qos-nri/qos-nri-plugin/internal/config"
	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/pkg/blockio"
	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt"
)

// kindsOn has all kinds, for the host whose files are below hostRoot.
func kindsOn(hostRoot string, mountResctrl bool, log *slog.Logger) ([]classes.Kind, error) {
	host := hostfs.Root(hostRoot)
	tree, err := cgroup.Detect(host)
	if err != nil {
		return nil, fmt.Errorf("find cgroups below --host-root %s: %w", hostRoot, err)
	}
	return config.Kinds(
		rdt.Options{FS: host, Threads: tree, MountResctrl: mountResctrl, Log: log},
		blockio.Options{FS: host, Tree: tree, Log: log},
	), nil
}
