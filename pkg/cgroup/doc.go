// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cgroup finds the cgroups of containers and pods, and the threads in them, on machines with cgroup v2, v1 or both.
package cgroup
