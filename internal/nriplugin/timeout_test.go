// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin

import (
	"testing"
	"time"

	"github.com/containerd/nri/pkg/stub"
)

// stubWithTimeout is a stub whose runtime reports a request timeout.
type stubWithTimeout struct {
	stub.Stub
	timeout time.Duration
}

func (s stubWithTimeout) RequestTimeout() time.Duration { return s.timeout }

func TestAHookHas60PercentOfTheRuntimesRequestTimeout(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		0:                      1200 * time.Millisecond, // runtimes with an NRI before 0.8 report no timeout
		400 * time.Millisecond: 240 * time.Millisecond,
		2 * time.Second:        1200 * time.Millisecond,
		10 * time.Second:       6 * time.Second,
	} {
		if got := (&session{stub: stubWithTimeout{timeout: timeout}}).deadline(); got != want {
			t.Errorf("with a timeout of %s a hook has %s, want %s", timeout, got, want)
		}
	}
}
