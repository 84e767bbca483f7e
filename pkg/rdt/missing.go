// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// reportMissing records, for each class, the settings of l2, l3 or mb for cache IDs that this machine does not have. Such a setting has
// no effect, so the class may have more of the resource than its author meant. The function `missing` returns the IDs of a class and
// its partition.
func (r *resolver) reportMissing(resource string, domains []int, missing func(class, partition) spans) {
	for class, p := range r.config.classes() {
		if ids := missing(class, p); len(ids) > 0 {
			r.result.ignore(class.name, "%sAllocation of cache IDs %s has no effect: this machine has the IDs %s", resource, ids, ranges(domains))
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
	return missing.joined()
}

// with adds the span from `first` to `last`, unless it is empty.
func (s spans) with(first, last int) spans {
	if first > last {
		return s
	}
	return append(s, span{first, last})
}

// joined sorts the spans, and joins those that overlap or follow each other.
func (s spans) joined() (joined spans) {
	slices.SortFunc(s, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	for _, next := range s {
		if end := len(joined) - 1; end >= 0 && next.first <= joined[end].last+1 {
			joined[end].last = max(joined[end].last, next.last)
		} else {
			joined = append(joined, next)
		}
	}
	return joined
}

// ranges returns IDs as spans.
func ranges(ids []int) (found spans) {
	for _, id := range ids {
		found = append(found, span{id, id})
	}
	return found.joined()
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
