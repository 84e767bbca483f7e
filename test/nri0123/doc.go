// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nri0123 tests the plugin with the runtime side of NRI v0.12.3, which containerd 2.4 uses. It is a module of its own
// because a program can link only one version of a module: the plugin is built from the main module and runs as a process of its own.
package nri0123
