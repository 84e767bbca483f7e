// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"errors"
	"testing"

	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// TestAMoveThatGivesUpIsRolledBack moves a container that gets new threads faster than the plugin can move them. In the
// first case, a process outside of the container creates the new threads. In the second case, threads of the container
// create new threads, too.
func TestAMoveThatGivesUpIsRolledBack(t *testing.T) {
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
				t.Fatalf("the error is %v, want ErrUnsettled", err)
			}

			for tid, group := range c.groups() {
				if group != "qos-gold" && !errors.Is(err, ErrRollback) {
					t.Errorf("thread %d is in group %q, but the error does not report that: %v", tid, group, err)
				}
			}

			if len(c.tids) < maxPasses {
				t.Errorf("the container has only %d threads, so the move gave up too early", len(c.tids))
			}
		})
	}
}
