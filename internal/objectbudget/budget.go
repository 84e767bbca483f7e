// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package objectbudget divides the size that a NodeQOSResources object may have between its lists, and the size of a list between
// namespaces.
package objectbudget

import (
	"encoding/json"
	"maps"
	"slices"
)

// These are the budgets of the lists that users can make long, in bytes of JSON. etcd refuses objects of more than 1.5 MiB. The rest
// is for the classes, whose number is limited, and for the managed fields of server-side apply.
const (
	// Volumes is the budget of the volumes of claims: spec.volumes, status.volumes without messages, and their managed fields.
	Volumes = 576 << 10
	// VolumeMessages is the budget of the messages in status.volumes.
	VolumeMessages = 64 << 10
	// Holders is the budget of the holders and foreign settings of all classes.
	Holders = 320 << 10
	// Refusals is the budget of the refusals.
	Refusals = 64 << 10
	// Texts is the budget of the texts that describe the node and its classes, e.g. messages of conditions.
	Texts = 64 << 10
)

// maxObject is the maximum size of an object in etcd, in bytes.
const maxObject = 1536 << 10

// Size returns the number of bytes of a value in JSON, with a comma. A value that JSON cannot encode fits into no budget.
func Size(value any) int {
	data, err := json.Marshal(value)
	if err != nil {
		return maxObject
	}
	return len(data) + len(",")
}

// Fit divides a list into the items that fit into the budget, and the others. It keeps at most the given number of items, which
// must not be 0. The function `of` returns the namespace and the size of an item.
//
// Each namespace gets an equal share of the budget. If a namespace does not need all of its share, the other
// namespaces get the rest. In a namespace, the first items take precedence. Both results have the order of the list.
func Fit[T any](list []T, budget, number int, of func(T) (namespace string, size int)) (kept, omitted []T) {
	smallest := (budget + number - 1) / number // each item counts as at least this size, so that namespaces share the number of items like the bytes
	bill := func(item T) (string, int) {
		namespace, size := of(item)
		return namespace, max(size, smallest)
	}
	demand := map[string]int{}
	for _, item := range list {
		namespace, size := bill(item)
		demand[namespace] += size
	}

	share, used := shareOf(demand, budget), map[string]int{}
	for _, item := range list {
		namespace, size := bill(item)
		if used[namespace]+size > share {
			omitted = append(omitted, item)
			continue
		}
		used[namespace] += size
		kept = append(kept, item)
	}
	return kept, omitted
}

// shareOf returns the largest size that each namespace may use, so that all namespaces together use at most the budget. A namespace
// uses at most its demand.
func shareOf(demand map[string]int, budget int) int {
	demands := slices.Sorted(maps.Values(demand))
	for i, d := range demands {
		share := budget / (len(demands) - i)
		if d > share {
			return share
		}
		budget -= d
	}
	if len(demands) == 0 {
		return 0
	}
	return demands[len(demands)-1]
}
