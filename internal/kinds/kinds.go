// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kinds lists the types of resources that our programs know.
package kinds

import (
	"log/slog"

	"github.com/qos-nri/qos-nri-plugin/pkg/blockio"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt"
)

// All has every kind. A new type of resource is one more line here, and its options where there is a machine.
func All(r rdt.Options, b blockio.Options) []classes.Kind {
	return []classes.Kind{
		rdt.Kind(r),
		blockio.Kind(b),
	}
}

// Offline has every kind, good for reading class files, and for nothing on a machine. It is for any operating system.
func Offline() []classes.Kind {
	log := slog.New(slog.DiscardHandler)
	return All(rdt.Options{Log: log}, blockio.Options{Log: log})
}
