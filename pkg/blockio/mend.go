// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Repair implements classes.Backend. Nothing of a configuration is in the kernel but in the cgroups of containers; what it looks at are
// disks that came or went, and what they do with weights. Disks of no class are nobody's business.
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
	mended := classes.Drift{DevicesGone: b.gone.Swap(false) || now.loses(next)}
	if mended.DevicesGone || !now.means(next) {
		mended.Found = now.differences(next)
	}
	return mended, nil
}

// loses says whether containers may have values of a disk that there is no more.
func (s *snapshot) loses(now *snapshot) bool {
	return slices.ContainsFunc(missing(s.machine, now.machine), s.named.mentions)
}

func (v values) mentions(dev device) bool {
	_, limited := v.rates[dev]
	for _, w := range v.weights {
		_, weighed := w.devices[dev]
		limited = limited || weighed
	}
	return limited
}

// StoresGone reports whether stored cgroup v2 files name a device that the machine has no more.
func (b *Backend) StoresGone(unified map[string]string) bool {
	s := b.live.Load()
	if s.config == nil {
		return false
	}
	for _, file := range []string{ioMax, string(ioWeight), string(ioBFQWeight)} {
		for line := range strings.Lines(unified[file]) {
			first, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			if dev, err := parseDevice(first); err == nil && s.machine.names[dev] == "" {
				return true
			}
		}
	}
	return false
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

// means says whether the classes of both come to the same.
func (s *snapshot) means(other *snapshot) bool {
	for name, live := range other.classes {
		if !reflect.DeepEqual(live.values, s.classes[name].values) {
			return false
		}
	}
	return reflect.DeepEqual(s.status, other.status)
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

// idle are texts that do nothing, for the files that a change is about and that its own text leaves out, the disks being gone: runtimes
// do not forget a file that they were once told, but take another text for it.
func (m *machine) idle(change values, text map[string]string) map[string]string {
	idle := map[string]string{}
	disks := slices.SortedFunc(maps.Keys(m.names), compareDevices)
	if text[ioMax] == "" && len(change.rates) > 0 && len(disks) > 0 {
		idle[ioMax] = ioMaxLine(disks[0], unlimited())
	}
	for file := range change.weights {
		if text[string(file)] == "" {
			idle[string(file)] = fmt.Sprintf("default %d", file.initial())
		}
	}
	return idle
}
