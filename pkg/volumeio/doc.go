// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package volumeio is the backend that enforces classes of volumes. It limits the disks of a volume in the cgroup of the pod.
package volumeio
