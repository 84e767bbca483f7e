// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"log/slog"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// FS is the host's filesystem, as far as resctrl needs it. Paths are the host's own.
type FS interface {
	ReadFile(path string) ([]byte, error)
	// WriteFile writes data to an existing file in one write(2), with the kernel's errno in the error's chain.
	WriteFile(path string, data []byte) error
	Mkdir(path string) error
	Remove(path string) error
	ReadDir(path string) ([]string, error)
	Mount(source, target, fstype, options string) error
}

// Threads lists what runs in a container.
type Threads interface {
	// Threads returns the IDs, in the host's PID namespace, of all threads that the target has at this moment.
	Threads(target classes.Holder) ([]int, error)
}

// Options are what the backend needs of its surroundings.
type Options struct {
	FS      FS
	Threads Threads
	// MountResctrl mounts resctrl at /sys/fs/resctrl when a configuration is applied and it is not mounted.
	MountResctrl bool
	Log          *slog.Logger
}

// Kind is the kind of resources that a class file configures under "rdt".
func Kind(opts Options) classes.Kind {
	return classes.Kind{
		Field:   "rdt",
		Scopes:  []classes.Scope{classes.ContainerScope},
		Single:  true,
		Mutable: true,
		Parse:   ParseConfig,
		New:     func(string, classes.Scope) classes.Backend { return New(opts) },
	}
}
