// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/qos-nri/qos-nri-plugin/test/soak/steps"
)

// TestInvariantsHoldDuringASoak runs random operations on pods, the runtime and the plugin, and checks the invariants
// of test/invariant after each round. QOS_SOAK_SEED is the seed. The test runs for QOS_SOAK_MINUTES, or for three
// rounds. With the default seed, the operations include volumes, a kill, and restarts of the runtime and of the plugin.
func TestInvariantsHoldDuringASoak(t *testing.T) {
	n := startNode(t)
	must(t, unix.Mount("resctrl", resctrlRoot, "resctrl", 0, ""))
	raiseOccupancyThreshold(t)
	makeForeignGroups(t)
	site := &soakSite{node: n, t: t, pods: map[string]*pod{}, containers: map[string]*container{}}
	t.Cleanup(func() {
		if n.plugin != nil {
			n.plugin.end(t, syscall.SIGTERM)
		}
	})

	o := steps.Options{
		Seed: fromEnvironment(t, "QOS_SOAK_SEED", 21),
		For:  time.Duration(fromEnvironment(t, "QOS_SOAK_MINUTES", 0)) * time.Minute,
		// An emulated machine is slow.
		Steps: 6, Patience: 2 * time.Minute, Progress: time.Minute, Sabotage: true, Out: testLog{t}, Operations: testLog{t},
	}

	if o.For == 0 {
		o.For, o.Rounds = time.Hour, 3
	}

	t.Logf("seed %d", o.Seed)
	summary, err := steps.Run(t.Context(), site, o)
	t.Log(summary)
	must(t, err)
}

// raiseOccupancyThreshold makes the kernel free RMIDs in limbo. The kernel frees an RMID when its cache occupancy is
// below a threshold. The emulated CPU shows an occupancy of 1 MiB for RMID 0, 2 MiB for RMID 1, and so on, up to 32 MiB
// for RMID 31. The kernel of the tests permits a threshold of 64 MiB, with which all RMIDs leave limbo. With a lower
// maximum, RMIDs with higher numbers would stay in limbo.
func raiseOccupancyThreshold(t *testing.T) {
	t.Helper()
	const most, least = 1 << 30, 1 << 16
	for threshold := most; threshold >= least; threshold /= 2 {
		err := os.WriteFile(resctrlRoot+"/info/L3_MON/max_threshold_occupancy", fmt.Append(nil, threshold), 0)
		if err == nil {
			t.Logf("RMIDs leave limbo below an occupancy of %d bytes", threshold)
			return
		}
		if !errors.Is(err, unix.EINVAL) {
			t.Fatal(err)
		}
	}
	t.Log("the kernel permits no higher threshold, so the RMIDs of removed groups stay in limbo")
}

func fromEnvironment(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	number, err := strconv.ParseUint(text, 10, 64)
	must(t, err)
	return number
}

// testLog writes lines into the log of a test.
type testLog struct{ t *testing.T }

func (l testLog) Write(line []byte) (int, error) {
	l.t.Log(strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}
