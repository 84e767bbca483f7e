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

// Observe implements classes.Backend. A class is recognized when the cgroup has its values and no others of any class, and it is the wanted
// one, or no other class, the system default included, has the same. What no class names is nobody's business.
func (b *Backend) Observe(ctx context.Context, target classes.Holder, want string) (class string, ok bool, err error) {
	if err := ctx.Err(); err != nil {
		return "", false, fmt.Errorf("observe: %w", err)
	}
	s := b.live.Load()
	group, err := b.open(s, target)
	if errors.Is(err, cgroup.ErrNoCgroup) && b.ended(target) {
		return "", false, fmt.Errorf("%w: %w", classes.ErrEnded, err)
	}
	if err != nil {
		return "", false, err
	}
	state, err := group.read()
	if err != nil && !errors.Is(err, ErrNotEnabled) {
		return "", false, err
	}
	state, _ = state.split(s.named)
	if wanted, err := s.valuesOf(want); err == nil && state.equals(wanted) {
		return want, true, nil
	}
	class, ok = s.recognize(state)
	return class, ok, nil
}

// ended is asked of targets without a cgroup. Where the runtime tells paths that are not the host's, processes run all the same.
func (b *Backend) ended(target classes.Holder) bool {
	if target.Container == "" {
		return true
	}
	_, err := b.opts.FS.ReadFile(fmt.Sprintf("/proc/%d/cgroup", target.PID))
	return target.PID > 0 && errors.Is(err, fs.ErrNotExist)
}

func (s *snapshot) recognize(state values) (class string, ok bool) {
	matches := 0
	if state.equals(values{}) {
		matches++
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

// equals says whether a state is exactly that of a class: nothing missing, and nothing more.
func (v values) equals(class values) bool {
	return v.changeTo(class).remaining(v).isEmpty()
}
