// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cgroup is a machine in memory whose cgroups, disks and devices answer as the kernel does: errnos, defaults and
// read-back of the io and blkio controllers, as far as the conformance table of this package goes.
package cgroup
