// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"bytes"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// onArm returns a configuration with a class of each percentage, named p<percentage>, and with the class "none" without a share.
func onArm(percentages ...int) string {
	text := `{partitions: {all: {l3Allocation: "100%", mbAllocation: ["100%", "12000MBps"], classes: {none: {}`
	for _, p := range percentages {
		text += fmt.Sprintf(`, p%[1]d: {mbAllocation: ["%[1]d%%", "4000MBps"]}`, p)
	}
	return text + "}}}}"
}

// TestBandwidthOfArmIsInPercent has the values that Linux 7.3 showed, by the number of bits of MBW_MAX. A row such as 10: 9
// means that a class with 10% has 9%, because the kernel rounds. The condition of the bandwidth reports each rounded value, and check
// predicts it.
func TestBandwidthOfArmIsInPercent(t *testing.T) {
	for width, want := range map[int]map[int]int{
		16: {10: 10, 33: 33, 40: 40, 100: 100},
		8:  {1: 1, 10: 10, 33: 33, 40: 40, 100: 100},
		7:  {1: 1, 10: 10, 33: 33, 40: 40, 100: 100},
		6:  {10: 9, 33: 34, 40: 41, 100: 100},
		5:  {4: 3, 10: 13, 40: 41, 100: 100},
		4:  {40: 44, 92: 100},
		3:  {40: 50, 100: 100},
		2:  {26: 50, 100: 100},
	} {
		t.Run(fmt.Sprint(width, " bits"), func(t *testing.T) {
			fsys := sim.New(sim.ArmSpec(width))
			b := newBackend(fsys, nil)
			var percentages, rounded []int
			for wanted, got := range want {
				percentages = append(percentages, wanted)
				if wanted != got {
					rounded = append(rounded, wanted)
				}
			}
			preview := applied(t, b, onArm(percentages...))["check"]
			for wanted, got := range want {
				line := fmt.Sprintf("MB:0=%d;1=%d\n", got, got)
				if text := b.Schemata()[fmt.Sprint("p", wanted)]; !strings.HasSuffix(text, line) {
					t.Errorf("a class of %d%% has %q, want %q", wanted, text, line)
				}
			}
			if text := b.Schemata()["none"]; !strings.HasSuffix(text, "MB:0=100;1=100\n") {
				t.Errorf("a class without a share has %q", text)
			}
			message := conditionOf(b.Status(), ConditionBandwidth).Message
			for _, wanted := range rounded {
				if text := fmt.Sprintf("p%d has 0=%d;1=%d for 0=%d;1=%d", wanted, want[wanted], want[wanted], wanted, wanted); !strings.Contains(message, text) {
					t.Errorf("the condition does not report %q: %s", text, message)
				}
			}
			if diff := cmp.Diff(preview.Degraded, b.Status().Degraded); diff != "" {
				t.Error(diff)
			}
			if got := conditionOf(preview, ConditionBandwidth).Message; got != message {
				t.Errorf("check predicts %q, and the kernel makes it %q", got, message)
			}
			wantNoDrift(t, b)                  // a rounded value is no drift
			apply(t, b, onArm(percentages...)) // again, on groups that exist
			if got := conditionOf(b.Status(), ConditionBandwidth).Message; got != message {
				t.Errorf("applied again, the condition is %q instead of %q", got, message)
			}
		})
	}
}

// TestABandwidthThatTheKernelMisreadsIsNotWritten: with 4 bits of MBW_MAX, Linux 7.3 turns 99 and 100 into 6. A new group has 100
// without a write, and other groups get it by a write of 98. A class with 99% keeps what its group has. The rows are applied to the
// same class, one after the other.
func TestABandwidthThatTheKernelMisreadsIsNotWritten(t *testing.T) {
	fsys := sim.New(sim.ArmSpec(4))
	b := newBackend(fsys, nil)
	share := func(text string) string {
		return fmt.Sprintf(`{partitions: {p: {mbAllocation: ["100%%"], classes: {a: {mbAllocation: [%q]}, b: {}}}}}`, text)
	}
	for _, test := range []struct{ share, want, degraded string }{
		{"100%", "MB:0=100;1=100\n", ""},
		{"99%", "MB:0=100;1=100\n", "a fault of the kernel: it reads back 6 for 99"},
		{"40%", "MB:0=44;1=44\n", ""},
		{"99%", "MB:0=44;1=44\n", "a fault of the kernel: it reads back 6 for 99"},
		{"100%", "MB:0=100;1=100\n", ""},
	} {
		apply(t, b, share(test.share))
		schemata := resctrl.Schemata{}
		if text, err := resctrl.ParseSchemata([]byte(dump(fsys, "schemata")["qos-a"])); err == nil {
			schemata = text
		}
		if got := schemata.String(); !strings.HasSuffix(got, test.want) {
			t.Errorf("%s: the group has %q, want %q at the end", test.share, got, test.want)
		}
		if got := b.Status().Degraded["a"]; !strings.Contains(got, test.degraded) || (got == "") != (test.degraded == "") {
			t.Errorf("%s: the class is degraded because of %q, want %q", test.share, got, test.degraded)
		}
		wantNoDrift(t, b)
	}
}

