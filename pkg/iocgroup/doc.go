// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package iocgroup reads, writes and verifies the files of the io controller of cgroup v2 and of the blkio controller of
// cgroup v1: limits of disks in bytes or operations per second, and weights.
//
// Inspect returns the Machine: its disks, and the weight files that act on them. A Group is one cgroup on it: Read returns its
// Values, and Apply writes a change, verifies it, and restores the values before the change after an error. Values of both
// versions have the same form; a Layout translates them. The package knows nothing of classes, and takes no locks.
package iocgroup
