// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeio

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/pkg/iodisks"
	"github.com/qos-nri/qos-nri-plugin/test/iotest"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

func TestAVolumeIsLimitedOnTheDiskOfItsMount(t *testing.T) {
	for _, test := range []struct{ name, mount, want string }{
		{"ext4 on a disk", "50 40 8:16 / /data rw - ext4 /dev/sdb rw", "8:16 " + silverLimits},
		{"ext4 on a loop device", "50 40 7:0 / /data rw - ext4 /dev/loop0 rw", "7:0 " + silverLimits},
		{"XFS on device mapper", "50 40 253:0 / /data rw - xfs /dev/mapper/data rw", "253:0 " + silverLimits},
		{"a subPath", "50 40 8:16 /sub /data rw - ext4 /dev/sdb rw", "8:16 " + silverLimits},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := newVolumes(t, withMounts("49 40 8:1 / /data rw - ext4 /dev/sda1 rw", test.mount))
			v.mustStart(10, "/data", "silver")
			v.want(podMax, test.want)
			v.wantObserved(10, "/data", "silver", "silver")
		})
	}
}

// withBtrfs is a machine whose process 10 has a btrfs on dm-0 and loop0.
func withBtrfs() *simcgroup.Machine {
	m := withMounts("50 40 0:60 /sub /data rw - btrfs /dev/mapper/data rw,subvol=/sub")
	m.AddSymlink("/dev/mapper/data", "../dm-0")
	m.AddSymlink("/sys/fs/btrfs/aa/devices/dm-0", "../../../../devices/virtual/block/dm-0")
	m.AddSymlink("/sys/fs/btrfs/aa/devices/loop0", "../../../../devices/virtual/block/loop0")
	return m
}

const onBtrfs = "253:0 " + silverLimits + "7:0 " + silverLimits

func TestEachDiskOfABtrfsIsLimited(t *testing.T) {
	v := newVolumes(t, withBtrfs())
	v.mustStart(10, "/data", "silver")
	v.want(podMax, onBtrfs)
	v.wantObserved(10, "/data", "silver", "silver")
}

func TestAKillBetweenTwoWritesIsRepaired(t *testing.T) {
	m := withBtrfs()
	v := newVolumes(t, m)
	m.Inject(simcgroup.Fault{Op: "write", File: "io.max", Skip: 1, Err: syscall.EIO, Lasting: true}) // each later write fails, as if the plugin had ended
	if err := v.start(10, "/data", "silver"); err == nil {
		t.Error("Enforce returned no error, although a write failed")
	}
	m.Heal()
	v.want(podMax, "7:0 "+silverLimits)

	v = newVolumes(t, m) // the next process
	v.wantObserved(10, "/data", "silver", "")
	v.mustStart(10, "/data", "silver")
	v.want(podMax, onBtrfs)
}

// TestTheNextFileOfALoopDeviceHasOnlyItsOwnLimits moves a volume of class silver from loop0 to sdb. Then loop0 gets another
// file, for a volume of class gold.
func TestTheNextFileOfALoopDeviceHasOnlyItsOwnLimits(t *testing.T) {
	v := newVolumes(t, withMounts("50 40 7:0 / /data rw - ext4 /dev/loop0 rw"))
	v.holdPod()
	v.mustStart(10, "/data", "silver")
	v.machine.AddFile("/proc/10/mountinfo", "50 40 8:16 / /data rw - ext4 /dev/sdb rw\n")
	v.mustStart(10, "/data", "silver")
	v.repair()

	v.machine.AddFile("/proc/11/mountinfo", "50 40 7:0 / /other rw - ext4 /dev/loop0 rw\n")
	v.mustStart(11, "/other", "gold")
	v.want(podMax, "8:16 "+silverLimits+"7:0 rbps=20000000 wbps=max riops=500 wiops=max\n")
}

