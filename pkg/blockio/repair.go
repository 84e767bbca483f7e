// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// Repair implements classes.Backend. It resolves the live configuration again, and makes the new snapshot live. It
// reports drift if the values of a class or the status changed, e.g. because a disk was added or got another I/O
// scheduler. It does not read the cgroups of containers.
func (b *Backend) Repair(context.Context) (classes.Drift, error) {
	now := b.live.Load()
	if now.config == nil {
		return classes.Drift{}, nil
	}
	next, err := b.resolve(now.config)
	if err != nil {
		return classes.Drift{}, err
	}
	costs, err := b.cgroups.Costs.Set(b.resource, &next.machine, next.costs)
	if err != nil {
		return classes.Drift{}, err
	}

	b.goLive(next.inherit)
	b.cgroups.Tidy(&next.machine)
	drift := classes.Drift{DevicesGone: b.devicesGone.Swap(false) || b.loses(now, next)}
	if drift.DevicesGone || !now.resolvesLike(next) {
		drift.Found = now.differences(next)
	}
	for _, dev := range costs {
		drift.Found = append(drift.Found, "the cost model of "+next.machine.DiskName(dev)+" was not in force")
	}
	return drift, nil
}

// loses reports whether the machine has lost disks for which classes have or had values.
func (b *Backend) loses(now, next *snapshot) bool {
	return slices.ContainsFunc(now.machine.Without(next.machine), func(dev iocgroup.Device) bool {
		return now.names(dev) || b.cgroups.Records.HasDevice(dev)
	})
}

func (s *snapshot) names(dev iocgroup.Device) bool {
	for _, class := range s.classes {
		for of := range class.values {
			if of.Device == dev {
				return true
			}
		}
	}
	return false
}

// differences describes how the machine of the next snapshot differs from the machine of `s`. Each difference is one sentence.
func (s *snapshot) differences(next *snapshot) (found []string) {
	for _, dev := range s.machine.Without(next.machine) {
		found = append(found, fmt.Sprintf("disk %s is gone", s.machine.DiskName(dev)))
	}
	for _, dev := range next.machine.Without(s.machine) {
		found = append(found, fmt.Sprintf("disk %s is new", next.machine.DiskName(dev)))
	}
	if len(found) == 0 && !s.resolvesLike(next) {
		found = append(found, "device files, mounts or I/O schedulers changed")
	}
	return found
}

func (s *snapshot) resolvesLike(next *snapshot) bool {
	for name := range next.classes {
		after, err := next.valuesOf(name)
		if before, errBefore := s.valuesOf(name); errors.Join(err, errBefore) != nil || !maps.Equal(before, after) {
			return false
		}
	}
	return reflect.DeepEqual(s.status, next.status)
}