// faulty is a kernel with a fault: if `written` is written to a file, it stores `stored`.
type faulty struct {
	*sim.FS
	file, written, stored string
}

func (f faulty) WriteFile(name string, data []byte) error {
	if strings.HasSuffix(name, f.file) {
		data = bytes.ReplaceAll(data, []byte(f.written), []byte(f.stored))
	}
	return f.FS.WriteFile(name, data)
}

// TestABandwidthThatTheKernelChangesIsLeftAtItsDefault uses a kernel that stores 10 if 50 is written for cache 0. The class keeps
// 100 there, and gets its 50 for cache 1. Schemata leaves out the bandwidth that the class could not set.
func TestABandwidthThatTheKernelChangesIsLeftAtItsDefault(t *testing.T) {
	fsys := sim.New(sim.IntelSpec())
	b := newBackend(faulty{fsys, "schemata", "MB:0=50", "MB:0=10"}, nil)
	apply(t, b, `{partitions: {p: {mbAllocation: ["100%"], classes: {a: {mbAllocation: ["50%"]}, b: {mbAllocation: ["40%"]}}}}}`)
	for class, want := range map[string]string{"a": "MB:1=50\n", "b": "MB:0=40;1=40\n"} {
		if got := b.Schemata()[class]; !strings.HasSuffix(got, want) {
			t.Errorf("the class %s has %q, want %q at the end", class, got, want)
		}
	}
	if got := dump(fsys, "schemata")["qos-a"]; !strings.Contains(got, "MB:0=  100;1=   50") {
		t.Errorf("the group of the class has %q", got)
	}
	if got := b.Status().Degraded["a"]; !strings.Contains(got, "cache ID 0 is left as it is, because of a fault of the kernel: it reads back 10 for 50") {
		t.Errorf("the class is degraded because of %q", got)
	}
	wantNoDrift(t, b)
}

// TestABandwidthIsWrittenAgainAfterAMountWithAnotherUnit applies a class whose bandwidth the kernel misreads in the first unit, so
// the class does not get it. After a mount with the other unit, the class has its bandwidth in this unit. The plugin mounts without
// mba_MBps, because the class also has a value in per cent.
func TestABandwidthIsWrittenAgainAfterAMountWithAnotherUnit(t *testing.T) {
	const config = `{partitions: {p: {mbAllocation: ["100%", "9000MBps"], classes: {a: {mbAllocation: ["50%", "300MBps"]}}}}}`
	inMBps, inPercent := sim.IntelSpec(), sim.IntelSpec()
	inMBps.Options = "mba_MBps"
	for name, test := range map[string]struct {
		spec   sim.Spec
		faulty string
		mount  func(fsys *sim.FS) error
		want   string
	}{
		"mounted by another program": {inPercent, "MB:0=50", func(fsys *sim.FS) error { return fsys.Mount("resctrl", sim.MountPoint, "resctrl", "mba_MBps") }, "MB:0=300;1=300\n"},
		"mounted by the plugin":      {inMBps, "MB:0=300", func(*sim.FS) error { return nil }, "MB:0=50;1=50\n"},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := sim.New(test.spec)
			b := newBackend(faulty{fsys, "schemata", test.faulty, "MB:0=10"}, nil)
			apply(t, b, config)
			if b.Status().Degraded["a"] == "" {
				t.Fatal("the class is not degraded, although the kernel misreads its bandwidth")
			}

			fsys.Unmount()
			must(t, test.mount(fsys))
			repair(t, b)
			if got := b.Schemata()["a"]; !strings.HasSuffix(got, test.want) {
				t.Errorf("after a mount with another unit, the class has %q, want %q at the end", got, test.want)
			}
			if got := b.Status().Degraded; len(got) > 0 {
				t.Errorf("degraded: %v", got)
			}
		})
	}
}

// TestBandwidthThatNoClassSetsIsNotWritten refuses each write of memory bandwidth.
func TestBandwidthThatNoClassSetsIsNotWritten(t *testing.T) {
	for name, spec := range map[string]sim.Spec{"Intel": sim.IntelSpec(), "AMD": sim.AMDSpec(), "Arm": sim.ArmSpec(4)} {
		t.Run(name, func(t *testing.T) {
			fsys := sim.New(spec)
			refuse(fsys, syscall.EINVAL, func(c sim.Call) bool { return strings.Contains(c.Data, "MB:") })
			b := newBackend(fsys, nil)
			apply(t, b, `{partitions: {p: {l3Allocation: "100%", classes: {a: {l3Allocation: "50%"}}}}}`)
			if got := b.Status().Degraded; len(got) > 0 {
				t.Errorf("degraded: %v", got)
			}
		})
	}
}

