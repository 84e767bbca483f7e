// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// Enforce implements classes.Backend. It writes those values of the class that the cgroup lacks, clears what was applied and is not
// of the class, and verifies both by reading the values back.
func (b *Backend) Enforce(ctx context.Context, target classes.Holder, _, to string) error {
	return b.enforce(ctx, target, to, iocgroup.Group.Read)
}

var _ classes.ObservedEnforcer = (*Backend)(nil)

// reading is what Observe has read from a cgroup: the limits, and the weights in some of the weight files.
type reading struct {
	live    iocgroup.Values
	weights []iocgroup.WeightFile
}

// EnforceObserved implements classes.ObservedEnforcer. It takes the values before the change from the observation, and reads
// the values only after the change.
func (b *Backend) EnforceObserved(ctx context.Context, target classes.Holder, observed classes.Observation, from, to string) error {
	seen, ok := observed.Read.(*reading)
	if !ok {
		return b.Enforce(ctx, target, from, to)
	}
	return b.enforce(ctx, target, to, func(g iocgroup.Group, weights []iocgroup.WeightFile) (iocgroup.Values, error) {
		unread := func(file iocgroup.WeightFile) bool { return !slices.Contains(seen.weights, file) }
		if slices.ContainsFunc(weights, unread) {
			return g.Read(weights) // the classes were changed after the observation
		}
		return seen.live, nil
	})
}

func (b *Backend) enforce(ctx context.Context, target classes.Holder, to string, read reader) error {
	s := b.live.Load()
	wanted, err := s.valuesOf(to)
	if err != nil {
		return err
	}
	concerned := b.shared.records.Get(target).Settings().Merge(wanted)
	if len(concerned) == 0 && !b.shared.records.IsNew(target) {
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
	live, applied, err := b.shared.look(group, target, s.machine.WeightsOf(concerned), b.knownFor, read)
	if errors.Is(err, iocgroup.ErrNotEnabled) && wanted.ClearsOnly() {
		return nil // nothing limits the target
	}
	if err != nil {
		return fmt.Errorf("read the values of class %q back: %w", to, err)
	}

	change := b.compare(target, wanted, live, applied)
	change.Applied.Class = to
	if s.byRuntime(b.scope) && len(change.Values.Remaining(live)) > 0 {
		b.log.Info("writing values that the runtime did not set", "class", to, "cgroup", group.Dir)
	}
	if err := b.shared.apply(group, target, to, live, change); err != nil {
		return fmt.Errorf("enforce class %q in %s: %w", to, group.Dir, err)
	}
	return nil
}

// compare compares the cgroup of a target with the values of a class.
func (b *Backend) compare(target classes.Holder, wanted, live iocgroup.Values, applied ioapply.Applied) ioapply.Change {
	if b.pods != nil {
		return b.pods.compare(b.pods.finder(b.opts.FS, target), target, b.resource, wanted, live, applied, all)
	}
	return applied.Compare(live, wanted, all, none)
}

// knownFor returns what the classes set that a target of the backend can have.
func (b *Backend) knownFor() ioapply.Known {
	if b.pods != nil {
		return b.pods.known()
	}
	return b.known()
}

func (b *Backend) open(s *snapshot, target classes.Holder) (iocgroup.Group, error) {
	dir, version, err := b.opts.Tree.IODir(target)
	if err != nil {
		return iocgroup.Group{}, fmt.Errorf("find the cgroup: %w", err)
	}
	return iocgroup.Group{Host: b.opts.FS, Machine: s.machine, Version: version, Layout: iocgroup.LayoutOf(version), Dir: dir}, nil
}
