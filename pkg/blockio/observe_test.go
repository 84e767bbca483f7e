// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"errors"
	"syscall"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// TestObserve checks which class is recognized by the values of a cgroup. `should` is the desired class, and `ok` is false if the
// class cannot be known.
func TestObserve(t *testing.T) {
	const slow, slower, free = "{Devices: [/dev/sda], ThrottleReadBps: 10M}", "{Devices: [/dev/sda], ThrottleReadBps: 1M}", ""
	for _, test := range []struct {
		name, section string
		applied       string // the class that was applied
		ioMax         string // what another program has set since
		should, want  string
		ok            bool
	}{
		{"A cgroup has the class that was applied", "Classes: {slow: [" + slow + "], slower: [" + slower + "]}", "slower", "", "slow", "slower", true},
		{"A cgroup to which nothing was applied is in the system default", "Classes: {slow: [" + slow + "]}", "", "", "slow", "", true},
		{"A class without effect is observed if it is the desired one", "Classes: {slow: [" + slow + "], free: [" + free + "]}", "", "", "free", "free", true},
		{"Of two classes with the same values, the desired one is observed", "Classes: {a: [" + slow + "], b: [" + slow + "]}", "a", "", "b", "b", true},
		{"With another value on a disk of its class, a cgroup is in no known class", "Classes: {slow: [" + slow + "]}", "slow", "8:0 rbps=7000", "slow", "", false},
		{"With one more limit on a disk of its class, a cgroup is in no known class", "Classes: {slow: [" + slow + "]}", "slow", "8:0 wbps=7000", "slow", "", false},
		{"Values of another program for another disk are ignored", "Classes: {slow: [" + slow + "], other: [{Devices: [/dev/sdb], ThrottleReadBps: 7k}]}", "slow",
			"8:16 rbps=7000", "slow", "slow", true},
		{"A cgroup in which another program has set the values of a class is in the system default", "Classes: {slow: [" + slow + "]}", "", "8:0 rbps=10000000", "", "", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(test.section)
			f.enforce(container(), "", test.applied)
			must(t, f.machine.SetUnified(groupPath, map[string]string{iocgroup.IOMax: test.ioMax}))
			got, err := f.backend.Observe(t.Context(), container(), test.should)
			if err != nil || got.Class != test.want || got.Known != test.ok {
				t.Errorf("got %+v, %v; want %q, %v", got, err, test.want, test.ok)
			}
		})
	}
}

func TestAnEnforcedClassIsObserved(t *testing.T) {
	for name, machine := range map[string]*simcgroup.Machine{"v2": simcgroup.New(), "v1": simcgroup.NewLegacy()} {
		f := newFixture(t, bfqOnAll(machine), classes.ContainerScope).apply(everything)
		from := ""
		for _, class := range []string{"red", "blue", "", "blue", "red"} {
			f.enforce(container(), from, class)
			got, err := f.backend.Observe(t.Context(), container(), "")
			if want := (classes.Observation{Class: class, Known: true}); err != nil || got != want {
				t.Errorf("%s: got %+v, %v; want %+v", name, got, err, want)
			}
			from = class
		}
	}
}

// TestValuesOfAnotherProgramAreReportedForAContainerWithoutAClass also checks what is reported if the desired class is slow, which
// has no weight: weights of other programs are then not reported.
func TestValuesOfAnotherProgramAreReportedForAContainerWithoutAClass(t *testing.T) {
	for _, test := range []struct{ name, ioMax, weight, foreign, foreignIfSlow string }{
		{"a limit of a disk that no class limits", "8:16 rbps=7000", "", "limits of 8:16 (sdb)", "limits of 8:16 (sdb)"},
		{"limits of two disks", "8:0 rbps=7000\n8:16 rbps=7000", "", "limits of 8:0 (sda), limits of 8:16 (sdb)", "limits of 8:0 (sda), limits of 8:16 (sdb)"},
		{"weights", "", "default 200\n8:16 300", "io.bfq.weight, io.bfq.weight of 8:16 (sdb)", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, bfqOnAll(simcgroup.New()), classes.ContainerScope).apply("Classes: {slow: [{Devices: [/dev/sda], ThrottleReadBps: 10M}]}")
			must(t, f.machine.SetUnified(groupPath, map[string]string{iocgroup.IOMax: test.ioMax, "io.bfq.weight": test.weight}))
			for _, expected := range []struct{ desired, foreign string }{{"", test.foreign}, {"slow", test.foreignIfSlow}} {
				got, err := f.backend.Observe(t.Context(), container(), expected.desired)
				if want := (classes.Observation{Known: true, Foreign: expected.foreign}); got != want || err != nil {
					t.Errorf("with the desired class %q: got %+v, %v; want %+v", expected.desired, got, err, want)
				}
			}
		})
	}
}

// TestWeightsThatNoClassSetsAreNotReadForAContainerWithAClass makes the weight file unreadable. So Observe fails only for a container
// without a class, for which it also reports the weights of other programs.
func TestWeightsThatNoClassSetsAreNotReadForAContainerWithAClass(t *testing.T) {
	f := newFixture(t, bfqOnAll(simcgroup.New()), classes.ContainerScope).apply(throttling)
	f.machine.Inject(simcgroup.Fault{Op: "read", File: string(iocgroup.IOBFQWeight), Err: syscall.EIO, Lasting: true})
	f.enforce(container(), "", "slow")
	got, err := f.backend.Observe(t.Context(), container(), "slow")
	if err != nil || got.Class != "slow" {
		t.Errorf("got %+v, %v", got, err)
	}

	if _, err := f.backend.Observe(t.Context(), container(), classes.SystemDefault); !errors.Is(err, syscall.EIO) {
		t.Errorf("got %v, want EIO, because Observe must read the weights of other programs", err)
	}
}

// TestAWeightIsRestoredAfterAnError changes a class that had no weight, while the cgroup has one of another program.
func TestAWeightIsRestoredAfterAnError(t *testing.T) {
	f := newFixture(t, bfqOnAll(simcgroup.New()), classes.ContainerScope).apply(throttling)
	must(t, f.machine.SetUnified(groupPath, map[string]string{string(iocgroup.IOBFQWeight): "8:0 300"}))
	f.apply("Classes: {slow: [{Devices: [/dev/sda], ThrottleReadBps: 7M, Weight: 500}]}")
	f.machine.Inject(simcgroup.Fault{Op: "read", File: string(iocgroup.IOBFQWeight), Skip: 1, Err: syscall.EIO}) // the verification
	if err := f.backend.Enforce(t.Context(), container(), "slow", "slow"); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	f.want(v2Dir+"/"+string(iocgroup.IOBFQWeight), "default 100\n8:0 300\n")
}

func TestACgroupThatCannotBeReadIsAnError(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	f.machine.Inject(simcgroup.Fault{Op: "read", File: iocgroup.IOMax, Err: syscall.EIO})
	if _, err := f.backend.Observe(t.Context(), container(), ""); !errors.Is(err, syscall.EIO) {
		t.Errorf("the error is %v, want syscall.EIO", err)
	}
}
