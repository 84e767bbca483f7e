// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin

import (
	"testing"
	"time"

	"github.com/containerd/nri/pkg/stub"
)

// told is a stub whose runtime told how long it waits.
type told struct {
	stub.Stub
	timeout time.Duration
}

func (s told) RequestTimeout() time.Duration { return s.timeout }

func TestAHookHasAQuarterOfTheRuntimesTimeAndAtMostHalfASecond(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		0:                      500 * time.Millisecond, // runtimes before NRI 0.8
		400 * time.Millisecond: 100 * time.Millisecond,
		2 * time.Second:        500 * time.Millisecond,
		10 * time.Second:       500 * time.Millisecond,
	} {
		if got := (&session{stub: told{timeout: timeout}}).limit(); got != want {
			t.Errorf("with a timeout of %s a hook has %s, want %s", timeout, got, want)
		}
	}
}
