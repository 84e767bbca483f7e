// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"errors"
	"strings"
	"testing"

	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// TestAMoveThatGivesUpIsRolledBack moves a container that gets new threads in each pass. After the last pass, all threads
// are in the old group again, also those that began in the new one.
func TestAMoveThatGivesUpIsRolledBack(t *testing.T) {
	for name, parents := range map[string][]int{
		"a process outside of the container creates the threads": {1},
		"threads of the container create threads, too":           {1, 10, 11},
	} {
		t.Run(name, func(t *testing.T) {
			c, b := newContainer(t, sim.IntelSpec(), "qos-gold")
			c.fs.AddTask(1, "qos-gold")
			c.listed = func(c *container, n int) {
				for i, parent := range parents {
					c.fork(parent, 1000+10*n+i)
				}
			}

			err := b.Enforce(t.Context(), target, "gold", "bronze")
			if !errors.Is(err, ErrUnsettled) || errors.Is(err, ErrRollback) {
				t.Fatalf("the error is %v, want only ErrUnsettled", err)
			}
			if len(c.tids) < maxPasses {
				t.Errorf("the container has only %d threads, so the move gave up too early", len(c.tids))
			}

			for tid, group := range c.groups() {
				if group != "qos-gold" {
					t.Errorf("thread %d is in group %q, want qos-gold", tid, group)
				}
			}
		})
	}
}

func TestAMoveThatCannotBeRolledBackIsReported(t *testing.T) {
	c, b := newContainer(t, sim.IntelSpec(), "qos-gold")
	c.fs.AddTask(1, "qos-gold")
	c.fs.AddTask(2, "qos-bronze")
	c.listed = func(c *container, n int) { // each pass in either direction finds a new thread to move
		c.fork(1, 1000+10*n)
		c.fork(2, 1001+10*n)
	}

	err := b.Enforce(t.Context(), target, "gold", "bronze")
	if !errors.Is(err, ErrUnsettled) || !errors.Is(err, ErrRollback) || !strings.Contains(err.Error(), "still in the group qos-bronze") {
		t.Errorf("the error is %v", err)
	}
}
