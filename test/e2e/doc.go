// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the programs with real components in virtual machines: a kernel with resctrl and cgroup io, a
// container runtime, and runc or crun.
package e2e
