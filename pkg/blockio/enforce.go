// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"context"
	"errors"
	"fmt"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// Enforce implements classes.Backend. It writes the values of the class that the cgroup lacks, and clears applied
// values that the class does not have. It verifies both by reading the values back. It opens each file of the cgroup
// once.
func (b *Backend) Enforce(ctx context.Context, target classes.Holder, _, to string) (err error) {
	s := b.live.Load()
	wanted, err := s.valuesOf(to)
	if err != nil {
		return err
	}
	before := b.cgroups.Records.Get(target)
	if len(before.Values)+len(wanted) == 0 && !b.cgroups.Records.IsNew(target) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("enforce class %q: %w", to, err)
	}

	if b.scope == classes.PodScope {
		defer b.cgroups.Lock(target)()
	}
	group, err := b.cgroups.Open(target, s.machine)
	if err != nil {
		return err
	}
	host, end := iocgroup.KeepOpen(group.Host)
	defer func() { err = errors.Join(err, end()) }()
	group.Host = host
	live, applied, err := b.cgroups.Look(group, target, s.filesOf(before, wanted), b.knownFor)
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

var _ classes.ChangeChecker = (*Backend)(nil)

// HasChanged implements classes.ChangeChecker. It returns false for pods, because a pod's cgroup also has the limits of
// its volumes, and for values that the runtime writes. The caller observes these targets first.
func (b *Backend) HasChanged(target classes.Holder, class string) bool {
	return b.scope == classes.ContainerScope && !b.live.Load().byRuntime(b.scope) && b.cgroups.Records.IsChanging(target, class)
}

// compare compares the cgroup of a target with the values of a class. If a container leaves its class, the change also
// restores the values with which the container was created, even on disks that the class does not name: when the
// runtime wrote the values of the class, it replaced all others.
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

// knownFor returns the values of all classes that a target of this backend can have.
func (b *Backend) knownFor() ioapply.Known {
	if b.scope == classes.PodScope {
		return b.cgroups.Known()
	}
	return b.Known()
}
