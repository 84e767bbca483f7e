// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// TestValuesOfAFailedChangeAreReplacedWhenTheirDeviceIsLost: the runtime stored the values of a change that then
// failed. The container has no class of the resource, but the values that the runtime still stores may name the lost
// device.
func TestValuesOfAFailedChangeAreReplacedWhenTheirDeviceIsLost(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", nil), container("c-a"))
	f.backends[disk].Fail("enforce fast", errors.New("no space left on device"))
	if err := f.Update(t.Context(), ownerA, map[string]string{disk: "fast"}); err == nil {
		t.Fatal("the change succeeded")
	}

	delete(f.unified, "c-a")
	f.backends[disk].Damage(classes.Drift{DevicesGone: true})
	f.Repair(t.Context())
	if _, replaced := f.unified["c-a"]; !replaced {
		t.Error("the values that the runtime has stored were not replaced")
	}
}

func TestAnUnavailableResourceIsLoggedOnce(t *testing.T) {
	f := newFixture(t)
	var log bytes.Buffer
	f.restart(t, func(o *node.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	f.mustConfigure(t, files)

	f.backends[disk].Fail("repair", errors.New("no such device"))
	f.backends[disk].Fail("apply", errors.New("no such device"))
	for range 3 {
		f.Repair(t.Context())
	}
	f.backends[disk].Fail("repair", nil)
	f.backends[disk].Fail("apply", nil)
	for range 3 {
		f.Repair(t.Context())
	}
	for _, message := range []string{"resource unavailable", "resource available again"} {
		if count := strings.Count(log.String(), message); count != 1 {
			t.Errorf("%q is logged %d times, want once:\n%s", message, count, log.String())
		}
	}
}
