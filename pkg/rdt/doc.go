// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rdt gives containers their class of cache and memory bandwidth, through the kernel's resctrl filesystem.
package rdt
