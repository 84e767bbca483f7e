// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package replicated

import (
	"testing"
	"time"
)

// TestAWriteIsRepeatedBeforeTheDelayGrows: a reconcile begins before the next attempt is due and ends after it, so it
// does not repeat the write. The delay must not double before the write was repeated.
func TestAWriteIsRepeatedBeforeTheDelayGrows(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	var b *Backoff[string]
	b = b.Begin("spec", start)
	b.Fail("a", "refused")
	if again := b.End(start); again != MinRetry {
		t.Fatalf("the first attempt is repeated after %s, want %s", again, MinRetry)
	}

	b = b.Begin("spec", start.Add(MinRetry-1))
	if _, failed := b.Failed("a"); !failed {
		t.Error("the write is repeated before its time")
	}
	later := start.Add(MinRetry + 1)
	again := b.End(later)
	if again <= 0 || again >= MinRetry {
		t.Errorf("the write that was not repeated is repeated after %s", again)
	}

	later = later.Add(again)
	b = b.Begin("spec", later)
	if _, failed := b.Failed("a"); failed {
		t.Error("the write is not repeated")
	}
	b.Fail("a", "refused")
	if again := b.End(later); again != 2*MinRetry {
		t.Errorf("the second attempt is repeated after %s, want %s", again, 2*MinRetry)
	}
}
