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
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// Observe implements classes.Backend. It compares the cgroup's values with the values of each class and of the system
// default. It compares only the settings that some class has.
//
//   - If the values are those of the class want, Observe returns want.
//   - If they are those of exactly one class, Observe returns this class.
//   - Otherwise the class is unknown.
//
// If the class is the system default or unknown, Foreign lists the limits and weights that differ from those of a new
// cgroup. If `want` is another class, Foreign lists only weights in files in which some class sets weights.
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
	weights := s.machine.WeightsOf(s.named)
	if want == classes.SystemDefault {
		weights = s.machine.WeightFiles // Foreign lists the weights of other programs
	}
	state, err := group.Read(weights)
	if err != nil && !errors.Is(err, iocgroup.ErrNotEnabled) {
		return classes.Observation{}, err
	}

	if b.pods != nil {
		state = b.pods.without(b.pods.finder(b.opts.FS, target), target, b.resource, state, s.classes[want].values)
	}
	named, seen := state.Only(s.named.Has), classes.Observation{Class: want, Known: true}
	if wanted, err := s.valuesOf(want); err != nil || !named.Equals(wanted) {
		seen.Class, seen.Known = s.recognize(named)
	}
	if seen.Class == classes.SystemDefault {
		seen.Foreign = group.Machine.Describe(state)
	}
	if b.pods == nil && err == nil {
		seen.Read = &reading{state, weights}
	}
	return seen, nil
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
func (s *snapshot) recognize(state iocgroup.Values) (class string, ok bool) {
	matches := 0
	if state.Equals(nil) {
		matches++ // the system default
	}

	for name, live := range s.classes {
		if state.Equals(live.values) {
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
	former := stored.Only(func(s iocgroup.Setting) bool { return !now.named.Has(s) })
	if len(former) > 0 {
		b.goLive(func(now *snapshot) *snapshot {
			next := *now
			next.former = now.former.Merge(former)
			return &next
		})
	}

	wanted, err := now.valuesOf(class)
	return deviceGone || err == nil && !stored.Equals(wanted)
}

func (s *snapshot) stored(files map[string]string) (stored iocgroup.Values, deviceGone bool) {
	stored = iocgroup.Values{}
	for _, file := range []string{iocgroup.IOMax, string(iocgroup.IOWeight), string(iocgroup.IOBFQWeight)} {
		var set strings.Builder
		for line := range strings.Lines(files[file]) {
			name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
			dev, err := iocgroup.ParseDevice(name)
			deviceGone = deviceGone || err == nil && s.machine.Names[dev] == ""
			if text != "default" {
				set.WriteString(line)
			}
		}

		one := iocgroup.Values{}
		known := file == iocgroup.IOMax || slices.Contains(s.machine.WeightFiles, iocgroup.WeightFile(file))
		if err := (iocgroup.Unified{}).Parse(one, file, []byte(set.String())); err == nil && known {
			stored = stored.Merge(one)
		}
	}
	return s.machine.Present(stored).Only(func(of iocgroup.Setting) bool { return stored[of] != of.Initial() }), deviceGone
}
