// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeio

import (
	"log/slog"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/iotest"
)

// TestLimitsOfAFormerProcessAreRemoved restarts the plugin. While it does not run, the class changes and the container with the class
// ends. Without records, the limits may be those of another program, so they stay.
func TestLimitsOfAFormerProcessAreRemoved(t *testing.T) {
	const left = "8:16 rbps=3000000 wbps=max riops=max wiops=max\n"
	for _, test := range []struct {
		name         string
		former, next *iotest.Memory // the memories of the two processes; without `next`, they have the same one
		want         string
	}{
		{"that has saved its records", iotest.NewMemory(), nil, ""},
		{"whose records are lost", iotest.NewMemory(), &iotest.Memory{}, left},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := withMounts("50 40 8:16 / /data rw - ext4 /dev/sdb rw")
			former := newVolumes(t, m)
			former.remember(test.former)
			former.configure("classes: {silver: {maxReadBps: 3M}}")
			former.mustStart(10, "/data", "silver")

			next := newVolumes(t, m)
			if test.next == nil {
				test.next = test.former
			}
			next.remember(test.next)
			next.configure(volumeSection)
			next.holdPod()
			next.repair()
			next.want(podMax, test.want)
		})
	}
}

// TestAKillAtAnyWriteOfAVolumeLeavesNothing kills the plugin while it limits a volume on two disks, with one write each. While the
// plugin does not run, the class changes and the container ends.
func TestAKillAtAnyWriteOfAVolumeLeavesNothing(t *testing.T) {
	const foreign = "8:16 rbps=10000000 wbps=max riops=max wiops=max\n" // of another program; silver has the same rbps
	for writes := range 3 {
		m, saved, left := withBtrfs(), iotest.NewMemory(), -1
		must(t, m.WriteFile(podMax, []byte(foreign)))
		former := newVolumesOn(t, iotest.Mortal{Machine: m, Left: &left}, m, slog.DiscardHandler)
		former.remember(saved)
		left = writes
		if alive := iotest.Survives(func() { former.mustStart(10, "/data", "silver") }); alive != (writes == 2) {
			t.Errorf("after %d writes, the process lives: %v", writes, alive)
		}

		next := newVolumes(t, m)
		next.remember(saved)
		next.configure("classes: {silver: {maxReadBps: 3M}}")
		next.holdPod()
		next.repair()
		next.want(podMax, foreign)
	}
}

// TestAVolumeKeepsTheRecordedWeightsOfItsPod sets limits of a volume in a pod that has a class with weights. The weight must stay
// recorded, so that it is cleared when the pod leaves the class.
func TestAVolumeKeepsTheRecordedWeightsOfItsPod(t *testing.T) {
	m := withMounts("50 40 8:16 / /data rw - ext4 /dev/sdb rw")
	must(t, m.WriteFile("/sys/block/sda/queue/scheduler", []byte("bfq")))
	v := newVolumes(t, m)
	v.apply("Classes: {heavy: [{Weight: 400}]}")
	v.holdPod()
	v.enforce(pod(), "", "heavy")
	v.mustStart(10, "/data", "silver")
	v.release(classes.VolumeID("c10", "/data"))
	v.repair()
	v.enforce(pod(), "heavy", "")
	v.want("/sys/fs/cgroup/kubepods/pod1/io.bfq.weight", "default 100\n")
	v.want(podMax, "")
}
