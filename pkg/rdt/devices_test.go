// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"errors"
	"maps"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// deviceMasks returns what the kernel shows about device traffic.
func deviceMasks(t *testing.T, fs *sim.FS) string {
	t.Helper()
	state, err := fs.ReadFile(sim.MountPoint + "/info/L3/io_alloc")
	must(t, err)
	masks, err := fs.ReadFile(sim.MountPoint + "/info/L3/io_alloc_cbm")
	if err != nil {
		return strings.TrimSpace(string(state))
	}
	return strings.TrimSpace(string(masks))
}

// setDeviceMasks limits device traffic, as another program can do.
func setDeviceMasks(fs *sim.FS, masks string) error {
	return errors.Join(fs.WriteFile(sim.MountPoint+"/info/L3/io_alloc", []byte("1\n")),
		fs.WriteFile(sim.MountPoint+"/info/L3/io_alloc_cbm", []byte(masks+"\n")))
}

const withoutDevices = `{partitions: {p: {l3Allocation: "50%", classes: {a: {}}}}}`

func withDevices(share string) string {
	return `{partitions: {p: {l3Allocation: "50%", classes: {a: {l3Allocation: "50%"}}}}, deviceTraffic: {l3Allocation: ` + share + `}}`
}

// TestDeviceTrafficGetsItsShareAndItsFormerMaskBack sets the share of device traffic to cache that no partition has.
// Without the field deviceTraffic, and after Withdraw, it has the initial mask again.
func TestDeviceTrafficGetsItsShareAndItsFormerMaskBack(t *testing.T) {
	for initial, former := range map[string]string{"disabled": "disabled", "f": "0=f;1=f"} {
		t.Run(initial, func(t *testing.T) {
			fs := sim.New(withIOAlloc(initial))
			b := newBackend(fs, nil)
			// Each cache has 12 bits and 16 MiB, and the partition has bits 0 to 5. So 20% are 2 bits, and 4MiB are 3 bits.
			for _, step := range []struct{ text, want string }{
				{withoutDevices, former},
				{withDevices(`"20%"`), "0=c00;1=c00"},
				{withDevices(`{all: "0x30", "1": 4MiB}`), "0=30;1=e00"},
				{withoutDevices, former},
			} {
				apply(t, b, step.text)
				if diff := cmp.Diff(step.want, deviceMasks(t, fs)); diff != "" {
					t.Errorf("%s: %s", step.text, diff)
				}
			}

			apply(t, b, withDevices(`"20%"`))
			must(t, b.Withdraw(t.Context()))
			if diff := cmp.Diff(former, deviceMasks(t, fs)); diff != "" {
				t.Errorf("after Withdraw: %s", diff)
			}
		})
	}
}

// TestAFailedChangeOfDeviceTrafficIsUndone refuses the write of one file, but not the 0 that disables io_alloc again. Device
// traffic and the groups must then be as before.
func TestAFailedChangeOfDeviceTrafficIsUndone(t *testing.T) {
	spec := withIOAlloc("disabled")
	for _, refuses := range []string{"io_alloc", "io_alloc_cbm", "schemata"} {
		fs := sim.New(spec)
		b := newBackend(fs, nil)
		refuse(fs, syscall.EIO, func(c sim.Call) bool {
			return c.Op == "write" && strings.HasSuffix(c.Path, "/"+refuses) && !strings.HasPrefix(c.Data, "0\n")
		})
		before := fs.Dump()
		if err := b.Apply(t.Context(), parse(t, withDevices(`"20%"`))); err == nil {
			t.Errorf("%s: no error", refuses)
		}
		if diff := cmp.Diff(before, fs.Dump()); diff != "" || deviceMasks(t, fs) != "disabled" {
			t.Errorf("%s: device traffic is %s, groups: %s", refuses, deviceMasks(t, fs), diff)
		}
	}
}

func TestImpossibleDeviceTrafficIsRefused(t *testing.T) {
	full := withIOAlloc("disabled")
	for name, test := range map[string]struct {
		spec       sim.Spec
		text, want string
	}{
		"without io_alloc": {sim.IntelSpec(), withDevices(`"20%"`),
			"deviceTraffic: this machine cannot limit the cache of device traffic (info/L3/io_alloc); remove deviceTraffic"},
		"too large": {full, withDevices(`"60%"`), "deviceTraffic: L3 0: 60% needs 7 contiguous bits of the cache outside the partitions, " +
			"but the partitions have the bits 0x3f of 0xfff; reduce the shares of the partitions, or write a mask, which may overlap them"},
		"nothing":              {full, withDevices(`"0%"`), "deviceTraffic: L3 0: 0% selects no part of the cache; write 1% for the smallest possible share"},
		"outside of the cache": {full, withDevices(`"0xf000"`), "deviceTraffic: L3 0: mask 0xf000 is wider than the cache, whose mask is 0xfff"},
		"no CLOSID": {full, strings.Replace(withDevices(`"20%"`), "a: {", "b: , c: , a: {", 1),
			"3 classes are 1 too many: the CPU has 4 CLOSIDs, of which resctrl's root group uses 1, device traffic (io_alloc) uses 1; " +
				"remove classes, or resctrl groups of other programs: out of CLOSIDs"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := newBackend(sim.New(test.spec), nil).Check(t.Context(), parse(t, test.text)); err == nil || err.Error() != test.want {
				t.Errorf("check: %v\nwant: %s", err, test.want)
			}
		})
	}
}