func TestAVolumeThatCannotBeLimitedIsRefused(t *testing.T) {
	for _, test := range []struct {
		name, mount string
		is          error
		want        string
	}{
		{"NFS", "50 40 0:50 / /data rw - nfs4 server:/x rw", classes.ErrNoBlockDevice, "/data is on nfs4"},
		{"tmpfs", "50 40 0:50 / /data rw - tmpfs tmpfs rw", classes.ErrNoBlockDevice, "/data is on tmpfs"},
		{"overlay", "50 40 0:50 / /data rw - overlay overlay rw", classes.ErrNoBlockDevice, "/data is on overlay"},
		{"FUSE", "50 40 0:50 / /data rw - fuse.s3fs s3fs rw", classes.ErrNoBlockDevice, "/data is on fuse.s3fs"},
		{"no mount", "50 40 8:16 / /other rw - ext4 /dev/sdb rw", classes.ErrNoBlockDevice, "the container has no mount and no device at /data"},
		{"a directory of the node's disk", "50 40 8:1 /srv /data rw - ext4 /dev/sda1 rw", classes.ErrSharedDisk, "disk sda (8:0) of /data also contains the node's mount /"},
		{"the node's root", "50 40 8:1 / /data rw - ext4 /dev/sda1 rw", classes.ErrSharedDisk, "disk sda (8:0) of /data also contains the node's mount /"},
		{"the whole disk of the node's partition", "50 40 8:0 / /data rw - ext4 /dev/sda rw", classes.ErrSharedDisk, "also contains the node's mount /"},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := newVolumes(t, withMounts(test.mount))
			err := v.start(10, "/data", "silver")
			if !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			v.want(podMax, "")
		})
	}
}

func TestAClassWithTheFieldSharedDiskLimitsADiskOfTheNode(t *testing.T) {
	v := newVolumes(t, withMounts("50 40 8:1 /srv /data rw - ext4 /dev/sda1 rw"))
	v.mustStart(10, "/data", "any")
	v.want(podMax, "8:0 rbps=1000000 wbps=max riops=max wiops=max\n")
}

