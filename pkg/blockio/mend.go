// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Mend implements classes.Backend. Nothing of a configuration is in the kernel but in the cgroups of containers; what it looks at are
// disks that came or went, and what they do with weights.
func (b *Backend) Mend(context.Context) (classes.Mended, error) {
	now := b.live.Load()
	if now.config == nil {
		return classes.Mended{}, nil
	}
	next, err := b.resolve(now.config)
	if err != nil {
		return classes.Mended{}, err
	}
	mended := classes.Mended{Found: now.differences(next), DevicesGone: len(missing(now.machine, next.machine)) > 0}
	if len(mended.Found) > 0 {
		next.inherit(now)
		b.live.Store(next)
	}
	return mended, nil
}

// differences between what is live and the same configuration as the machine is now, a sentence each.
func (s *snapshot) differences(now *snapshot) (found []string) {
	for _, dev := range missing(s.machine, now.machine) {
		found = append(found, fmt.Sprintf("disk %s is gone", s.machine.diskName(dev)))
	}
	for _, dev := range missing(now.machine, s.machine) {
		found = append(found, fmt.Sprintf("disk %s is new", now.machine.diskName(dev)))
	}
	if len(found) == 0 && !s.means(now) {
		found = append(found, "device files or I/O schedulers changed")
	}
	return found
}

// means says whether the offered classes of both come to the same.
func (s *snapshot) means(other *snapshot) bool {
	for name, live := range other.classes {
		if !reflect.DeepEqual(live.values, s.classes[name].values) {
			return false
		}
	}
	return reflect.DeepEqual(s.machine, other.machine) && reflect.DeepEqual(s.status, other.status)
}

// missing are the disks that another machine has not.
func missing(m, other machine) (disks []device) {
	for _, dev := range slices.SortedFunc(maps.Keys(m.names), compareDevices) {
		if other.names[dev] == "" {
			disks = append(disks, dev)
		}
	}
	return disks
}

// present are the values without those of disks that the machine has not.
func (s *snapshot) present(all values) values {
	present := newValues()
	for dev, limits := range all.rates {
		if s.machine.names[dev] != "" {
			present.rates[dev] = limits
		}
	}
	for file, w := range all.weights {
		kept := weights{base: w.base, devices: map[device]uint64{}}
		for dev, weight := range w.devices {
			if s.machine.names[dev] != "" {
				kept.devices[dev] = weight
			}
		}
		present.weights[file] = kept
	}
	return present
}

// idle is a line of io.max that does nothing, for some disk; runtimes do not forget a file that they were once told, but take
// another text for it.
func (m *machine) idle() map[string]string {
	disks := slices.SortedFunc(maps.Keys(m.names), compareDevices)
	if len(disks) == 0 {
		return nil
	}
	return map[string]string{ioMax: ioMaxLine(disks[0], unlimited())}
}
