// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"fmt"
	"slices"
	"strings"
)

// reportMissing records, for each class, the settings for cache IDs that this machine does not have. Such a setting has no effect, so
// the class may have more of the resource than its author meant. The function `missing` returns the IDs of a class and its partition.
func (r *resolver) reportMissing(setting string, domains []int, missing func(class, partition) []int) {
	for class, p := range r.config.classes() {
		if ids := missing(class, p); len(ids) > 0 {
			r.result.Ignored[class.name] = append(r.result.Ignored[class.name],
				fmt.Sprintf("%s of cache IDs %s has no effect: this machine has the IDs %s", setting, ranges(ids), ranges(domains)))
		}
	}
}

// missingIDs returns the IDs that `settings` name, and the machine does not have, sorted.
func missingIDs[T any](settings []setting[T], domains []int) (missing []int) {
	for _, s := range settings {
		for _, ids := range s.ids {
			for id := ids.first; id <= ids.last; id++ {
				if !slices.Contains(domains, id) {
					missing = append(missing, id)
				}
			}
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}

// ranges returns sorted IDs as text, e.g. "0-7, 16-23".
func ranges(ids []int) string {
	var text []string
	for i := 0; i < len(ids); {
		last := i
		for last+1 < len(ids) && ids[last+1] == ids[last]+1 {
			last++
		}
		if last == i {
			text = append(text, fmt.Sprint(ids[i]))
		} else {
			text = append(text, fmt.Sprintf("%d-%d", ids[i], ids[last]))
		}
		i = last + 1
	}
	return strings.Join(text, ", ")
}
