// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Observe implements classes.Backend. It compares the cgroup's values with the values of each class and of the system
// default. It compares only the settings that some class has.
//
//   - If the values are those of the class want, Observe returns want.
//   - If they are those of exactly one class, Observe returns this class.
//   - Otherwise the class is unknown.
//
// If the class is the system default or unknown, Foreign lists the limits and weights that differ from those of a new
// cgroup. If want is another class, Foreign lists only weights in files in which some class sets weights.
func (b *Backend) Observe(ctx context.Context, target classes.Holder, want string) (classes.Observation, error) {
	if err := ctx.Err(); err != nil {
		return classes.Observation{}, fmt.Errorf("observe: %w", err)
	}

	s := b.live.Load()
	group, err := b.open(s, target)
	if errors.Is(err, cgroup.ErrNoCgroup) && b.hasEnded(target) {
		return classes.Observation{}, fmt.Errorf("%w: %w", classes.ErrEnded, err)
	}
	if err != nil {
		return classes.Observation{}, err
	}
	weights := s.machine.weightsOf(s.named)
	if want == classes.SystemDefault {
		weights = s.machine.weightFiles // Foreign lists the weights of other programs
	}
	state, err := group.read(weights)
	if err != nil && !errors.Is(err, ErrNotEnabled) {
		return classes.Observation{}, err
	}

	if b.pods != nil {
		state = b.pods.without(b.pods.finder(b.opts.FS, target), target, b.resource, state, s.classes[want].values)
	}
	named, seen := state.only(s.named.has), classes.Observation{Class: want, Known: true}
	if wanted, err := s.valuesOf(want); err != nil || !named.equals(wanted) {
		seen.Class, seen.Known = s.recognize(named)
	}
	if seen.Class == classes.SystemDefault {
		seen.Foreign = group.machine.describe(state)
	}
	if b.pods == nil && err == nil {
		seen.Read = &reading{state, weights}
	}
	return seen, nil
}

// describe lists the disks and files whose values in a state differ from those in a new cgroup.
func (m *machine) describe(state values) string {
	var parts []string
	for _, s := range state.only(func(s setting) bool { return state[s] != s.initial() }).sorted() {
		switch {
		case s.isDefaultWeight():
			parts = append(parts, string(s.file))
		case s.file == "":
			parts = append(parts, "limits of "+m.diskName(s.device))
		default:
			parts = append(parts, string(s.file)+" of "+m.diskName(s.device))
		}
	}
	return strings.Join(parts, ", ")
}

// hasEnded reports whether a target without a cgroup has ended. It checks whether the container's process exists,
// because the cgroup is also missing if the runtime reports a path that is not on the host.
func (b *Backend) hasEnded(target classes.Holder) bool {
	if target.Container == "" {
		return true
	}
	_, err := b.opts.FS.ReadFile(fmt.Sprintf("/proc/%d/cgroup", target.PID))
	return target.PID > 0 && errors.Is(err, fs.ErrNotExist)
}

// recognize returns the class that has the values in state. If several classes have these values, or none has them, ok
// is false.
func (s *snapshot) recognize(state values) (class string, ok bool) {
	matches := 0
	if state.equals(nil) {
		matches++ // the system default
	}

	for name, live := range s.classes {
		if state.equals(live.values) {
			class = name
			matches++
		}
	}
	if matches != 1 {
		return "", false
	}
	return class, true
}

var _ classes.StoredValueChecker = (*Backend)(nil)

// IsStale implements classes.StoredValueChecker. If a stored value belongs to no class, IsStale remembers it, so that
// the next change of a container's class clears this value.
func (b *Backend) IsStale(class string, files map[string]string) bool {
	now := b.live.Load()
	if now.config == nil || !now.byRuntime(b.scope) {
		return false
	}

	stored, deviceGone := now.stored(files)
	former := stored.only(func(s setting) bool { return !now.named.has(s) })
	if len(former) > 0 {
		b.goLive(func(now *snapshot) *snapshot {
			next := *now
			next.former = now.former.merge(former)
			return &next
		})
	}

	wanted, err := now.valuesOf(class)
	return deviceGone || err == nil && !stored.equals(wanted)
}

func (s *snapshot) stored(files map[string]string) (stored values, deviceGone bool) {
	stored = values{}
	for _, file := range []string{ioMax, string(ioWeight), string(ioBFQWeight)} {
		var set strings.Builder
		for line := range strings.Lines(files[file]) {
			name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
			dev, err := parseDevice(name)
			deviceGone = deviceGone || err == nil && s.machine.names[dev] == ""
			if text != "default" {
				set.WriteString(line)
			}
		}

		one := values{}
		known := file == ioMax || slices.Contains(s.machine.weightFiles, weightFile(file))
		if err := (unified{}).parse(one, file, []byte(set.String())); err == nil && known {
			stored = stored.merge(one)
		}
	}
	return s.machine.present(stored).only(func(of setting) bool { return stored[of] != of.initial() }), deviceGone
}
