// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"cmp"
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

// Observe implements classes.Backend. It compares what was applied last, what the cgroup has, and the values of the
// class `want`.
//
//   - If nothing has to be changed, the class is `want`.
//   - Otherwise it is the class that was applied last. If that is `want` as well, the class is unknown: another program has changed
//     the values.
//
// If the class is the system default or unknown, `Foreign` lists the limits and weights that other programs have set.
func (b *Backend) Observe(ctx context.Context, target classes.Holder, want string) (classes.Observation, error) {
	if err := ctx.Err(); err != nil {
		return classes.Observation{}, fmt.Errorf("observe: %w", err)
	}

	s := b.live.Load()
	group, err := b.cgroups.Open(target, s.machine)
	if errors.Is(err, cgroup.ErrNoCgroup) && b.hasEnded(target) {
		return classes.Observation{}, fmt.Errorf("%w: %w", classes.ErrEnded, err)
	}
	if err != nil {
		return classes.Observation{}, err
	}
	wanted, unknownErr := s.valuesOf(want)
	files := s.filesOf(b.cgroups.Records.Get(target), wanted)
	if want == classes.SystemDefault || b.cgroups.Records.IsNew(target) {
		files = s.machine.Files // Foreign lists what other programs have set
	}
	live, applied, err := b.cgroups.Look(group, target, files, b.knownFor)
	if err != nil && !errors.Is(err, iocgroup.ErrNotEnabled) {
		return classes.Observation{}, err
	}

	change := b.compare(target, want, wanted, live, applied)
	seen := classes.Observation{Class: want, Known: true}
	switch {
	case unknownErr != nil || len(change.Values.Remaining(live)) > 0:
		seen.Class, seen.Known = applied.Class, applied.Class != want
		if applied.Class == classes.SystemDefault {
			seen.Known = b.scope == classes.PodScope || !applied.In(live) // a pod without a class can have the limits of its volumes
		}
	case err == nil:
		change.Applied.Class = want
		b.cgroups.Records.Confirm(target, change.Applied)
	}
	if !seen.Known {
		seen.Class, seen.Left = classes.SystemDefault, want == classes.SystemDefault && applied.In(live)
	}
	if seen.Class == classes.SystemDefault {
		seen.Foreign = group.Machine.Describe(applied.Foreign(live))
	}
	return seen, nil
}

// hasEnded reports whether a target without a cgroup has ended. It checks whether the container's process exists,
// because the cgroup is also missing if the runtime reports a path that is not on the host.
func (b *Backend) hasEnded(target classes.Holder) bool {
	if target.Container == "" {
		return true
	}
	_, err := b.cgroups.FS.ReadFile(fmt.Sprintf("/proc/%d/cgroup", target.PID))
	return target.PID > 0 && errors.Is(err, fs.ErrNotExist)
}

var _ classes.StoredValueChecker = (*Backend)(nil)

// IsStale implements classes.StoredValueChecker.
func (b *Backend) IsStale(target classes.Holder, class string, files map[string]string) bool {
	now := b.live.Load()
	if now.config == nil || !now.byRuntime(b.scope) {
		return false
	}

	stored, deviceGone := now.stored(files)
	b.cgroups.Records.Store(target, stored, func(s iocgroup.Setting) bool {
		_, in := files[cmp.Or(string(s.File), iocgroup.IOMax)]
		return in
	})
	wanted, err := now.valuesOf(class)
	return deviceGone || err == nil && !stored.Equals(wanted)
}

func (s *snapshot) stored(files map[string]string) (stored iocgroup.Values, deviceGone bool) {
	stored = iocgroup.Values{}
	for _, file := range []string{iocgroup.IOMax, string(iocgroup.IOWeight), string(iocgroup.IOBFQWeight), string(iocgroup.IOLatency)} {
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
		known := file == iocgroup.IOMax || slices.Contains(s.machine.Files, iocgroup.File(file))
		if err := (iocgroup.Unified{}).Parse(one, file, []byte(set.String())); err == nil && known {
			stored = stored.Merge(one)
		}
	}
	return s.machine.Present(stored).Only(func(of iocgroup.Setting) bool { return stored[of] != of.Initial() }), deviceGone
}
