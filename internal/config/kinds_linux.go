// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"log/slog"

	"github.com/qos-nri/qos-nri-plugin/pkg/blockio"
	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/external"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/pkg/iodisks"
	"github.com/qos-nri/qos-nri-plugin/pkg/linux"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
	"github.com/qos-nri/qos-nri-plugin/pkg/volumeio"
)

// Host is the machine on which the kinds act.
type Host struct {
	FS   FS
	Tree *cgroup.Tree
	// MountResctrl allows the plugin to mount resctrl.
	MountResctrl bool
	// FilesAlone is true if only class files are read, and no file of a machine.
	FilesAlone bool
	Log        *slog.Logger
}

// FS is the part of the host's filesystem that the kinds need.
type FS interface {
	resctrl.FS
	iodisks.FS
	linux.FS
}

// Kinds returns every kind of resource that class files can configure. To add a kind, add it here. This Go file is
// for Linux only, because the backends and their libraries do not compile for other systems.
func Kinds(host Host) []classes.Kind {
	cgroups := ioapply.New(ioapply.Options{FS: host.FS, Tree: host.Tree, Log: host.Log})
	return []classes.Kind{
		rdt.Kind(rdt.Options{FS: host.FS, Threads: host.Tree, MountResctrl: host.MountResctrl, FilesAlone: host.FilesAlone, Log: host.Log}),
		linux.Kind(linux.Options{FS: host.FS, Tree: host.Tree, Log: host.Log}),
		external.Kind(), blockio.Kind(cgroups), volumeio.Kind(cgroups),
	}
}

// OfflineKinds returns every kind, for programs that only read class files.
func OfflineKinds() []classes.Kind {
	return Kinds(Host{FilesAlone: true, Log: slog.New(slog.DiscardHandler)})
}
