// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package iodisks finds disks: those that patterns and aliases in class files select, and those of the volumes of pods.
package iodisks

import "github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"

// FS is the part of the host's filesystem that is needed to find disks. Paths are paths on the host.
type FS interface {
	iocgroup.FS
	Glob(pattern string) ([]string, error)
	BlockDevice(path string) (major, minor uint32, err error)
}
