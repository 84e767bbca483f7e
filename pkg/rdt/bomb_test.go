// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"errors"
	"testing"

	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// TestAMoveThatNeverSettlesIsTakenBackWhole has a bomb that goes on after the plugin has given up, and one that a thread which was moved
// goes on with while it is taken back.
func TestAMoveThatNeverSettlesIsTakenBackWhole(t *testing.T) {
	for name, parents := range map[string][]int{"from outside": {1}, "from outside, and from within": {1, 10, 11}} {
		t.Run(name, func(t *testing.T) {
			c, b := newContainer(t, sim.IntelSpec(), "qos-gold")
			c.fs.AddTask(1, "qos-gold")
			c.listed = func(c *container, n int) {
				for i, parent := range parents {
					if i == 0 || n%2 == 0 {
						c.fork(parent, 1000+10*n+i)
					}
				}
			}
			err := b.Enforce(t.Context(), target, "gold", "bronze")
			if !errors.Is(err, ErrUnsettled) {
				t.Fatalf("got %v", err)
			}
			rollback := (*RollbackError)(nil)
			for tid, group := range c.groups() {
				if group != "qos-gold" && !errors.As(err, &rollback) {
					t.Errorf("thread %d is in %q, and nobody says so: %v", tid, group, err)
				}
			}
			if len(c.tids) < maxPasses {
				t.Errorf("only %d threads", len(c.tids))
			}
		})
	}
}
