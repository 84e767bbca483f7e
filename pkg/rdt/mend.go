// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Repair implements classes.Backend. It reads the mounts and the schemata of our groups, and applies the live configuration again if
// anything is not as it was left: unmounted, mounted anew, domains that came or went with their CPUs, groups removed or rewritten.
func (b *Backend) Repair(context.Context) (classes.Drift, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.live.Load()
	if len(now.effective) == 0 { // nothing is configured, and nothing drains: others may do with resctrl what they like
		return classes.Drift{}, nil
	}
	found, err := b.damage(now)
	if err == nil && len(found) > 0 {
		err = b.applyAnew(now)
	}
	if err != nil {
		b.live.Store(now.refused(err))
	}
	return classes.Drift{Found: found}, err
}

// applyAnew keeps the groups that drain, too: where there is no room for one of those any more, what runs in it is where the
// kernel has put it.
func (b *Backend) applyAnew(now *live) error {
	draining := map[string]Schemata{}
	for class := range now.draining {
		if schemata, known := now.effective[GroupOf(class)]; known {
			draining[GroupOf(class)] = schemata
		}
	}
	err := b.apply(now.config, draining)
	if err != nil && len(draining) > 0 {
		err = b.apply(now.config, nil)
	}
	return err
}

// damage is what is not as it was left, a sentence each.
func (b *Backend) damage(now *live) ([]string, error) {
	mount, err := locate(b.host)
	unavailable := (*classes.Unavailable)(nil)
	switch {
	case errors.As(err, &unavailable) && unavailable.Reason == NotMounted && b.mount:
		return []string{"resctrl was unmounted"}, nil
	case err != nil:
		return nil, err
	}
	if !mount.equals(now.mount) {
		b.root = nil // what the root group had under other options cannot be brought back
		return []string{fmt.Sprintf("resctrl was mounted anew: %s instead of %s", mount, now.mount)}, nil
	}
	return tree{b.host, mount.point}.damage(now)
}

func (m resctrlMount) equals(other resctrlMount) bool {
	return m.point == other.point && slices.Equal(slices.Sorted(slices.Values(m.options)), slices.Sorted(slices.Values(other.options)))
}

func (m resctrlMount) String() string {
	return fmt.Sprintf("at %s with %s", m.point, strings.Join(m.options, ","))
}

func (t tree) damage(now *live) (found []string, err error) {
	root, err := readGroup(t.host, t.point, false)
	if err != nil {
		return nil, fmt.Errorf("read resctrl's root group: %w", err)
	}
	if !sameDomains(root.schemata, now.domains) {
		return []string{"caches came or went, as CPUs do"}, nil
	}
	for _, name := range slices.Sorted(maps.Keys(now.effective)) {
		g, err := readGroup(t.host, t.path(name), false)
		switch {
		case err != nil && gone(err):
			found = append(found, groupText(name)+" was removed")
		case err != nil:
			return nil, fmt.Errorf("%s: %w", groupText(name), err)
		default:
			if differences := (Info{}).differences(now.effective[name], g.schemata); len(differences) > 0 {
				found = append(found, fmt.Sprintf("%s was rewritten: %s", groupText(name), strings.Join(differences, ", ")))
			}
		}
	}
	return found, nil
}

// sameDomains says whether two schemata are of the same caches, whatever their values.
func sameDomains(a, b Schemata) bool {
	sameIDs := func(a, b Domains) bool {
		return slices.Equal(slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b)))
	}
	return maps.EqualFunc(a, b, sameIDs)
}
