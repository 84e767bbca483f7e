// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubernetes tests the programs on a whole Kubernetes: API server, scheduler, kubelet and containerd, on this machine.
package kubernetes
