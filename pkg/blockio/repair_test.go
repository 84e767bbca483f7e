// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// wantDrift calls Repair and checks the drift that it has found.
func (f fixture) wantDrift(want ...string) classes.Drift {
	f.t.Helper()
	drift, err := f.backend.Repair(f.t.Context())
	if diff := cmp.Diff(want, drift.Found); err != nil || diff != "" {
		f.t.Errorf("found (-want +got):\n%s%v", diff, err)
	}
	return drift
}

func (f fixture) wantNoDrift() classes.Drift {
	f.t.Helper()
	return f.wantDrift()
}

// wantObserved checks that the backend observes the class `want` for a holder. `should` is the desired class of the holder.
func (f fixture) wantObserved(target classes.Holder, should, want string) {
	f.t.Helper()
	if got, err := f.backend.Observe(f.t.Context(), target, should); got.Class != want || !got.Known || err != nil {
		f.t.Errorf("observed %+v, %v; want %q", got, err, want)
	}
}

func TestADiskThatIsAddedIsThrottled(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	f.runtime("", "slower")
	f.wantNoDrift()
	f.machine.AddDisk("sdc", 8, 32)
	if drift := f.wantDrift("disk 8:32 (sdc) is new"); drift.DevicesGone {
		t.Error("DevicesGone is true, although no device is gone")
	}

	// Class slower limits each disk /dev/sd?, so it now limits sdc, too.
	f.runtime("slower", "slower")
	f.enforce(container(), "slower", "slower")
	// the kernel lists the disk with the newest limits first
	line := " rbps=1000000 wbps=max riops=100 wiops=max\n"
	f.want(v2Dir+"/io.max", "8:32"+line+"8:16"+line+"8:0"+line)
	f.wantObserved(container(), "slower", "slower")
	f.wantNoDrift()
}

func TestADiskThatIsRemovedIsDroppedFromClasses(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	f.runtime("", "slower")
	f.machine.RemoveDisk("sdb")
	if drift := f.wantDrift("disk 8:16 (sdb) is gone"); !drift.DevicesGone {
		t.Error("DevicesGone is false, although a device is gone")
	}

	f.wantObserved(container(), "slower", "slower")
	f.runtime("slower", "slower")
	f.want(v2Dir+"/io.max", "8:0 rbps=1000000 wbps=max riops=100 wiops=max\n")
}

// TestAClassWhoseLastDiskIsRemovedIsDegradedUntilTheDiskReturns: without a disk, the class has no values. Because a runtime cannot
// delete a stored io.max, Adjust replaces it with a text without effect, for a disk that exists (loop0).
func TestAClassWhoseLastDiskIsRemovedIsDegradedUntilTheDiskReturns(t *testing.T) {
	m := disks(simcgroup.New())
	m.RemoveDisk("sdb") // class slower has limits for sda and sdb, so sda is now its last disk
	f := newFixture(t, m, classes.ContainerScope).apply(throttling)
	f.runtime("", "slower")
	f.machine.RemoveDisk("sda")
	f.wantDrift("disk 8:0 (sda) is gone")
	adjustment, err := f.backend.Adjust(container(), "slower", "slower")
	if want := "7:0 rbps=max wbps=max riops=max wiops=max"; err != nil || adjustment[classes.Unified(iocgroup.IOMax)] != want {
		t.Errorf("got %v, %v; want %q", adjustment, err, want)
	}

	f.runtime("slower", "slower")
	f.enforce(container(), "slower", "slower")
	if degraded := f.backend.Status().Degraded["slower"]; !strings.Contains(degraded, "matches no block device") {
		t.Errorf("the class is degraded because of %q, want the missing device", degraded)
	}

	f.machine.AddDisk("sda", 8, 0)
	f.wantDrift("disk 8:0 (sda) is new")
	f.runtime("slower", "slower")
	f.want(v2Dir+"/io.max", "8:0 rbps=1000000 wbps=max riops=100 wiops=max\n")
}

func TestARemovedClassThatIsInUseLimitsADiskThatReturns(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	f.runtime("", "slower")
	f.apply(other) // without the class slower
	for range 2 {
		f.machine.RemoveDisk("sdb")
		f.wantDrift("disk 8:16 (sdb) is gone")
		f.enforce(container(), "slower", "slower")
		f.wantObserved(container(), "slower", "slower")
		f.machine.AddDisk("sdb", 8, 16)
		f.wantDrift("disk 8:16 (sdb) is new")
		f.enforce(container(), "slower", "slower")
		f.want(v2Dir+"/io.max", "8:16 rbps=1000000 wbps=max riops=100 wiops=max\n8:0 rbps=1000000 wbps=max riops=100 wiops=max\n")
	}
}

