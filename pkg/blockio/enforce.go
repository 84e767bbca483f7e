// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// Enforce implements classes.Backend. It writes those values of the class that the cgroup lacks, and verifies them by
// reading them back.
func (b *Backend) Enforce(ctx context.Context, target classes.Holder, from, to string) error {
	return b.enforce(ctx, target, from, to, iocgroup.Group.Read)
}

var _ classes.ObservedEnforcer = (*Backend)(nil)

// reading is what Observe has read from a cgroup: the limits, and the weights in some of the weight files.
type reading struct {
	state   iocgroup.Values
	weights []iocgroup.WeightFile
}

// EnforceObserved implements classes.ObservedEnforcer. It takes the values before the change from the observation, and reads
// the values only after the change.
func (b *Backend) EnforceObserved(ctx context.Context, target classes.Holder, observed classes.Observation, from, to string) error {
	seen, ok := observed.Read.(*reading)
	if !ok {
		return b.Enforce(ctx, target, from, to)
	}
	return b.enforce(ctx, target, from, to, func(g iocgroup.Group, weights []iocgroup.WeightFile) (iocgroup.Values, error) {
		unread := func(file iocgroup.WeightFile) bool { return !slices.Contains(seen.weights, file) }
		if slices.ContainsFunc(weights, unread) {
			return g.Read(weights) // the classes were changed after the observation
		}
		return seen.state, nil
	})
}

func (b *Backend) enforce(
	ctx context.Context, target classes.Holder, from, to string, read func(iocgroup.Group, []iocgroup.WeightFile) (iocgroup.Values, error),
) error {
	s := b.live.Load()
	change, known, err := s.change(from, to)
	if err != nil {
		return err
	}
	if !target.Starting {
		change = s.named.ChangeTo(change)
	}
	if len(change) == 0 && known {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("enforce class %q: %w", to, err)
	}

	if b.pods != nil {
		defer b.pods.lock(target)()
	}
	group, err := b.open(s, target)
	if err != nil {
		return err
	}
	weights := s.machine.WeightsOf(change)
	if !known {
		weights = s.machine.WeightFiles
	}
	state, err := read(group, weights)
	if errors.Is(err, iocgroup.ErrNotEnabled) && change.ClearsOnly() {
		return nil // nothing limits the target
	}
	if err != nil {
		return fmt.Errorf("read the values of class %q back: %w", to, err)
	}

	if !known {
		change = state.ChangeTo(change) // a former run of this program knew the class, and may have set any of the values
	}
	if b.pods != nil {
		change = b.pods.tighten(b.pods.finder(b.opts.FS, target), target, b.resource, change, state)
	}
	rest := change.Remaining(state)
	if len(rest) == 0 {
		return nil
	}
	if s.byRuntime(b.scope) {
		b.log.Info("writing values that the runtime did not set", "class", to, "cgroup", group.Dir)
	}
	if err := group.Apply(rest, state, change); err != nil {
		return fmt.Errorf("enforce class %q in %s: %w", to, group.Dir, err)
	}
	return nil
}

func (b *Backend) open(s *snapshot, target classes.Holder) (iocgroup.Group, error) {
	dir, version, err := b.opts.Tree.IODir(target)
	if err != nil {
		return iocgroup.Group{}, fmt.Errorf("find the cgroup: %w", err)
	}
	return iocgroup.Group{Host: b.opts.FS, Machine: s.machine, Version: version, Layout: iocgroup.LayoutOf(version), Dir: dir}, nil
}
