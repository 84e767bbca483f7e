// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"log/slog"

	"github.com/qos-nri/qos-nri-plugin/pkg/blockio"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/external"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt"
)

// Kinds returns every kind of resource that class files can configure. To add a kind, add it here. This Go file is
// for Linux only, because the backends and their libraries do not compile for other systems.
func Kinds(r rdt.Options, b blockio.Options) []classes.Kind {
	return append([]classes.Kind{rdt.Kind(r), external.Kind()}, blockio.Kinds(b)...)
}

// OfflineKinds returns every kind, for programs that only read class files.
func OfflineKinds() []classes.Kind {
	log := slog.New(slog.DiscardHandler)
	return Kinds(rdt.Options{FilesAlone: true, Log: log}, blockio.Options{Log: log})
}
