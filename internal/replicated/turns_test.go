// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package replicated

import (
	"slices"
	"testing"
)

func TestNamespacesTakeTurns(t *testing.T) {
	q := &turns{waiting: map[string][]string{}}
	for _, key := range []string{"greedy/a", "greedy/b", "greedy/c", "modest/a", "greedy/d", "other/a"} {
		q.Push(key)
	}
	got := []string{}
	for q.Len() > 0 {
		got = append(got, q.Pop())
	}
	if want := []string{"greedy/a", "modest/a", "other/a", "greedy/b", "greedy/c", "greedy/d"}; !slices.Equal(got, want) {
		t.Errorf("the order is %q, want %q", got, want)
	}
	if len(q.waiting) > 0 || len(q.order) > 0 {
		t.Errorf("the empty queue keeps %v, %v", q.waiting, q.order)
	}
}
