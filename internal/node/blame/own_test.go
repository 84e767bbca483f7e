// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blame_test

import (
	"math"
	"testing"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/node/blame"
	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/internal/reports"
)

// TestAContainerWaitsBecauseOfALimitOfItsPod has a victim "a", a container "b" of another pod, and a container "c" of the
// victim's pod. If the limit of the pod was reached and "c" uses more, "c" is the culprit, and "b" never is.
func TestAContainerWaitsBecauseOfALimitOfItsPod(t *testing.T) {
	io, memory, cpu := of(history.IOWaiting, ""), of(history.MemoryWaiting, ""), of(history.CPUWaiting, "")
	wrote, bytes, used := of(history.Writes, "sda"), of(history.Memory, ""), of(history.CPUUsed, "")
	for _, test := range []struct {
		name         string
		victim       uses
		other, third uses // b and c
		limits       blame.Limits
		reason       reports.OwnReason
		culprits     string
	}{
		{"the memory limit", uses{memory: step(0, 0.6), of(history.MaxEvents, "pod"): step(0, 9)}, uses{bytes: step(1e9, 9e9)}, uses{bytes: step(1e9, 1e9)},
			blame.Limits{}, reports.OwnMemoryLimit, ""},
		{"the memory limit, and another container of the pod takes more", uses{memory: step(0, 0.6), of(history.MaxEvents, "pod"): step(0, 9)},
			uses{bytes: step(1e9, 9e9)}, uses{bytes: step(1e9, 2e9)}, blame.Limits{}, reports.OwnMemoryLimit, "c"},
		{"the CPU limit", uses{cpu: step(0, 0.6), used: step(1, 1), of(history.CPUUsed, "pod"): step(1, 2), of(history.Throttled, "pod"): step(0, 2.4)},
			uses{used: step(1, 9)}, uses{used: step(0, 0)}, blame.Limits{}, reports.OwnThrottled, ""},
		{"the CPU limit, and another container of the pod uses more",
			uses{cpu: step(0, 0.6), used: step(1, 1), of(history.CPUUsed, "pod"): step(1, 2), of(history.Throttled, "pod"): step(0, 2.4)},
			uses{used: step(1, 9)}, uses{used: step(0, 1)}, blame.Limits{}, reports.OwnThrottled, "c"},
		{"the limit of writes", uses{io: step(0, 0.6), wrote: step(1, 50)}, uses{wrote: step(5, 500)}, uses{wrote: step(45, 45)},
			blame.Limits{Pod: limits{wrote: 100}}, reports.OwnClassLimit, ""},
		{"the limit of writes, and another container of the pod writes more", uses{io: step(0, 0.6), wrote: step(1, 1)}, uses{wrote: step(5, 500)}, uses{wrote: step(5, 98)},
			blame.Limits{Pod: limits{wrote: 100}}, reports.OwnClassLimit, "c"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := window(test.victim, test.other, test.third)
			w.Tracks[0].PodUID, w.Tracks[1].PodUID, w.Tracks[2].PodUID = "p", "q", "p"
			found := blame.Judge(&w, 0, test.limits, time.Time{})
			if len(found) != 1 || len(found[0].Own) != 1 {
				t.Fatalf("found %+v", found)
			}
			culprits := ""
			for _, c := range found[0].Culprits {
				culprits += c.ID
			}
			if own := found[0].Own[0]; own.Reason != test.reason || !own.Pod || culprits != test.culprits {
				t.Errorf("found %+v and culprits %q, want %s and %q", own, culprits, test.reason, test.culprits)
			}
		})
	}
}

// TestThrottlingIsMeasuredAsAPartOfTheTime has a limit that throttles four CPUs for a tenth of the time, while a neighbour uses the CPUs. The
// limit throttles as much before the waiting rises, so it is not the reason.
func TestThrottlingIsMeasuredAsAPartOfTheTime(t *testing.T) {
	cpu, used, throttled := of(history.CPUWaiting, ""), of(history.CPUUsed, ""), of(history.Throttled, "")
	w := window(uses{cpu: step(0, 0.6), used: step(3.6, 3.6), throttled: step(0.4, 0.4)}, uses{used: step(1, 9)})
	found := blame.Judge(&w, 0, blame.Limits{}, time.Time{})
	if len(found) != 1 || len(found[0].Culprits) != 1 || len(found[0].Own) != 0 {
		t.Errorf("found %+v, want the neighbour", found)
	}

	// The victim uses one CPU, and is throttled on three.
	w = window(uses{cpu: step(0, 0.8), used: step(1, 1), throttled: step(0, 3)}, uses{used: step(1, 9)})
	found = blame.Judge(&w, 0, blame.Limits{}, time.Time{})
	if len(found) != 1 || len(found[0].Culprits) != 0 || len(found[0].Own) != 1 || math.Abs(found[0].Own[0].During-0.75) > 1e-6 {
		t.Errorf("found %+v, want that the limit throttles three quarters of the time", found)
	}
}
