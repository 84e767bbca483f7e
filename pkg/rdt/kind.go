// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"log/slog"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/monitoring"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// Threads lists the threads of containers.
type Threads interface {
	// Threads returns the IDs of all current threads of the target, in the host's PID namespace.
	Threads(target classes.Holder) ([]int, error)
}

// Options are the dependencies of the backend.
type Options struct {
	FS      resctrl.FS
	Threads Threads
	// MountResctrl allows Apply and Repair to mount resctrl at /sys/fs/resctrl if it is not mounted.
	MountResctrl bool
	// FilesAlone is true if class files are checked without a machine.
	FilesAlone bool
	// Now is the clock. It may be nil.
	Now func() time.Time
	Log *slog.Logger
}

// Kind returns the kind of resources that class files configure in the field "rdt".
func Kind(opts Options) classes.Kind {
	parse := ParseConfig
	if opts.FilesAlone {
		parse = parseAlone
	}
	return classes.Kind{
		Field:   "rdt",
		Scopes:  []classes.Scope{classes.ContainerScope},
		Single:  true,
		Mutable: true,
		Parse:   classes.InAnyScope(parse),
		New:     func(string, classes.Scope) classes.Backend { return New(opts) },

		Measures:  monitoring.Measures("a class"),
		Monitored: monitoring.MeasuresOfContainers(),
	}
}
