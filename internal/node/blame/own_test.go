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
		name     string
		victim   uses // of a
		otherPod uses // of b
		samePod  uses // of c
		limits   blame.Limits
		reason   reports.OwnReason
		culprits string
	}{
		{
			name:     "the memory limit",
			victim:   uses{memory: step(0, 0.6), of(history.MaxEvents, "pod"): step(0, 9)},
			otherPod: uses{bytes: step(1e9, 9e9)}, samePod: uses{bytes: step(1e9, 1e9)}, reason: reports.OwnMemoryLimit,
		},
		{
			name:     "the memory limit, and another container of the pod takes more",
			victim:   uses{memory: step(0, 0.6), of(history.MaxEvents, "pod"): step(0, 9)},
			otherPod: uses{bytes: step(1e9, 9e9)}, samePod: uses{bytes: step(1e9, 2e9)}, reason: reports.OwnMemoryLimit, culprits: "c",
		},
		{
			name:     "the CPU limit",
			victim:   uses{cpu: step(0, 0.6), used: step(1, 1), of(history.CPUUsed, "pod"): step(1, 1), of(history.Throttled, "pod"): step(0, 2.4)},
			otherPod: uses{used: step(1, 9)}, samePod: uses{used: step(0, 0)}, reason: reports.OwnThrottled,
		},
		{
			name:     "the CPU limit, and another container of the pod uses more",
			victim:   uses{cpu: step(0, 0.6), used: step(1, 1), of(history.CPUUsed, "pod"): step(1, 2), of(history.Throttled, "pod"): step(0, 2.4)},
			otherPod: uses{used: step(1, 9)}, samePod: uses{used: step(0, 1)}, reason: reports.OwnThrottled, culprits: "c",
		},
		{
			name:     "the limit of writes",
			victim:   uses{io: step(0, 0.6), wrote: step(1, 50)}, // with c: 95 of 100
			otherPod: uses{wrote: step(5, 500)}, samePod: uses{wrote: step(45, 45)}, limits: blame.Limits{Pod: limits{wrote: 100}}, reason: reports.OwnClassLimit,
		},
		{
			name:     "the limit of writes, and another container of the pod writes more",
			victim:   uses{io: step(0, 0.6), wrote: step(1, 1)}, // with c: 99 of 100
			otherPod: uses{wrote: step(5, 500)}, samePod: uses{wrote: step(5, 98)}, limits: blame.Limits{Pod: limits{wrote: 100}}, reason: reports.OwnClassLimit,
			culprits: "c",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := window(test.victim, test.otherPod, test.samePod)
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

// TestThrottlingThatDoesNotRiseIsNotTheReason has a limit that throttles all the time, while a neighbour uses the CPUs.
func TestThrottlingThatDoesNotRiseIsNotTheReason(t *testing.T) {
	cpu, used, throttled := of(history.CPUWaiting, ""), of(history.CPUUsed, ""), of(history.Throttled, "")
	w := window(uses{cpu: step(0, 0.6), used: step(3.6, 3.6), throttled: step(0.4, 0.4)}, uses{used: step(1, 9)})
	found := blame.Judge(&w, 0, blame.Limits{}, time.Time{})
	if len(found) != 1 || len(found[0].Culprits) != 1 || len(found[0].Own) != 0 {
		t.Errorf("found %+v, want only the neighbour", found)
	}
}

// TestThrottlingIsMeasuredAsAPartOfTheTime has a victim that uses one CPU, and is throttled on three others. It waits for 80% of the
// time. The throttling explains 75%, so the neighbour that uses more CPUs at the same time is no culprit.
func TestThrottlingIsMeasuredAsAPartOfTheTime(t *testing.T) {
	cpu, used, throttled := of(history.CPUWaiting, ""), of(history.CPUUsed, ""), of(history.Throttled, "")
	w := window(uses{cpu: step(0, 0.8), used: step(1, 1), throttled: step(0, 3)}, uses{used: step(1, 9)})
	found := blame.Judge(&w, 0, blame.Limits{}, time.Time{})
	if len(found) != 1 || len(found[0].Culprits) != 0 || len(found[0].Own) != 1 || math.Abs(found[0].Own[0].During-0.75) > 1e-6 {
		t.Errorf("found %+v, want that the limit throttles three quarters of the time", found)
	}
}
