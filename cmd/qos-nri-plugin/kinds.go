// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"

	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/pkg/blockio"
	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt"
)

// kinds are the types of resources that this program knows, for a host's files. A new one is one more line in kindsOn.
func kinds(hostRoot string, mountResctrl bool, log *slog.Logger) ([]classes.Kind, error) {
	host := hostfs.Root(hostRoot)
	tree, err := cgroup.Detect(host)
	if err != nil {
		return nil, fmt.Errorf("find cgroups below --host-root %s: %w", hostRoot, err)
	}
	return kindsOn(host, tree, mountResctrl, log), nil
}

// offlineKinds are good for reading class files, and for nothing on a machine.
func offlineKinds() []classes.Kind {
	return kindsOn("", nil, false, slog.New(slog.DiscardHandler))
}

func kindsOn(host hostfs.Root, tree *cgroup.Tree, mountResctrl bool, log *slog.Logger) []classes.Kind {
	return []classes.Kind{
		rdt.Kind(rdt.Options{FS: host, Threads: tree, MountResctrl: mountResctrl, Log: log}),
		blockio.Kind(blockio.Options{FS: host, Tree: tree, Log: log}),
	}
}
