// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// Repair implements classes.Backend. It applies the live configuration again if resctrl was unmounted or remounted, if
// caches appeared or disappeared with their CPUs, or if managed groups were removed or rewritten.
func (b *Backend) Repair(context.Context) (classes.Drift, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.live.Load()
	monitored := now.config != nil && now.config.monitored.Enabled()
	if len(now.effective) == 0 && !monitored && now.resolution.Devices == nil { // no class is configured or draining
		return classes.Drift{}, nil
	}

	found, err := b.drift(now)
	switch {
	case err == nil && len(found) > 0:
		err = b.reapply(now)
	case err == nil && monitored:
		b.Find()
	}
	if err != nil {
		b.live.Store(now.refused(err))
	}
	return classes.Drift{Found: found}, err
}

// reapply applies the live configuration. It also restores the groups of draining classes, if there are enough CLOSIDs for them.
func (b *Backend) reapply(now *live) error {
	draining := map[string]resctrl.Schemata{}
	for _, class := range now.draining {
		if schemata, ok := now.effective[groups.Of(class)]; ok {
			draining[groups.Of(class)] = schemata
		}
	}

	err := b.apply(now.config, draining)
	if err != nil && len(draining) > 0 {
		err = b.apply(now.config, nil)
	}
	return err
}

// drift compares resctrl with the applied state. It returns one sentence for each difference.
func (b *Backend) drift(now *live) (found []string, err error) {
	t, err := b.find()
	switch {
	case b.canMount(err):
		return []string{"resctrl was unmounted"}, nil
	case err != nil:
		return nil, asUnavailable(err)
	case t.String() != now.machine.String():
		b.remounted()
		return []string{fmt.Sprintf("resctrl was remounted: %s instead of %s", t, now.machine.Tree)}, nil
	}

	root, err := t.Schemata(resctrl.Root)
	if err != nil {
		return nil, fmt.Errorf("read resctrl's root group: %w", err)
	}
	sameDomain := func(_, _ uint64) bool { return true }
	if !maps.EqualFunc(root, now.machine.groups[resctrl.Root].Schemata, sameDomain) {
		return []string{"caches were added or removed with their CPUs"}, nil
	}

	switch changed, err := deviceDrift(t, now); {
	case err != nil:
		return nil, fmt.Errorf("read the masks of device traffic: %w", err)
	case changed:
		return []string{"the cache of device traffic was changed"}, nil
	}
	for _, name := range slices.Sorted(maps.Keys(now.effective)) {
		got, err := t.Schemata(name)
		if err != nil && !resctrl.NotExist(err) {
			return nil, fmt.Errorf("%s: %w", resctrl.Describe(name), err)
		}

		if err != nil {
			if !slices.Contains(b.freed, name) {
				found = append(found, resctrl.Describe(name)+" was removed")
			}
		} else if differences := (resctrl.Info{}).Differences(now.effective[name], got); len(differences) > 0 {
			found = append(found, fmt.Sprintf("%s was rewritten: %s", resctrl.Describe(name), strings.Join(differences, ", ")))
		}
	}
	return found, nil
}
