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

// Observe implements classes.Backend. It compares the cgroup's values with the values of the classes, and ignores
// settings that no class names. It returns a class if the cgroup has exactly the values of this class. If several
// classes, or a class and the system default, have these values, it returns the wanted class or none.
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

// hasEnded reports whether a target without a cgroup has ended. It checks the process of the target, because the
// process may still run when the runtime reports paths that are not paths on the host.
func (b *Backend) hasEnded(target classes.Holder) bool {
	if target.Container == "" {
		return true
	}
	_, err := b.opts.FS.ReadFile(fmt.Sprintf("/proc/%d/cgroup", target.PID))
	return target.PID > 0 && errors.Is(err, fs.ErrNotExist)
}

// recognize returns the class that has these values. It returns no class if several classes have them.
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
