// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ioapply applies classes of block I/O to cgroups. It records what it applied to each cgroup, and compares
// three values of each setting, as "kubectl apply" does: the last applied value, the live value of the cgroup, and the
// value that the classes want.
package ioapply