func TestVolumeClassesAreUnavailableOnAMachineThatCannotLimitPods(t *testing.T) {
	m, legacy := disks(simcgroup.New()), disks(simcgroup.NewLegacy())
	m.AddCgroup("/kubepods/pod1")
	for want, host := range map[string]iodisks.FS{"NoHierarchyInV1": legacy, "NoThrottling": iotest.NoThrottling{Machine: m}} {
		tree, err := cgroup.Detect(host)
		must(t, err)
		backend := Kind(ioapply.New(ioapply.Options{FS: host, Tree: tree})).New("volume-io", classes.VolumeScope)
		var unavailable *classes.Unavailable
		if err := backend.Check(t.Context(), &Config{}); !errors.As(err, &unavailable) || unavailable.Reason != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// slowPod returns a fixture whose pod has the class slow, and the pod.
func slowPod(t *testing.T) (*volumes, classes.Holder) {
	t.Helper()
	v := newVolumes(t, withMounts("50 40 8:16 / /data rw - ext4 /dev/sdb rw"))
	v.apply("Classes: {slow: [{Devices: [/dev/sdb], ThrottleReadBps: 15M, ThrottleReadIOPS: 300}]}")
	podHolder := pod()
	podHolder.ID = "sandbox"
	v.holdings = append(v.holdings, classes.Holding{Holder: podHolder, Assignments: []classes.Assignment{{Resource: "pod-blockio", Class: "slow"}}})
	v.enforce(podHolder, "", "slow")
	return v, podHolder
}

// leaveSlow removes the class of the pod from slowPod.
func (v *volumes) leaveSlow(podHolder classes.Holder) {
	v.t.Helper()
	v.holdings[0].Assignments = nil
	v.enforce(podHolder, "slow", "")
}

// TestADiskGetsTheLowestOfTheLimitsOfThePodAndItsVolumes gives the pod the class slow, and its two volumes on the same disk the
// classes silver and gold. Then it takes these classes away one after another.
func TestADiskGetsTheLowestOfTheLimitsOfThePodAndItsVolumes(t *testing.T) {
	v, podHolder := slowPod(t)
	v.mustStart(10, "/data", "silver")
	v.want(podMax, "8:16 rbps=10000000 wbps=5000000 riops=300 wiops=max\n")
	v.mustStart(11, "/data", "gold")
	v.want(podMax, "8:16 rbps=10000000 wbps=5000000 riops=300 wiops=max\n")

	v.release(classes.VolumeID("c10", "/data"))
	v.repair()
	v.want(podMax, "8:16 rbps=15000000 wbps=max riops=300 wiops=max\n")
	v.leaveSlow(podHolder)
	v.want(podMax, "8:16 rbps=20000000 wbps=max riops=500 wiops=max\n")
	v.release(classes.VolumeID("c11", "/data"))
	v.repair()
	v.want(podMax, "")
}

func TestTheClassOfAPodIsObservedBesideTheLimitsOfItsVolumes(t *testing.T) {
	v, podHolder := slowPod(t)
	v.mustStart(10, "/data", "gold")
	if seen, err := v.backend.Observe(t.Context(), podHolder, "slow"); err != nil || seen.Class != "slow" || !seen.Known {
		t.Errorf("the class of the pod is observed as %+v, %v", seen, err)
	}

	v.leaveSlow(podHolder)
	for _, desired := range []string{"", "slow"} {
		if seen, err := v.backend.Observe(t.Context(), podHolder, desired); err != nil || seen.Class != "" || !seen.Known || seen.Foreign != "" {
			t.Errorf("with the desired class %q, a pod without a class is observed as %+v, %v", desired, seen, err)
		}
	}

	v.release(classes.VolumeID("c10", "/data")) // the limits stay until Repair
	for _, desired := range []string{"", "slow"} {
		if seen, err := v.backend.Observe(t.Context(), podHolder, desired); err != nil || seen.Class != "" || !seen.Known {
			t.Errorf("with limits of an ended volume and the desired class %q, a pod without a class is observed as %+v, %v", desired, seen, err)
		}
	}
}

func TestAVolumeThatHasMovedToAnotherDiskIsLimitedThere(t *testing.T) {
	v := newVolumes(t, withMounts("50 40 7:0 / /data rw - ext4 /dev/loop0 rw"))
	v.holdPod()
	v.mustStart(10, "/data", "silver")
	v.machine.AddFile("/proc/10/mountinfo", "50 40 8:16 / /data rw - ext4 /dev/sdb rw\n")
	v.wantObserved(10, "/data", "silver", "") // so the reconciler enforces the class again
	v.mustStart(10, "/data", "silver")
	v.repair()
	v.want(podMax, "8:16 "+silverLimits)
}

// TestNewLimitsOfAClassReplaceThoseOfAFormerProcess restarts the plugin, and then changes the class.
func TestNewLimitsOfAClassReplaceThoseOfAFormerProcess(t *testing.T) {
	m := withMounts("50 40 7:0 / /data rw - ext4 /dev/loop0 rw")
	newVolumes(t, m).mustStart(10, "/data", "silver")
	v := newVolumes(t, m)
	v.wantObserved(10, "/data", "silver", "silver")
	v.configure("classes: {silver: {maxWriteIops: 100}}")
	v.wantObserved(10, "/data", "silver", "")
	v.mustStart(10, "/data", "silver")
	v.want(podMax, "7:0 rbps=max wbps=max riops=max wiops=100\n")
}

func TestAVolumeOfAProcessThatEndedIsNotObserved(t *testing.T) {
	v := newVolumes(t, withMounts())
	if _, err := v.volume.Observe(t.Context(), v.hold(12, "/data", "silver"), "silver"); !errors.Is(err, classes.ErrEnded) {
		t.Errorf("the error is %v, want classes.ErrEnded", err)
	}
}

// TestLimitsOfOtherProgramsStay has a limit that no class sets, and a limit that the class silver sets, too.
func TestLimitsOfOtherProgramsStay(t *testing.T) {
	for _, foreign := range []string{"8:16 rbps=1234 wbps=max riops=max wiops=max\n", "8:16 rbps=10000000 wbps=max riops=max wiops=max\n"} {
		v := newVolumes(t, withMounts())
		v.holdPod()
		must(t, v.machine.WriteFile(podMax, []byte(foreign)))
		v.repair()
		v.want(podMax, foreign)
	}
}

func TestLimitsStayWhileAVolumeCannotBeFound(t *testing.T) {
	v := newVolumes(t, withMounts("50 40 7:0 / /data rw - ext4 /dev/loop0 rw"))
	v.holdPod()
	v.mustStart(10, "/data", "silver")
	v.machine.AddFile("/proc/10/mountinfo", "50 40 0:9 / /data rw - tmpfs tmpfs rw\n") // a container can hide the mount in a user namespace
	v.wantObserved(10, "/data", "silver", "")
	v.repair()
	v.want(podMax, "7:0 "+silverLimits)
	if seen, err := v.backend.Observe(t.Context(), pod(), ""); err != nil || seen.Foreign != "" {
		t.Errorf("the pod is observed as %+v, %v, want an empty Foreign", seen, err)
	}

	v.mustStart(11, "/data", "gold") // the class gold does not raise the limits of silver
	v.want(podMax, "7:0 rbps=10000000 wbps=5000000 riops=500 wiops=max\n")
	v.wantObserved(11, "/data", "gold", "gold")
	v.release(classes.VolumeID("c10", "/data")) // the volume that could not be found has ended
	v.repair()
	v.want(podMax, "7:0 rbps=20000000 wbps=max riops=500 wiops=max\n")
}

// TestLimitsOfOtherDisksAreRemovedAlthoughADeviceIsGone lets the first write, for 7:0, fail as for a device that is gone. So
// the simulated io.max keeps this line.
func TestLimitsOfOtherDisksAreRemovedAlthoughADeviceIsGone(t *testing.T) {
	v := newVolumes(t, withMounts("50 40 7:0 / /data rw - ext4 /dev/loop0 rw", "51 40 8:16 / /other rw - ext4 /dev/sdb rw"))
	v.holdPod()
	v.mustStart(10, "/data", "silver")
	v.mustStart(10, "/other", "silver")
	v.release(classes.VolumeID("c10", "/data"))
	v.release(classes.VolumeID("c10", "/other"))
	v.machine.Inject(simcgroup.Fault{Op: "write", File: "io.max", Err: syscall.ENODEV})
	v.repair()
	v.want(podMax, "7:0 "+silverLimits)
}

func TestTheDeviceOfAVolumeIsReportedWhileItIsLimited(t *testing.T) {
	v := newVolumes(t, withMounts("50 40 7:0 / /data rw - ext4 /dev/loop0 rw"))
	locator, id := v.volume.(classes.Locator), classes.VolumeID("c10", "/data")
	v.mustStart(10, "/data", "silver")
	if got := locator.Device(id); got != "7:0" {
		t.Errorf("after the start, the device is %q, want 7:0", got)
	}
	v.machine.AddFile("/proc/10/mountinfo", "50 40 8:16 / /data rw - ext4 /dev/sdb rw\n")
	v.mustStart(10, "/data", "silver")
	if got := locator.Device(id); got != "8:16" {
		t.Errorf("after a remount, the device is %q, want 8:16", got)
	}
	v.release(id)
	v.repair()
	if got := locator.Device(id); got != "" {
		t.Errorf("after the volume has ended, the device is %q, want none", got)
	}
}

// TestAVolumeWhoseClassMayNotLimitSharedDisksDoesNotLimitOne mounts a directory of sda1, so the disk also has data outside of the volume.
// Class any limits only rbps, to 1 MB/s. If the limits of silver counted, wbps would be 5000000.
func TestAVolumeWhoseClassMayNotLimitSharedDisksDoesNotLimitOne(t *testing.T) {
	v := newVolumes(t, withMounts("50 40 8:1 /srv /data rw - ext4 /dev/sda1 rw"))
	v.hold(11, "/data", "silver") // silver may not limit shared disks
	v.mustStart(10, "/data", "any")
	v.want(podMax, "8:0 rbps=1000000 wbps=max riops=max wiops=max\n")
}

// TestAConfigurationThatIsNotAppliedChangesNoLimits makes another backend, and applies no configuration to it.
func TestAConfigurationThatIsNotAppliedChangesNoLimits(t *testing.T) {
	v := newVolumes(t, withMounts("50 40 7:0 / /data rw - ext4 /dev/loop0 rw"))
	v.holdPod()
	v.mustStart(10, "/data", "silver")
	Kind(v.cgroups).New("volume-io", classes.VolumeScope)
	v.repair()
	v.want(podMax, "7:0 "+silverLimits)
}

func TestALongLineOfMountinfoDoesNotPreventTheStartOfAnotherPod(t *testing.T) {
	m := withMounts("50 40 8:16 / /data rw - ext4 /dev/sdb rw")
	v := newVolumes(t, m)
	m.Mount(iotest.LongMount()) // of another pod, with a line of more than 80 kB
	if err := v.start(10, "/data", "silver"); err != nil {
		t.Errorf("the start of another pod's container: %.300v", err)
	}
	v.want(podMax, "8:16 "+silverLimits)
}
