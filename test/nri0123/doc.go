// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nri0123 tests the plugin with the runtime side of NRI v0.12.3, which containerd 2.4 uses. The plugin links a later version of
// NRI, and a program can link only one version of a module. So this package is a module of its own, and the plugin, which is built from
// the main module, runs as a process of its own.
package nri0123
