// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"errors"
	"log/slog"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	"github.com/qos-nri/qos-nri-plugin/test/iotest"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// process returns a new process of the plugin with a configuration and a memory.
func process(t *testing.T, m *simcgroup.Machine, scope classes.Scope, section string, saved *iotest.Memory) fixture {
	t.Helper()
	return newFixtureOn(t, m, m, scope, saved).apply(section)
}

// reloaded has the classes of `everything` with other values and disks.
const reloaded = `
Classes:
  red: [{Devices: [/dev/sda], ThrottleReadBps: 3M}]
  blue: [{Devices: [/dev/sdb], ThrottleWriteBps: 4M, Weight: 70}]
`

// TestAKillAtAnyWriteLeavesNothingOfTheFormerClass kills the plugin before each write of a change, also before the first and after the
// last. While the plugin does not run, the class files change. Another program has a limit of a disk of no class, with a value
// of one of the classes.
func TestAKillAtAnyWriteLeavesNothingOfTheFormerClass(t *testing.T) {
	for _, test := range []kill{
		{machine: simcgroup.NewLegacy, target: container(), scope: classes.ContainerScope, dir: v1Dir,
			file: "blkio.throttle.read_bps_device", foreign: "253:0 1000000"},
		{machine: simcgroup.New, target: pod(), scope: classes.PodScope, dir: path.Dir(v2Dir), file: "io.max", foreign: "253:0 rbps=1000000"},
	} {
		for _, test.to = range []string{"blue", ""} {
			for _, test.section = range []string{everything, reloaded} {
				writes := 0
				for test.killAfter(t, writes) {
					writes++
				}
				if writes < 4 {
					t.Errorf("the change has only %d writes, too few to test it", writes)
				}
			}
		}
	}
}

type kill struct {
	machine       func(...simcgroup.Option) *simcgroup.Machine
	target        classes.Holder
	scope         classes.Scope
	dir           string
	file, foreign string // a limit of another program
	to, section   string // the class of the change, and the configuration of the next process
}

// killAfter kills the plugin after some writes of a change, and reports whether the change has more writes.
func (k kill) killAfter(t *testing.T, writes int) (more bool) {
	t.Helper()
	m, saved, left := k.newMachine(t), iotest.NewMemory(), -1
	f := newFixtureOn(t, iotest.Mortal{Machine: m, Left: &left}, m, k.scope, saved).apply(everything)
	f.enforce(k.target, "", "red")
	left = writes
	alive := iotest.Survives(func() { f.enforce(k.target, "red", k.to) })

	next := process(t, m, k.scope, k.section, saved)
	seen, err := next.backend.Observe(t.Context(), k.target, k.to)
	if err != nil {
		t.Error(err)
	}
	if seen.Class != k.to || !seen.Known && k.to != "" { // as the reconciler decides
		next.enforce(k.target, seen.Class, k.to)
	}

	fresh := process(t, k.newMachine(t), k.scope, k.section, iotest.NewMemory())
	fresh.enforce(k.target, "", k.to)
	if diff := cmp.Diff(fresh.state(k.dir), next.state(k.dir)); diff != "" {
		t.Errorf("%s, killed after %d writes of the change to %q: (-want +got):\n%s", k.dir, writes, k.to, diff)
	}
	return !alive
}

// newMachine returns a machine with the limit of the other program.
func (k kill) newMachine(t *testing.T) *simcgroup.Machine {
	t.Helper()
	m := bfqOnAll(k.machine())
	must(t, m.WriteFile(path.Join(k.dir, k.file), []byte(k.foreign)))
	return m
}

// TestTheLimitsOfAnotherProgramAreNotTakenForThoseOfAClass: another program gives a pod in the system default the
// limits of class slow. They must stay.
func TestTheLimitsOfAnotherProgramAreNotTakenForThoseOfAClass(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.PodScope).apply(throttling)
	file := path.Dir(v2Dir) + "/io.max"
	must(t, f.machine.WriteFile(file, []byte(slowLine)))
	got, err := f.backend.Observe(t.Context(), pod(), "")
	if want := (classes.Observation{Known: true, Foreign: "limits of 8:0 (sda)"}); got != want || err != nil {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	f.enforce(pod(), "", "")
	f.want(file, slowLine+"\n")
}

// TestWithoutACheckpointAContainerWithTheValuesOfAClassIsInTheClass loses the checkpoint. Later, another program
// sets values of this class.
func TestWithoutACheckpointAContainerWithTheValuesOfAClassIsInTheClass(t *testing.T) {
	for _, scope := range []classes.Scope{classes.PodScope, classes.ContainerScope} {
		m := bfqOnAll(simcgroup.New())
		target, dir := pod(), path.Dir(v2Dir)
		if scope == classes.ContainerScope {
			target, dir = container(), v2Dir
		}
		process(t, m, scope, everything, iotest.NewMemory()).enforce(target, "", "red")

		next := process(t, m, scope, everything, &iotest.Memory{})
		next.wantObserved(target, "", "red")
		next.enforce(target, "red", "")
		next.want(dir+"/io.max", "")
		next.want(dir+"/io.bfq.weight", "default 100\n")

		// These are limits of class red. But the plugin has already looked at this cgroup, so it knows that they are of another program.
		must(t, m.WriteFile(dir+"/io.max", []byte("8:0 rbps=1000000 wiops=50")))
		next.wantObserved(target, "", "")
		next.enforce(target, "", "")
		next.want(dir+"/io.max", "8:0 rbps=1000000 wbps=max riops=max wiops=50\n")
	}
}

