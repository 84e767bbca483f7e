// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the programs on real parts: a kernel with resctrl and cgroup io, containerd and runc, in a virtual machine.
package e2e
