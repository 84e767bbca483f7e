// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeio

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// counting is a host that counts how often each file is read.
type counting struct {
	*simcgroup.Machine
	reads map[string]int
}

func (c counting) ReadFile(path string) ([]byte, error) {
	c.reads[path]++
	return c.Machine.ReadFile(path)
}

func (c counting) Readlink(path string) (string, error) {
	c.reads[path]++
	return c.Machine.Readlink(path)
}

// addIn adds a pod, and records the class of a volume of its container.
func (v *volumes) addIn(pod string, pid int, path, class string) classes.Holder {
	v.machine.AddCgroup("/kubepods/pod" + pod + "/c1")
	h := v.hold(pid, path, class)
	h.PodUID, h.CgroupsPath = pod, "/kubepods/pod"+pod
	v.holdings[len(v.holdings)-1].Holder = h
	v.holdings = append(v.holdings, classes.Holding{Holder: classes.Holder{ID: "sandbox" + pod, PodUID: pod, CgroupsPath: h.CgroupsPath}})
	return h
}

func TestRepairReadsTheMountsOfTheNodeAndOfEachContainerOnce(t *testing.T) {
	host := counting{withMounts("50 40 8:16 / /a rw - ext4 /dev/sdb rw", "51 40 7:0 / /b rw - ext4 /dev/loop0 rw"), map[string]int{}}
	v := newVolumesOn(t, host, host.Machine, slog.DiscardHandler)
	v.holdPod()
	v.mustStart(10, "/a", "silver")
	v.mustStart(10, "/b", "silver")
	must(t, v.volume.Enforce(t.Context(), v.addIn("2", 11, "/a", "silver"), "silver", "silver"))

	clear(host.reads)
	v.repair()
	for path, want := range map[string]int{"/proc/1/mountinfo": 1, "/proc/10/mountinfo": 1, "/proc/11/mountinfo": 1} {
		if got := host.reads[path]; got != want {
			t.Errorf("%s was read %d times, want %d", path, got, want)
		}
	}
}

// TestAVolumeIsFoundInTheMountsOfItsOwnContainer covers a reused PID: a process of the first container has ended, and a
// process of the second container has the same PID. In one round, the backend keeps the mounts that it has read.
func TestAVolumeIsFoundInTheMountsOfItsOwnContainer(t *testing.T) {
	v := newVolumes(t, withMounts("50 40 8:16 / /a rw - ext4 /dev/sdb rw"))
	defer v.volume.(classes.RoundObserver).BeginRound()()
	v.mustStart(10, "/a", "silver")
	v.wantObserved(10, "/a", "silver", "silver") // reads and keeps the mounts of the first container

	v.machine.AddFile("/proc/10/mountinfo", "50 40 7:0 / /a rw - ext4 /dev/loop0 rw\n")
	next := v.addIn("2", 10, "/a", "silver")
	// the fixture names containers by their PIDs
	next.ID, next.ContainerID = classes.VolumeID("next", "/a"), "next"
	must(t, v.volume.Enforce(t.Context(), next, "silver", "silver"))
	v.want("/sys/fs/cgroup/kubepods/pod2/io.max", "7:0 "+silverLimits)
}

// stuck is a host on which a write of a file does not return until the channel `released` is closed.
type stuck struct {
	*simcgroup.Machine
	file              string
	reached, released chan struct{}
}

func (s *stuck) WriteFile(path string, data []byte) error {
	if path == s.file {
		close(s.reached)
		<-s.released
	}
	return s.Machine.WriteFile(path, data)
}

// otherLock returns the UID of a pod whose cgroup does not share its lock with the cgroup of pod 1.
func otherLock(v *volumes) string {
	defer v.cgroups.Lock(classes.Holder{CgroupsPath: "/kubepods/pod1"})()
	for i := 2; ; i++ {
		uid := fmt.Sprint(i)
		if unlock, ok := v.cgroups.TryLock(classes.Holder{CgroupsPath: "/kubepods/pod" + uid}); ok {
			unlock()
			return uid
		}
	}
}

func TestRepairDoesNotWaitForAWriteThatHangsInTheKernel(t *testing.T) {
	host := &stuck{Machine: withMounts("50 40 7:0 / /data rw - ext4 /dev/loop0 rw"), reached: make(chan struct{}), released: make(chan struct{})}
	v := newVolumesOn(t, host, host.Machine, slog.DiscardHandler)
	v.holdPod()
	v.mustStart(10, "/data", "silver")
	v.release(classes.VolumeID("c10", "/data"))

	// A write to the cgroup of another pod hangs. This cgroup does not share its lock with the cgroup of pod 1.
	h := v.addIn(otherLock(v), 11, "/data", "silver")
	host.file = "/sys/fs/cgroup" + h.CgroupsPath + "/io.max"
	done := make(chan error, 1)
	go func() { done <- v.volume.Enforce(t.Context(), h, "silver", "silver") }()
	<-host.reached

	// Meanwhile, Repair removes the limits of the released volume of pod 1.
	v.repair()
	v.want(podMax, "")
	close(host.released)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestTheRemovalOfLimitsIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	m := withMounts("50 40 7:0 / /data rw - ext4 /dev/loop0 rw")
	v := newVolumesOn(t, m, m, slog.NewTextHandler(&log, nil))
	v.holdPod()
	v.holdings[0].PodNamespace, v.holdings[0].PodName = "ns", "db"
	v.mustStart(10, "/data", "silver")
	v.repair()
	if log.Len() > 0 {
		t.Errorf("log while the volume has its limits, want none:\n%s", &log)
	}

	v.release(classes.VolumeID("c10", "/data"))
	v.repair()
	v.repair()
	for _, want := range []string{`holder="pod ns/db"`, "7:0 rbps=10000000 wbps=5000000"} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("the log does not have %q exactly once:\n%s", want, &log)
		}
	}
}
