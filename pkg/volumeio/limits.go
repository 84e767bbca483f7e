// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeio

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/iodisks"
)

// removeUnused removes limits from a pod's cgroup that were applied and that no holder needs any more. If the cgroup is locked
// for a change, removeUnused does nothing, because the change may hang in the kernel. The next Repair tries again.
func (b *Backend) removeUnused(f *iodisks.Finder, pod classes.Holder) error {
	unlock, ok := b.cgroups.TryLock(pod)
	if !ok {
		return nil
	}
	defer unlock()
	if records := b.cgroups.Records; !records.IsNew(pod) && len(records.Get(pod).Values) == 0 {
		return nil
	}
	group, err := b.open(pod)
	if err != nil {
		return err
	}
	live, applied, err := b.cgroups.Look(group, pod, nil, b.cgroups.Known)
	if errors.Is(err, iocgroup.ErrNotEnabled) {
		return nil // nothing limits the pod
	}
	if err != nil {
		return err
	}

	change := b.cgroups.Compare(f, pod, "", iocgroup.Values{}, live, applied, iocgroup.Setting.IsLimit)
	rest := change.Values.Remaining(live).Only(live.Has)
	b.cgroups.Records.Begin(pod, "", &change, rest)
	var errs []error
	for _, w := range group.Layout.Writes(rest) {
		if err := group.Write(w); !errors.Is(err, syscall.ENODEV) { // the kernel has dropped the limits of a removed device
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	b.cgroups.Records.Confirm(pod, change.Applied)
	if len(rest) == 0 {
		return nil
	}

	var removed []string
	for _, s := range rest.Sorted() {
		removed = append(removed, iocgroup.IOMaxLine(s.Device, live[s]))
	}
	b.cgroups.Log.Info("removed limits that no class of the pod or of its volumes sets any more", "holder", pod.String(), "limits", removed)
	return nil
}

// describeLower describes limits that another program has set, or returns "" if there are none.
func describeLower(foreign iocgroup.Values) string {
	var parts []string
	for _, s := range foreign.Sorted() {
		part := s.Device.String()
		for kind, key := range iocgroup.RateKeys() {
			if limit := foreign[s][kind]; limit != 0 {
				part += fmt.Sprintf(" %s=%d", key, limit)
			}
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return ""
	}
	return "lower limits on " + strings.Join(parts, ", ")
}

// LimitsFor implements ioapply.Limiter.
func (b *Backend) LimitsFor(f *iodisks.Finder, target classes.Holder, name string) (iocgroup.Values, error) {
	class, err := b.class(name)
	if err != nil {
		return nil, err
	}
	found, err := b.find(f, target, class)
	if errors.Is(err, classes.ErrEnded) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return found.Limit(class.limits), nil
}

// Known implements ioapply.Limiter.
func (b *Backend) Known() (all ioapply.Known) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, class := range b.classes {
		all.Limits = append(all.Limits, class.limits)
	}
	return all
}
