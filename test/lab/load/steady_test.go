// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/test/lab"
)

// TestASteadyLoadDropsWhatASlowDiskCannotDo offers 100 requests a second for four seconds to two threads.
func TestASteadyLoadDropsWhatASlowDiskCannotDo(t *testing.T) {
	for name, test := range map[string]struct {
		took time.Duration
		want lab.Second
	}{
		"a fast disk":                            {10 * time.Millisecond, lab.Second{Served: 100, Latency: 10}},
		"a disk that needs both threads":         {20 * time.Millisecond, lab.Second{Served: 100, Latency: 20}},
		"a disk that can do a fifth of the load": {100 * time.Millisecond, lab.Second{Served: 20, Latency: 100}},
		"a disk that hangs for a minute":         {time.Minute, lab.Second{Latency: 1000}}, // see lab.NewSecond
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				request := func() error { <-time.After(test.took); return nil }
				got, err := offer(100, 4, []func() error{request, request})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(slices.Repeat([]lab.Second{test.want}, 4), got); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestASteadyLoadReportsTheErrorOfARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("no such disk")
		if _, err := offer(100, 1, []func() error{func() error { return failure }}); !errors.Is(err, failure) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAKindOfOperationsThatDoesNotExistIsRefused(t *testing.T) {
	if err := Run("erase", t.TempDir(), 1); err == nil || !strings.Contains(err.Error(), `"erase"`) {
		t.Errorf("got %v", err)
	}
}

func TestAFileThatIsSmallerThanABlockIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "small")
	if err := os.WriteFile(file, []byte("small"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open("buffered", file); err == nil || !strings.Contains(err.Error(), "choose a larger file") {
		t.Errorf("got %v", err)
	}
}