// Both configurations use all CLOSIDs of a CPU with 4, of which the root group has one.
const (
	threeClasses         = `{partitions: {p: {l3Allocation: "50%", classes: {a: , b: , c: }}}}`
	twoClassesAndDevices = `{partitions: {p: {l3Allocation: "50%", classes: {a: , b: }}}, deviceTraffic: {l3Allocation: "20%"}}`
)

func TestDeviceTrafficAndClassesGiveEachOtherTheLastCLOSID(t *testing.T) {
	fs := sim.New(withIOAlloc("disabled"))
	b := newBackend(fs, nil)
	// two rounds, so that each configuration also follows the other one
	for range 2 {
		for text, masks := range map[string]string{threeClasses: "disabled", twoClassesAndDevices: "0=c00;1=c00"} {
			must(t, b.Check(t.Context(), parse(t, text)))
			apply(t, b, text)
			if got := deviceMasks(t, fs); got != masks {
				t.Errorf("%s: device traffic has %s, want %s", text, got, masks)
			}
		}
	}
}

// TestAClassThatGaveItsCLOSIDToDeviceTrafficIsRestoredAfterAFailure lets an operation fail after the group of class c was removed.
func TestAClassThatGaveItsCLOSIDToDeviceTrafficIsRestoredAfterAFailure(t *testing.T) {
	fs := sim.New(withIOAlloc("disabled"))
	b := newBackend(fs, nil)
	apply(t, b, threeClasses)
	before, written := fs.Dump(), false
	fs.Inject(func(c sim.Call) *sim.Fault {
		if c.Op == "write" && strings.HasSuffix(c.Path, "/qos-b/schemata") && !written {
			written = true
			return &sim.Fault{Errno: syscall.EIO}
		}
		return nil
	})
	// With another share, the groups of a and b are written, too.
	err := b.Apply(t.Context(), parse(t, strings.Replace(twoClassesAndDevices, "50%", "40%", 1)))
	fs.Inject(nil)
	if err == nil || errors.Is(err, ErrRollback) {
		t.Errorf("with a failing write: %v", err)
	}
	if diff := cmp.Diff(before, fs.Dump()); diff != "" {
		t.Errorf("after a failure (-before +after):\n%s", diff)
	}
}

// TestRemovedDeviceTrafficFreesItsCLOSID checks that no condition reports device traffic any more, as a user of a CLOSID or of
// cache bits of a class.
func TestRemovedDeviceTrafficFreesItsCLOSID(t *testing.T) {
	b := newBackend(sim.New(withIOAlloc("disabled")), nil)
	apply(t, b, withDevices(`"0x3"`))
	apply(t, b, withoutDevices)
	for _, c := range b.Status().Conditions {
		if c.Type == ConditionOwnCache || strings.Contains(c.Message, "io_alloc") {
			t.Errorf("%s: %s", c.Type, c.Message)
		}
	}
}

// TestDriftOfDeviceTrafficIsCorrected has a configuration with a class, and one without classes.
func TestDriftOfDeviceTrafficIsCorrected(t *testing.T) {
	for _, text := range []string{withDevices(`"20%"`), `{deviceTraffic: {l3Allocation: "20%"}}`} {
		fs := sim.New(withIOAlloc("disabled"))
		b := newBackend(fs, nil)
		apply(t, b, text)
		must(t, setDeviceMasks(fs, "0=1"))
		wantRepair(t, b, "the cache of device traffic was changed")
		if got := deviceMasks(t, fs); got != "0=c00;1=c00" {
			t.Errorf("%s: after the repair, device traffic has %s", text, got)
		}
	}
}

// savedMemory is a classes.Memory.
type savedMemory map[string][]byte

func (m savedMemory) Load() map[string][]byte { return m }

func (m savedMemory) Save(changed map[string][]byte) error {
	maps.Copy(m, changed)
	maps.DeleteFunc(m, func(_ string, data []byte) bool { return data == nil })
	return nil
}

