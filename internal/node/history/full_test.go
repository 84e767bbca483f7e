// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// TestTheOldestSamplesAreRemovedIfTheMemoryIsFull records 20 containers, whose values of 200 samples need more than the budget.
func TestTheOldestSamplesAreRemovedIfTheMemoryIsFull(t *testing.T) {
	const budget = 128 << 10
	random, totals := rand.New(rand.NewPCG(1, 5)), make([]classes.Reading, 20)
	r := history.NewRing(budget)
	for i := range 200 {
		r.Add(start().Add(time.Duration(i)*time.Second), busy(random, totals))
		if r.Bytes() > budget {
			t.Fatalf("sample %d: the ring takes %d bytes, more than %d", i, r.Bytes(), budget)
		}
	}
	w := r.Window()
	// About 45 samples fit. The newest one must be there.
	if w.Points() < 20 || w.Points() > 100 || len(w.Tracks) != 20 || !w.Times[w.Points()].Equal(start().Add(199*time.Second)) {
		t.Errorf("the window has %d points of %d containers", w.Points(), len(w.Tracks))
	}
}

// TestAContainerIsIncompleteIfThereIsNoRoomForItsNewDisks has a container that uses 150 disks from its second sample on.
func TestAContainerIsIncompleteIfThereIsNoRoomForItsNewDisks(t *testing.T) {
	r, reading := history.NewRing(32<<10), classes.Reading{series(history.MemoryWaiting, ""): 1}
	for i := range 3 {
		r.Add(start().Add(time.Duration(i)*time.Second), []history.Read{{Container: named("a"), Reading: reading}})
		for disk := range 150 {
			reading[series(history.Reads, fmt.Sprint("disk", disk))]++
		}
	}
	w := r.Window()
	if r.Bytes() > 32<<10 || w.Incomplete != 1 || len(w.Tracks) != 1 || !w.Tracks[0].Incomplete {
		t.Errorf("the ring takes %d bytes, and says that %d of %d containers are incomplete", r.Bytes(), w.Incomplete, len(w.Tracks))
	}
}
