// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"testing"
	"time"
)

// monotonic reports whether a time has a reading of the monotonic clock.
func monotonic(when time.Time) bool { return when != when.Round(0) }

// TestTimesAreMonotonic checks the times that the node later compares with the current time. With a monotonic reading,
// they do not depend on changes of the clock.
func TestTimesAreMonotonic(t *testing.T) {
	f := newFixture(t)
	p, c := wanting("a", "a1", cache+"=none-such")
	if _, _, err := f.CreateContainer(in(p, c)); err == nil {
		t.Fatal("a container of an unknown class was created")
	}

	refused := f.Refused()
	if len(refused) != 1 {
		t.Errorf("%d refusals are reported, want one", len(refused))
	}
	for _, r := range refused {
		if !monotonic(r.First) || !monotonic(r.Last) {
			t.Errorf("the times of a refusal, %s and %s, have no monotonic reading", r.First, r.Last)
		}
	}

	f.Synchronize(nil, nil)
	if status := f.Status(); !monotonic(status.Config.Loaded) || !monotonic(status.Runtime.Since) {
		t.Errorf("loaded at %s, synchronized since %s; want readings of the monotonic clock", status.Config.Loaded, status.Runtime.Since)
	}
}

// TestRefusalsExpireAfterAClockThatWasSetBack uses times without a monotonic reading, so that setting the clock back
// has an effect on them.
func TestRefusalsExpireAfterAClockThatWasSetBack(t *testing.T) {
	f, c := timed(t)
	p, ctr := wanting("a", "a1", cache+"=none-such")
	refuse := func() {
		t.Helper()
		if _, _, err := f.CreateContainer(in(p, ctr)); err == nil {
			t.Fatal("a container of an unknown class was created")
		}
	}

	refuse()
	c.time = c.time.Add(-24 * time.Hour)
	f.ExpireRefused()
	if len(f.Refused()) != 1 {
		t.Error("a refusal expired at once")
	}

	refuse() // the kubelet retries
	if got := f.Refused(); len(got) != 1 || got[0].Count != 2 || !got[0].Last.Equal(c.time) {
		t.Errorf("refusals: %+v, want one that was repeated now", got)
	}

	c.time = c.time.Add(11 * time.Minute)
	f.ExpireRefused()
	if got := f.Refused(); len(got) != 0 {
		t.Errorf("refusals: %+v, want none", got)
	}
}
