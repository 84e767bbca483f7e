// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeio

import (
	"errors"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iodisks"
	"github.com/qos-nri/qos-nri-plugin/test/iotest"
)

// TestLimitsOfOtherVolumesAreRemovedAlthoughOneVolumeWasNeverFound has a hostPath volume of a container without a PID. The disk of
// such a volume is found only by the PID, and CRI-O before 1.36 reports no PIDs.
func TestLimitsOfOtherVolumesAreRemovedAlthoughOneVolumeWasNeverFound(t *testing.T) {
	for name, memory := range map[string]*iotest.Memory{
		"an earlier process of the plugin has applied nothing": iotest.NewMemory(), "there was no earlier process of the plugin": {},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVolumes(t, withMounts("50 40 8:16 / /other rw - ext4 /dev/sdb rw"))
			v.remember(memory)
			v.holdPod()
			v.mustStart(10, "/other", "gold")
			if err := v.start(0, "/data", "silver"); !errors.Is(err, iodisks.ErrNoPID) {
				t.Errorf("got %v", err)
			}

			v.release(classes.VolumeID("c10", "/other"))
			v.repair()
			v.want(podMax, "")
		})
	}
}

// TestAVolumeThatIsHiddenKeepsTheLimitsOfItsDisks uses a container that hides the mount of one of its volumes, before and after a restart
// of the plugin, during which the class changes.
func TestAVolumeThatIsHiddenKeepsTheLimitsOfItsDisks(t *testing.T) {
	const hidden = "7:0 " + silverLimits
	m, saved := withMounts("50 40 7:0 / /data rw - ext4 /dev/loop0 rw", "51 40 8:16 / /other rw - ext4 /dev/sdb rw"), iotest.NewMemory()
	v := newVolumes(t, m)
	v.remember(saved)
	v.holdPod()
	v.mustStart(10, "/data", "silver")
	v.mustStart(11, "/other", "gold")
	m.AddFile("/proc/10/mountinfo", "50 40 0:9 / /data rw - tmpfs tmpfs rw\n")
	v.release(classes.VolumeID("c11", "/other"))
	v.repair()
	v.want(podMax, hidden)

	next := newVolumes(t, m)
	next.remember(saved)
	next.configure("classes: {silver: {maxReadBps: 1M}}")
	next.holdPod()
	next.hold(10, "/data", "silver")
	next.repair()
	next.want(podMax, hidden)
	next.release(classes.VolumeID("c10", "/data"))
	next.repair()
	next.want(podMax, "")
}

// TestARecordWithoutDisksKeepsAllLimits loads the record of a version of the plugin that did not save the disks of volumes.
func TestARecordWithoutDisksKeepsAllLimits(t *testing.T) {
	// The container has mounted a tmpfs over the volume, so the plugin does not find the volume's disk.
	v := newVolumes(t, withMounts("50 40 0:9 / /data rw - tmpfs tmpfs rw"))
	saved := iotest.NewMemory()
	saved.Data["cgroup /kubepods/pod1"] = []byte(`{"values":{"8:16":[[10000000,5000000,0,0]]}}`)
	v.set("8:16 " + silverLimits)
	v.remember(saved)
	v.holdPod()
	v.hold(10, "/data", "silver")
	v.repair()
	v.want(podMax, "8:16 "+silverLimits)
}
