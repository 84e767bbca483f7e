// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"context"
	"errors"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Preview is the status that a configuration would have as the live one. When resctrl is not mounted, and Apply would mount
// it, the status says that nothing could be looked at.
func (b *Backend) Preview(_ context.Context, config classes.BackendConfig) (classes.BackendStatus, error) {
	c, err := asConfig(config)
	if err != nil {
		return classes.BackendStatus{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	mount, err := locate(b.host)
	if unavailable := (*classes.Unavailable)(nil); errors.As(err, &unavailable) && unavailable.Reason == NotMounted && b.mount {
		return classes.BackendStatus{Conditions: []classes.Condition{{Type: ConditionMounted, Reason: NotMounted,
			Message: "resctrl is not mounted yet, so masks, bandwidth and CLOSIDs were not checked; qos-nri-plugin mounts it when it " +
				"starts, or do it now: mount -t resctrl resctrl " + DefaultMountPoint}}}, nil
	}
	if err != nil {
		return classes.BackendStatus{}, err
	}
	m, resolution, _, err := b.prepare(c, mount)
	if err != nil {
		return classes.BackendStatus{}, err
	}
	next := &live{offered: map[string]bool{}}
	for _, class := range c.ClassNames() {
		next.offered[class] = true
	}
	return describeStatus(c, resolution, m, next), nil
}
