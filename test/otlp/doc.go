// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package otlp sends traces of the plugin to the receiver of the OpenTelemetry Collector. It is a module of its own, so that no other module
// depends on the collector.
package otlp
