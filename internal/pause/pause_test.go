// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package pause_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/pause"
)

func TestForWaitsUntilTheTimeIsOverOrTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		pause.For(ctx, time.Second)
		if took := time.Since(start); took != time.Second {
			t.Errorf("waited %s, want 1s", took)
		}
		pause.For(ctx, time.Hour)
		if took := time.Since(start); took != time.Minute {
			t.Errorf("waited %s, want until the context ended after 1m", took)
		}
	})
}

// TestShortest compares waits, of which 0 means never.
func TestShortest(t *testing.T) {
	for _, test := range []struct {
		name  string
		waits []time.Duration
		want  time.Duration
	}{
		{"of none is never", nil, 0},
		{"of never and never is never", []time.Duration{0, 0}, 0},
		{"of a time and never is the time", []time.Duration{0, 2, 0}, 2},
		{"of two is the shorter, first", []time.Duration{1, 2}, 1},
		{"of two is the shorter, last", []time.Duration{2, 1}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := pause.Shortest(test.waits...); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestEveryRepeatsUntilTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 35*time.Second)
		defer cancel()
		var at []time.Duration
		start := time.Now()
		pause.Every(ctx, 10*time.Second, func() { at = append(at, time.Since(start)) })
		if want := []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("called at %s, want %s", at, want)
		}
		pause.Every(t.Context(), 0, func() { t.Error("called with the interval 0") })
	})
}