func TestCachesAndBandwidthHaveDifferentIDsOnArm(t *testing.T) {
	b := newBackend(sim.New(sim.ArmSpec(8)), nil)
	apply(t, b, `{partitions: {p: {l3Allocation: "100%", mbAllocation: ["100%"], classes: {
  a: {l3Allocation: {all: "100%", "65536": "50%"}, mbAllocation: {all: ["100%"], "1": ["30%"]}},
  b: {l3Allocation: {all: "100%", "1,65535-4294967295": "50%"}, mbAllocation: {all: ["100%"], "65536": ["30%"]}}}}}}`)
	if diff := cmp.Diff("L3:0=ffff;65536=ff\nMB:0=100;1=30\n", b.Schemata()["a"]); diff != "" {
		t.Error(diff)
	}
	want := "l3Allocation of cache IDs 1, 65535, 65537-4294967295 has no effect: this machine has the IDs 0, 65536; " +
		"mbAllocation of cache IDs 65536 has no effect: this machine has the IDs 0-1"
	if diff := cmp.Diff(map[string]string{"b": want}, b.Status().Degraded); diff != "" {
		t.Error(diff)
	}
}

// TestUnknownLinesAndFilesOfResctrlAreIgnored has lines of schemata and files that kernels of NVIDIA for Arm show, and files that
// kernels after Linux 6.12 and the mount option debug add to the root directory. Without cpu_resctrl_groups, the backend looks for a
// thread in all groups, and must not take these files for groups.
func TestUnknownLinesAndFilesOfResctrlAreIgnored(t *testing.T) {
	for name, spec := range kernels() {
		t.Run(name, func(t *testing.T) {
			spec.Unknown = sim.Unknown{Lines: "L3_MAX:0=100;1=100\n# MB_HW:0=1\nMB_HLIM:0=0;1=0\n", Files: map[string]string{
				"info/L3_MAX/num_closids": "47\n", "info/MB_HLIM/num_closids": "47\n", "info/MB_MON/mon_features": "mbm_total_bytes\n",
				"kernel_mode": "x\n", "mba_MBps_event": "x\n", "ctrl_hw_id": "x\n",
			}}
			fsys := sim.New(spec)
			setUp(t, fsys, [][2]string{ // another program has a part of the caches
				{"theirs/schemata", "L3:0=c00;1=c00\nL2:0=f0000;1=f0000\n"}, {"schemata", "L3:0=3ff;1=3ff\nL2:0=ffff;1=ffff\n"},
			})
			b := newBackend(fsys, nil)
			const text = `{partitions: {p: {l3Allocation: "0x3ff", l2Allocation: "0xffff", classes: {a: {l3Allocation: "0x100"}}}}}`
			must(t, b.Check(t.Context(), parse(t, text)))
			apply(t, b, text)
			if diff := cmp.Diff("L2:0=ffff;1=ffff\nL3:0=100;1=100\nMB:0=100;1=100\n", b.Schemata()["a"]); diff != "" {
				t.Error(diff)
			}
			wantNoDrift(t, b)

			fsys.AddTask(100, "qos-a")
			if got, err := resctrl.At(fsys, sim.MountPoint).GroupOfTask(100); err != nil || got != "qos-a" {
				t.Errorf("the group of the thread is %q, %v, want qos-a", got, err)
			}
		})
	}
}

// TestTheKernelRoundsAsCheckPredicts applies all percentages, four at a time.
func TestTheKernelRoundsAsCheckPredicts(t *testing.T) {
	if *kernel == "" {
		t.Skip("changes this machine's resctrl; give -kernel for that")
	}
	must(t, unix.Mount("resctrl", sim.MountPoint, "resctrl", 0, ""))
	defer func() { must(t, unix.Unmount(sim.MountPoint, 0)) }()
	b := newBackend(hostfs.Root("/"), nil)
	for p := 1; p < 100; p += 4 {
		text := fmt.Sprintf(`{partitions: {all: {mbAllocation: ["100%%"], classes: {
  a: {mbAllocation: ["%d%%"]}, b: {mbAllocation: ["%d%%"]}, c: {mbAllocation: ["%d%%"]}, d: {mbAllocation: ["%d%%"]}}}}}`, p, p+1, p+2, p+3)
		preview, err := b.Preview(t.Context(), parse(t, text))
		must(t, err)
		must(t, b.Apply(t.Context(), parse(t, text)))
		if diff := cmp.Diff(conditionOf(preview, ConditionBandwidth), conditionOf(b.Status(), ConditionBandwidth)); diff != "" {
			t.Errorf("%s: -check +status: %s", text, diff)
		}
		if diff := cmp.Diff(preview.Degraded, b.Status().Degraded); diff != "" {
			t.Errorf("%s: -check +status: %s", text, diff)
		}
	}
	t.Log(b.Schemata(), b.Status().Degraded)
}
