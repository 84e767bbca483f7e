// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cgroup simulates a machine whose cgroups, disks and devices behave like the kernel's: errnos, defaults and
// read-back of the io and blkio controllers. The conformance table of this package shows which behaviour is simulated.
package cgroup
