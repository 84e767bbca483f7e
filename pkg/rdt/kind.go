// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"log/slog"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// FS is the part of the host's filesystem that resctrl needs. Paths are paths on the host.
type FS interface {
	ReadFile(path string) ([]byte, error)
	// WriteFile writes data to an existing file in one write(2). Its error wraps the kernel's errno.
	WriteFile(path string, data []byte) error
	Mkdir(path string) error
	Remove(path string) error
	ReadDir(path string) ([]string, error)
	Mount(source, target, fstype, options string) error
}

// Threads lists the threads of containers.
type Threads interface {
	// Threads returns the IDs of all current threads of the target, in the host's PID namespace.
	Threads(target classes.Holder) ([]int, error)
}

// Options are the dependencies of the backend.
type Options struct {
	FS      FS
	Threads Threads
	// MountResctrl mounts resctrl at /sys/fs/resctrl if it is not mounted when a configuration is applied.
	MountResctrl bool
	Log          *slog.Logger
}

// Kind returns the kind of resources that class files configure in the field "rdt".
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
