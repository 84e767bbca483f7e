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
	return b.enforce(ctx, target, to, nil)
}

var _ classes.ObservedEnforcer = (*Backend)(nil)

// reading has the values that Observe has read from a cgroup: the limits, and the settings in some other files.
type reading struct {
	group iocgroup.Group
	live  iocgroup.Values
	files []iocgroup.File
}

// EnforceObserved implements classes.ObservedEnforcer. It takes the cgroup and its values before the change from the observation, and
// reads the values only after the change.
func (b *Backend) EnforceObserved(ctx context.Context, target classes.Holder, observed classes.Observation, _, to string) error {
	seen, _ := observed.Read.(*reading)
	return b.enforce(ctx, target, to, seen)
}

// open returns the cgroup of a target, and a function that returns its values before a change. `seen` is nil without an
// observation.
func (b *Backend) open(target classes.Holder, m iocgroup.Machine, seen *reading) (iocgroup.Group, ioapply.Reader, error) {
	if seen == nil {
		group, err := b.cgroups.Open(target, m)
		return group, iocgroup.Group.Read, err
	}

	group := seen.group
	group.Machine = m
	return group, func(g iocgroup.Group, files []iocgroup.File) (iocgroup.Values, error) {
		unread := func(file iocgroup.File) bool { return !slices.Contains(seen.files, file) }
		if slices.ContainsFunc(files, unread) {
			return g.Read(files) // the classes were changed after the observation
		}
		return seen.live, nil
	}, nil
}

func (b *Backend) enforce(ctx context.Context, target classes.Holder, to string, seen *reading) error {
	s := b.live.Load()
	wanted, err := s.valuesOf(to)
	if err != nil {
		return err
	}
	concerned := b.cgroups.Records.Get(target).Settings().Merge(wanted)
	if len(concerned) == 0 && !b.cgroups.Records.IsNew(target) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("enforce class %q: %w", to, err)
	}

	if b.scope == classes.PodScope {
		defer b.cgroups.Lock(target)()
	}
	group, read, err := b.open(target, s.machine, seen)
	if err != nil {
		return err
	}
	live, applied, err := b.cgroups.Look(group, target, s.machine.FilesOf(concerned), b.knownFor, read)
	if errors.Is(err, iocgroup.ErrNotEnabled) && wanted.ClearsOnly() {
		return nil // nothing limits the target
	}
	if err != nil {
		return fmt.Errorf("read the values of class %q back: %w", to, err)
	}

	change := b.compare(target, to, wanted, live, applied)
	change.Applied.Class = to
	if s.byRuntime(b.scope) && len(change.Values.Remaining(live)) > 0 {
		b.log.Info("writing values that the runtime did not set", "class", to, "cgroup", group.Dir)
	}
	if err := b.cgroups.Apply(group, target, to, live, change); err != nil {
		return fmt.Errorf("enforce class %q in %s: %w", to, group.Dir, err)
	}
	return nil
}

// compare compares the cgroup of a target with the values of a class. A container that leaves its class gets back what it had been
// created with, also on disks that the class does not name: the runtime writes the values of a class in place of all others.
func (b *Backend) compare(target classes.Holder, class string, wanted, live iocgroup.Values, applied ioapply.Applied) ioapply.Change {
	if b.scope == classes.PodScope {
		return b.cgroups.Compare(b.cgroups.Finder(target), target, b.resource, wanted, live, applied, ioapply.All)
	}

	change := applied.Compare(live, wanted, ioapply.All, ioapply.None)
	if s := b.live.Load(); class == classes.SystemDefault && len(change.Values) > 0 && s.machine.ByRuntime {
		originals, _ := s.stored(target.Spec.Originals.Unified())
		change.Values = change.Values.Merge(originals)
	}
	return change
}

// knownFor returns what the classes set that a target of the backend can have.
func (b *Backend) knownFor() ioapply.Known {
	if b.scope == classes.PodScope {
		return b.cgroups.Known()
	}
	return b.Known()
}
