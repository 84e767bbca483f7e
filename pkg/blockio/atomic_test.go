// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"context"
	"errors"
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// everything has classes that set all kinds of values. red is for sda and sdb, and blue is for sda.
const everything = `
Classes:
  red:
  - Weight: 300
  - Devices: [/dev/sda, /dev/sdb]
    ThrottleReadBps: 1M
    ThrottleWriteIOPS: 50
    Weight: 500
    Latency: 5ms
  blue:
  - Weight: 200
  - Devices: [/dev/sda]
    ThrottleReadBps: 10M
    ThrottleWriteBps: 5M
    Weight: 50
    Latency: 1ms
`

func bfqOnAll(m *simcgroup.Machine) *simcgroup.Machine {
	disks(m)
	for _, name := range []string{"sda", "sdb"} {
		if err := m.WriteFile("/sys/block/"+name+"/queue/scheduler", []byte("bfq")); err != nil {
			panic(err)
		}
	}
	return m
}

// state returns the content of all files that a class may set.
func (f fixture) state(dir string) map[string]string {
	f.t.Helper()
	names, err := f.machine.ReadDir(dir)
	must(f.t, err)

	state := map[string]string{}
	for _, name := range names {
		if strings.HasPrefix(name, "cgroup.") || name == "tasks" {
			continue
		}
		data, err := f.machine.ReadFile(path.Join(dir, name))
		if errors.Is(err, syscall.EISDIR) {
			continue
		}
		must(f.t, err)
		state[name] = string(data)
	}

	return state
}

// TestAnyFailingWriteLeavesTheCgroupAsItWas changes the class on new machines. On each, one more write succeeds before one
// fails, until the change has no more writes.
func TestAnyFailingWriteLeavesTheCgroupAsItWas(t *testing.T) {
	for name, machine := range map[string]func() (*simcgroup.Machine, string){
		"v2": func() (*simcgroup.Machine, string) { return bfqOnAll(simcgroup.New()), v2Dir },
		"v1": func() (*simcgroup.Machine, string) { return bfqOnAll(simcgroup.NewLegacy()), v1Dir },
	} {
		for writes := range 100 {
			m, dir := machine()
			f := newFixture(t, m, classes.ContainerScope).apply(everything)
			f.enforce(container(), "", "red")
			before := f.state(dir)
			f.machine.Inject(simcgroup.Fault{Op: "write", Skip: writes, Err: syscall.EIO})
			err := f.backend.Enforce(t.Context(), container(), "red", "blue")
			if err == nil {
				if writes == 0 {
					t.Errorf("%s: nothing was written", name)
				}
				break
			}
			if !errors.Is(err, syscall.EIO) {
				t.Errorf("%s: write %d: error is %v, want one with EIO in it", name, writes, err)
			}
			if diff := cmp.Diff(before, f.state(dir)); diff != "" {
				t.Errorf("%s: write %d failed, and the values differ (-before +after):\n%s", name, writes, diff)
			}
		}
	}
}

// TestAWriteWithoutEffectIsAnError makes the kernel accept a write of io.max, and keep the former values.
func TestAWriteWithoutEffectIsAnError(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	f.machine.Inject(simcgroup.Fault{Op: "write", File: iocgroup.IOMax, Lasting: true})
	err := f.backend.Enforce(t.Context(), container(), "", "slow")
	if !errors.Is(err, iocgroup.ErrNotApplied) || !strings.Contains(err.Error(), slowLine) {
		t.Errorf("got %v", err)
	}
}

// TestAFailingUndoReportsBothErrors lets the first write, for sda, succeed. The write for sdb fails, and so does the undo.
func TestAFailingUndoReportsBothErrors(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	f.machine.Inject(simcgroup.Fault{Op: "write", File: iocgroup.IOMax, Skip: 1, Err: syscall.EIO, Lasting: true})
	err := f.backend.Enforce(t.Context(), container(), "", "slower")
	if err == nil || !strings.Contains(err.Error(), "restore the previous values") || !errors.Is(err, syscall.EIO) {
		t.Errorf("got %v", err)
	}
}

func TestAFailingReadIsAnError(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	f.machine.Inject(simcgroup.Fault{Op: "read", File: iocgroup.IOMax, Err: syscall.EIO})
	if err := f.backend.Enforce(t.Context(), container(), "", "slow"); !errors.Is(err, syscall.EIO) {
		t.Errorf("the error is %v, want syscall.EIO", err)
	}
	f.want(v2Dir+"/io.max", "")
}

func TestTheErrorOfADiskThatIsGoneNamesIt(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	f.machine.RemoveDisk("sda")
	err := f.backend.Enforce(t.Context(), container(), "", "slow")
	if !errors.Is(err, syscall.ENODEV) || !strings.Contains(err.Error(), "device 8:0 (sda) is gone") {
		t.Errorf("got %v", err)
	}
}

// TestLimitsOfADiskThatIsGoneAreNotCleared: the kernel would refuse the whole write of io.max because of this disk.
func TestLimitsOfADiskThatIsGoneAreNotCleared(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	f.runtime("", "slower")
	f.machine.RemoveDisk("sdb")
	f.apply(throttling) // looks up the disks of the classes again
	f.runtime("slower", "slow")
	f.enforce(container(), "slower", "slow")
	f.want(v2Dir+"/io.max", slowLine+"\n")
}

func TestAContainerWithoutCgroupIsAnError(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	target := container()
	target.ID, target.CgroupsPath = "nosuch", "/kubepods/pod1/nosuch"
	err := f.backend.Enforce(t.Context(), target, "", "slow")
	if err == nil || !strings.Contains(err.Error(), "no such cgroup: /sys/fs/cgroup/kubepods/pod1/nosuch") {
		t.Errorf("got %v", err)
	}
}

func TestNothingIsWrittenAfterTheDeadline(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.backend.Enforce(over, container(), "", "slow"); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v, want context.Canceled", err)
	}
	f.want(v2Dir+"/io.max", "")
}
