// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"context"
	"fmt"
	"reflect"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
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

	b.goLive(next.inherit)
	drift := classes.Drift{DevicesGone: b.devicesGone.Swap(false) || now.loses(next)}
	if drift.DevicesGone || !now.resolvesLike(next) {
		drift.Found = now.differences(next)
	}
	return drift, nil
}

func (s *snapshot) loses(next *snapshot) bool {
	for of := range s.named {
		if s.machine.Names[of.Device] != "" && next.machine.Names[of.Device] == "" {
			return true
		}
	}
	return false
}

// differences describes how the machine of the next snapshot differs from the machine of s. Each difference is one sentence.
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
	for name, live := range next.classes {
		if !reflect.DeepEqual(live.values, s.classes[name].values) {
			return false
		}
	}
	return reflect.DeepEqual(s.status, next.status)
}
