// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
)

var _ classes.Drafter = (*Backend)(nil)

// Draft implements classes.Drafter. The class has an item for each disk.
func (b *Backend) Draft(class string, bounds []classes.Bound) map[string]any {
	var items []any
	disks := map[string]map[string]any{}
	for _, bound := range bounds {
		for _, rate := range rates() {
			if rate.measure != bound.Use.Measure || bound.Value < 1 {
				continue
			}
			disk := bound.Use.Part
			if disks[disk] == nil {
				// The kernel replaces the slashes in the names of disks by exclamation marks.
				disks[disk] = map[string]any{"Devices": []any{"/dev/" + strings.ReplaceAll(disk, "!", "/")}}
				items = append(items, disks[disk])
			}
			disks[disk][rate.name] = ioapply.Quantity(bound.Value)
		}
	}
	if len(items) == 0 {
		return nil
	}
	return map[string]any{"Classes": map[string]any{class: items}}
}
