// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"context"
	"errors"
	"fmt"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Observe implements classes.Backend. A class is recognized when the cgroup has its values and no others, and no other class,
// the system default included, has the same.
func (b *Backend) Observe(ctx context.Context, target classes.Target) (class string, ok bool, err error) {
	if err := ctx.Err(); err != nil {
		return "", false, fmt.Errorf("observe: %w", err)
	}
	s := b.live.Load()
	group, err := b.open(s, target)
	if err != nil {
		return "", false, err
	}
	state, err := group.read()
	if err != nil && !errors.Is(err, ErrNotEnabled) {
		return "", false, err
	}
	class, ok = s.recognize(state)
	return class, ok, nil
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