func TestAChangeOfTheSchedulerIsNoticed(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply("Classes: {heavy: [{Weight: 400}]}")
	f.wantNoDrift()
	must(t, f.machine.WriteFile("/sys/block/sda/queue/scheduler", []byte("bfq")))
	f.wantDrift("device files, mounts or I/O schedulers changed")
	if degraded := f.backend.Status().Degraded["heavy"]; degraded != "" {
		t.Errorf("the class is degraded because of %q, although bfq is active", degraded)
	}
}

func TestOnlyAContainerWhoseProcessIsGoneIsReportedAsEnded(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	for _, test := range []struct {
		name  string
		pid   int
		ended bool
	}{
		{"its process is gone", 4711, true},
		{"its process runs, in another cgroup than the runtime gives", 1, false},
		{"its process is not known", 0, false},
	} {
		f.machine.AddProcess(groupPath, 1)
		target := container() // whose cgroup does not exist
		target.ID, target.CgroupsPath, target.PID = "gone", "/kubepods/pod1/gone", test.pid
		_, err := f.backend.Observe(t.Context(), target, "slow")
		if got := err != nil && strings.Contains(err.Error(), classes.ErrEnded.Error()); got != test.ended {
			t.Errorf("%s: the error is %v", test.name, err)
		}
	}
}

// TestADiskThatNoClassLimitsIsIgnored removes and adds disks. Class slower limits /dev/sd?. So dm-0 and nvme0n1 are in no class, and sdz
// is in none after Withdraw.
func TestADiskThatNoClassLimitsIsIgnored(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	f.runtime("", "slower") // the runtime stores the values of class slower
	f.machine.RemoveDisk("dm-0")
	if drift := f.wantNoDrift(); drift.DevicesGone {
		t.Error("DevicesGone is true, although the runtime stores no values for the device")
	}
	f.machine.AddDisk("nvme0n1", 259, 0)
	f.wantNoDrift()
	must(t, f.backend.Withdraw(t.Context())) // no class is left
	f.machine.AddDisk("sdz", 65, 144)
	f.wantNoDrift()
}

func TestADiskThatIsGoneBeforeAReloadIsReportedOnce(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	f.machine.RemoveDisk("sdb")
	f.apply(throttling)
	for _, want := range []bool{true, false} {
		if drift, err := f.backend.Repair(t.Context()); err != nil || drift.DevicesGone != want {
			t.Errorf("got %+v, %v; want %v", drift, err, want)
		}
	}
}

// TestStoredValuesOfDisksThatAreGoneAreStale: the runtime would fail to set a value of a disk that does not exist, such
// as 9:9.
func TestStoredValuesOfDisksThatAreGoneAreStale(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope)
	const limits = " rbps=1000000 wbps=max riops=100 wiops=max"
	stored := map[string]string{iocgroup.IOMax: "8:0" + limits + "\n8:16" + limits}
	if f.backend.IsStale(container(), "slower", stored) {
		t.Error("before a configuration is applied, no value is stale")
	}

	f.apply(throttling)
	for _, test := range []struct {
		name, class string
		stored      map[string]string
		want        bool
	}{
		{"nothing", "", nil, false},
		{"the values of the class", "slower", stored, false},
		{"a value without a limit", "slow", map[string]string{iocgroup.IOMax: slowLine + "\n9:9 rbps=max"}, true},
		{"a limit", "", map[string]string{iocgroup.IOMax: "9:9 rbps=1"}, true},
		{"a weight", "", map[string]string{"io.bfq.weight": "default 100\n9:9 200"}, true},
		{"a default weight", "", map[string]string{"io.bfq.weight": "9:9 default"}, true},
		{"the initial weight of the cgroup", "", map[string]string{"io.weight": "default 100"}, false},
		{"text that is not of block I/O", "", map[string]string{"memory.max": "9:9 1", iocgroup.IOMax: "nonsense"}, false},
	} {
		if got := f.backend.IsStale(container(), test.class, test.stored); got != test.want {
			t.Errorf("%s, in class %q: %v is stale: %v, want %v", test.name, test.class, test.stored, got, test.want)
		}
	}

	f.machine.RemoveDisk("sdb")
	f.apply(throttling)
	if !f.backend.IsStale(container(), "slower", stored) {
		t.Error("the values of a disk that is gone are not stale")
	}
}

func TestAWeightOfADiskThatIsGoneIsReplacedByOneWithoutEffect(t *testing.T) {
	f := newFixture(t, bfqOnAll(simcgroup.New()), classes.ContainerScope).apply("Classes: {heavy: [{Devices: [/dev/sda], Weight: 400}]}")
	f.runtime("", "heavy")
	f.want(v2Dir+"/io.bfq.weight", "default 100\n8:0 400\n")
	f.machine.RemoveDisk("sda")
	f.wantDrift("disk 8:0 (sda) is gone")
	after, err := f.backend.Adjust(container(), "heavy", "heavy")
	if want := "default 100"; err != nil || after[classes.Unified("io.bfq.weight")] != want {
		t.Errorf("got %v, %v; want %q", after, err, want)
	}
}