// TestAnUpdateOfTheRuntimeDuringACrashLeavesNoFormerValues changes the class of a container from blue to red. The plugin is killed when the
// runtime has written nothing of class red, only its limits, or everything. Then the class files change.
func TestAnUpdateOfTheRuntimeDuringACrashLeavesNoFormerValues(t *testing.T) {
	for _, written := range []string{"nothing", "limits", "everything"} {
		m, saved := bfqOnAll(simcgroup.New()), iotest.NewMemory()
		f := process(t, m, classes.ContainerScope, everything, saved)
		f.runtime("", "blue")
		created, err := f.backend.Adjust(container(), "", "blue")
		must(t, err)
		f.enforce(container(), "blue", "blue")

		// the plugin allows the change to class red, and the runtime writes a part of the values
		update, err := f.backend.Adjust(container(), "blue", "red")
		must(t, err)
		f.backend.Record(container(), "red")
		files := update.Unified()
		switch written {
		case "nothing":
			files = nil
		case "limits":
			files = map[string]string{iocgroup.IOMax: files[iocgroup.IOMax]}
		}
		must(t, m.SetUnified(groupPath, files))

		// class red has another limit now, and no weights
		next := process(t, m, classes.ContainerScope,
			"Classes: {red: [{Devices: [/dev/sda], ThrottleReadBps: 3M}], blue: []}", saved)
		next.backend.IsStale(container(), "red", created.Unified()) // the runtime has not stored the update
		next.runtime("blue", "red")
		next.enforce(container(), "red", "red")
		next.want(v2Dir+"/io.max", "8:0 rbps=3000000 wbps=max riops=max wiops=max\n")
		next.want(v2Dir+"/io.bfq.weight", "default 100\n")
	}
}

// TestAContainerWhoseClassChangesBeforeItsStartHasTheNewValues changes the class files between the creation and the start of a
// container.
func TestAContainerWhoseClassChangesBeforeItsStartHasTheNewValues(t *testing.T) {
	f := newFixture(t, bfqOnAll(simcgroup.New()), classes.ContainerScope).apply(everything)
	f.runtime("", "red")
	f.apply(reloaded)
	target := container()
	target.Starting = true
	f.enforce(target, "red", "red")
	// In `reloaded`, class red only limits the reads of sda. So the weight is the kernel's initial one.
	f.want(v2Dir+"/io.max", "8:0 rbps=3000000 wbps=max riops=max wiops=max\n")
	f.want(v2Dir+"/io.bfq.weight", "default 100\n")
}

// TestADeviceNumberThatIsUsedAgainBelongsToTheOtherProgram removes a disk with a limit. Another disk gets its number and a limit of
// another program.
func TestADeviceNumberThatIsUsedAgainBelongsToTheOtherProgram(t *testing.T) {
	for name, machine := range map[string]*simcgroup.Machine{"v2": simcgroup.New(), "v1": simcgroup.NewLegacy()} {
		t.Run(name, func(t *testing.T) {
			scope, target, dir := classes.PodScope, pod(), path.Dir(v2Dir)
			file, line := iocgroup.IOMax, "8:16 rbps=7000000 wbps=max riops=max wiops=max\n"
			if name == "v1" {
				scope, target, dir, file, line = classes.ContainerScope, container(), v1Dir, "blkio.throttle.read_bps_device", "8:16 7000000\n"
			}
			f := newFixture(t, disks(machine), scope).apply("Classes: {slow: [{Devices: [/dev/sdb], ThrottleReadBps: 10M}]}")
			f.enforce(target, "", "slow")
			f.machine.RemoveDisk("sdb")
			f.wantDrift("disk 8:16 (sdb) is gone")
			f.wantObserved(target, "slow", "slow")
			f.machine.AddDisk("sdz", 8, 16)
			f.wantNoDrift()
			must(t, f.machine.WriteFile(dir+"/"+file, []byte(line)))
			f.wantObserved(target, "slow", "slow")
			f.enforce(target, "slow", "")
			f.want(dir+"/"+file, line)
		})
	}
}

// TestAContainerStartsAlthoughItsRecordCannotBeSaved also checks that Repair saves the record later.
func TestAContainerStartsAlthoughItsRecordCannotBeSaved(t *testing.T) {
	saved := iotest.NewMemory()
	saved.Err = errors.New("no space left on device")
	var log strings.Builder
	f := newFixture(t, disks(simcgroup.NewLegacy()), classes.ContainerScope)
	f.backend.cgroups.Log = slog.New(slog.NewTextHandler(&log, nil))
	f.remember(saved)
	f.apply(throttling)
	f.enforce(container(), "", "slow")
	f.want(v1Dir+"/blkio.throttle.read_bps_device", "8:0 10000000\n")
	if !strings.Contains(log.String(), "no space left on device") {
		t.Errorf("the log is %q", log.String())
	}

	saved.Err = nil
	f.wantNoDrift() // Repair saves the record, so the next process knows that it can clear the limit
	next := process(t, f.machine, classes.ContainerScope, "Classes: {slow: []}", saved)
	next.enforce(container(), "slow", "slow")
	next.want(v1Dir+"/blkio.throttle.read_bps_device", "")
}

func TestRecordsThatCannotBeReadAreAnError(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope)
	f.backend.cgroups.Records = ioapply.NewRecords(slog.New(slog.DiscardHandler))
	err := f.backend.Remember(&iotest.Memory{Data: map[string][]byte{"cgroup /kubepods/pod1": []byte(`{"values":1}`)}})
	if err == nil || !strings.Contains(err.Error(), "read what was applied to cgroups") {
		t.Errorf("got %v", err)
	}
}
