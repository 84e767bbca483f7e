// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package invm holds the tests that run inside of the test VM, as a CRI client beside a container runtime and the plugin.
package invm
