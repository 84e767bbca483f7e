// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Observe implements classes.Backend. A class is recognized when the cgroup has exactly its values, out of all values that any
// class names. If other classes, or the system default, have the same values, only the wanted class is recognized.
func (b *Backend) Observe(ctx context.Context, target classes.Holder, want string) (class string, ok bool, err error) {
	if err := ctx.Err(); err != nil {
		return "", false, fmt.Errorf("observe: %w", err)
	}

	s := b.live.Load()
	group, err := b.open(s, target)
	if errors.Is(err, cgroup.ErrNoCgroup) && b.hasEnded(target) {
		return "", false, fmt.Errorf("%w: %w", classes.ErrEnded, err)
	}
	if err != nil {
		return "", false, err
	}
	state, err := group.read()
	if err != nil && !errors.Is(err, ErrNotEnabled) {
		return "", false, err
	}

	state = state.only(s.named.has)
	if wanted, err := s.valuesOf(want); err == nil && state.equals(wanted) {
		return want, true, nil
	}
	class, ok = s.recognize(state)
	return class, ok, nil
}

// hasEnded reports whether a target without a cgroup has ended. Its process may still run if the runtime gives paths that are not
// the host's.
func (b *Backend) hasEnded(target classes.Holder) bool {
	if target.Container == "" {
		return true
	}
	_, err := b.opts.FS.ReadFile(fmt.Sprintf("/proc/%d/cgroup", target.PID))
	return target.PID > 0 && errors.Is(err, fs.ErrNotExist)
}

// recognize returns the only class that has these values.
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
