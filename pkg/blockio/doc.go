// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package blockio is the backend that enforces classes of block I/O by the io controller of cgroup v2 and the blkio
// controller of cgroup v1. Its configuration is that of goresctrl.
package blockio
