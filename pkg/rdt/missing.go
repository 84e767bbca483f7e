// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// reportMissing records, for each class, the settings for cache IDs that this machine does not have. Such a setting has no effect, so
// the class may have more of the resource than its author meant. The function `missing` returns the IDs of a class and its partition.
func (r *resolver) reportMissing(setting string, domains []int, missing func(class, partition) spans) {
	for class, p := range r.config.classes() {
		if ids := missing(class, p); len(ids) > 0 {
			r.result.Ignored[class.name] = append(r.result.Ignored[class.name],
				fmt.Sprintf("%s of cache IDs %s has no effect: this machine has the IDs %s", setting, ids, ranges(domains)))
		}
	}
}

// missingIDs returns the sorted IDs that `settings` name but the machine does not have. `domains` has the sorted IDs of
// the machine.
func missingIDs[T any](settings []setting[T], domains []int) (missing spans) {
	for _, s := range settings {
		for _, named := range s.ids {
			for _, id := range domains {
				if named.first <= id && id <= named.last {
					missing = missing.with(named.first, id-1)
					named.first = id + 1
				}
			}
			missing = missing.with(named.first, named.last)
		}
	}
	slices.SortFunc(missing, func(a, b span) int { return cmp.Compare(a.first, b.first) })

	var joined spans
	for _, s := range missing {
		if end := len(joined) - 1; end >= 0 && s.first <= joined[end].last+1 {
			joined[end].last = max(joined[end].last, s.last)
		} else {
			joined = append(joined, s)
		}
	}
	return joined
}

// with adds the span from `first` to `last`, unless it is empty.
func (s spans) with(first, last int) spans {
	if first > last {
		return s
	}
	return append(s, span{first, last})
}

// ranges returns sorted IDs as spans.
func ranges(ids []int) (found spans) {
	for _, id := range ids {
		if end := len(found) - 1; end >= 0 && found[end].last+1 == id {
			found[end].last = id
		} else {
			found = append(found, span{id, id})
		}
	}
	return found
}

// String returns the spans as text, e.g. "0-7, 16-23".
func (s spans) String() string {
	var text []string
	for _, span := range s {
		if span.first == span.last {
			text = append(text, fmt.Sprint(span.first))
		} else {
			text = append(text, fmt.Sprintf("%d-%d", span.first, span.last))
		}
	}
	return strings.Join(text, ", ")
}
