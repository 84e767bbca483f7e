// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubernetes tests the programs in a Kubernetes cluster. The control plane runs on this machine. The kubelet and
// containerd of a node run on this machine or in a VM.
package kubernetes