// TestDeviceTrafficIsRestoredUnderOtherMountOptions restarts the plugin after another program has mounted resctrl with separate
// code and data. If class files then lack the field deviceTraffic, device traffic gets back what it had under this mount, and not what was
// saved under the former one.
func TestDeviceTrafficIsRestoredUnderOtherMountOptions(t *testing.T) {
	spec, memory := withIOAlloc("f"), savedMemory{}
	spec.L3.CLOSIDs = 16 // with separate code and data, only half of them exist
	fs := sim.New(spec)
	first := newBackend(fs, nil)
	must(t, first.Remember(memory))
	apply(t, first, withDevices(`"20%"`))

	fs.Unmount()
	must(t, fs.Mount("resctrl", sim.MountPoint, "resctrl", "cdp"))
	b := newBackend(fs, nil)
	must(t, b.Remember(memory))
	masks := func() string {
		data, err := fs.ReadFile(sim.MountPoint + "/info/L3CODE/io_alloc_cbm")
		must(t, err)
		return string(data)
	}
	before := masks()
	for range 2 { // the second time, the settings from before the first time stay saved
		apply(t, b, withDevices(`"20%"`))
		if masks() == before {
			t.Fatalf("device traffic has still %s", before)
		}
	}
	apply(t, b, withoutDevices)
	if got := masks(); got != before {
		t.Errorf("without the field, device traffic has %s, want %s as before", got, before)
	}
	if len(memory) > 0 {
		t.Errorf("still saved are %v", memory)
	}
}

// TestDeviceTrafficIsRestoredOnlyIfAFailedChangeWasNotUndone lets a change of device traffic fail. If the plugin undoes it, and
// another program then sets device traffic to 0x30, the next configuration leaves that. If the plugin cannot undo it, the next
// configuration disables io_alloc again. This is so in the same process, and in the next one.
func TestDeviceTrafficIsRestoredOnlyIfAFailedChangeWasNotUndone(t *testing.T) {
	for name, test := range map[string]struct {
		undone bool
		want   string
	}{"undone": {true, "0=30;1=30"}, "not undone": {false, "disabled"}} {
		t.Run(name, func(t *testing.T) {
			spec, memory := withIOAlloc("disabled"), savedMemory{}
			fs := sim.New(spec)
			first := newBackend(fs, nil)
			must(t, first.Remember(memory))
			// The kernel refuses the masks and, if the change must not be undone, also to disable io_alloc again.
			refuse(fs, syscall.EIO, func(c sim.Call) bool {
				return c.Op == "write" && (strings.HasSuffix(c.Path, "/io_alloc_cbm") || !test.undone && strings.HasSuffix(c.Path, "/io_alloc") && c.Data == "0\n")
			})
			if err := first.Apply(t.Context(), parse(t, withDevices(`"20%"`))); errors.Is(err, ErrRollback) == test.undone {
				t.Fatal(err)
			}
			fs.Inject(nil)
			if saved := len(memory) > 0; saved == test.undone {
				t.Errorf("saved is %s; want something only if the change was not undone", memory)
			}

			if test.undone {
				must(t, setDeviceMasks(fs, "0=30;1=30"))
			}
			second := newBackend(fs, nil)                // the next process
			must(t, second.Remember(maps.Clone(memory))) // a copy, so that only `first` changes `memory`
			for _, b := range []*Backend{second, first} {
				apply(t, b, withoutDevices)
				if got := deviceMasks(t, fs); got != test.want {
					t.Errorf("without the field, device traffic has %s, want %s", got, test.want)
				}
				if !test.undone { // as the failed change has left it
					must(t, fs.WriteFile(sim.MountPoint+"/info/L3/io_alloc", []byte("1\n")))
				}
			}
			if len(memory) > 0 {
				t.Errorf("still saved are %s", memory)
			}
		})
	}
}

// TestDeviceTrafficIsRestoredAfterARestart removes the field deviceTraffic while the plugin does not run.
func TestDeviceTrafficIsRestoredAfterARestart(t *testing.T) {
	for _, before := range []string{"disabled", "0=f;1=f"} {
		spec, memory := withIOAlloc("disabled"), savedMemory{}
		fs := sim.New(spec)
		if before != "disabled" {
			must(t, setDeviceMasks(fs, before))
		}
		restarted := func() *Backend {
			b := newBackend(fs, nil)
			must(t, b.Remember(memory))
			return b
		}
		for range 2 { // the second process finds what the first one has set
			apply(t, restarted(), withDevices(`"20%"`))
		}
		if got := deviceMasks(t, fs); got == before {
			t.Fatalf("device traffic has still %s", got)
		}
		apply(t, restarted(), withoutDevices)
		if got := deviceMasks(t, fs); got != before {
			t.Errorf("without the field, device traffic has %s, want %s as before", got, before)
		}
		if len(memory) > 0 {
			t.Errorf("still saved are %v", memory)
		}
	}
}
