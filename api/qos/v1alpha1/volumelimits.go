// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package qosv1alpha1

import (
	"math"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
)

// NewVolumeClass returns the message of a class with these limits. A negative limit counts as absent.
func NewVolumeClass(name string, limits qos.VolumeLimits) *VolumeClass {
	return &VolumeClass{
		Name:       name,
		MaxReadBps: uint64(max(limits.MaxReadBps, 0)), MaxWriteBps: uint64(max(limits.MaxWriteBps, 0)),
		MaxReadIops: uint64(max(limits.MaxReadIops, 0)), MaxWriteIops: uint64(max(limits.MaxWriteIops, 0)),
	}
}

// Limits returns the limits of the class. It returns math.MaxInt64, which the node refuses, for every larger limit.
func (x *VolumeClass) Limits() qos.VolumeLimits {
	return qos.VolumeLimits{
		MaxReadBps: signed(x.GetMaxReadBps()), MaxWriteBps: signed(x.GetMaxWriteBps()),
		MaxReadIops: signed(x.GetMaxReadIops()), MaxWriteIops: signed(x.GetMaxWriteIops()),
	}
}

func signed(limit uint64) int64 { return int64(min(limit, math.MaxInt64)) }
