// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

func manyClasses(n int) string { return classesNamed("c", n) }

func classesNamed(name string, n int) string {
	text := "partitions: {p: {l3Allocation: 100%, classes: {"
	for i := range n {
		text += fmt.Sprintf("%s%d: {}, ", name, i)
	}
	return text + "}}}"
}

func TestCheckReportsWhatTheKernelWouldRefuse(t *testing.T) {
	twoBits := sim.IntelSpec()
	twoBits.L3.MinBits = 2
	onlyMB := sim.IntelSpec()
	onlyMB.L2, onlyMB.L3 = nil, nil
	noMB := sim.IntelSpec()
	noMB.MB = nil
	for name, test := range map[string]struct {
		fs     *sim.FS
		config string
		want   []string
	}{
		"as many classes as CLOSIDs": {sim.New(sim.IntelSpec()), manyClasses(7), nil},
		"one class too many": {sim.New(sim.IntelSpec()), manyClasses(8), []string{
			"8 classes are 1 too many: the CPU has 8 CLOSIDs, of which resctrl's root group uses 1; remove classes, or resctrl groups of other programs: out of CLOSIDs"}},
		"CLOSIDs of other programs count, and those of empty former groups do not": {occupied(t, sim.AMDSpec()), manyClasses(4), nil},
		"too many beside groups of other programs": {occupied(t, sim.AMDSpec()), manyClasses(6), []string{
			"6 classes are 2 too many: the CPU has 8 CLOSIDs, of which resctrl's root group uses 1, groups of other programs (alone, theirs) use 2, " +
				"groups of former classes that are in use (qos-busy) use 1; remove classes, or resctrl groups of other programs: out of CLOSIDs"}},
		"an exclusive group": {exclusive(t, sim.IntelSpec()), "partitions: {p: {l2Allocation: '0xf', l3Allocation: '0xf00', classes: {gold: }}}", []string{
			`class "gold": L3 0: mask 0xf00 (bits 0x200) overlaps group alone, whose mode is exclusive; remove this cache share from the class, or set the mode of group alone to shareable`,
			`class "gold": L3 1: mask 0xf00 (bits 0x200) overlaps group alone, whose mode is exclusive; remove this cache share from the class, or set the mode of group alone to shareable`}},
		"beside an exclusive group": {exclusive(t, sim.IntelSpec()), "partitions: {p: {l2Allocation: '0xf', l3Allocation: '0xf0', classes: {gold: }}}", nil},
		"too few bits": {sim.New(twoBits), "partitions: {p: {l3Allocation: 100%, classes: {gold: {l3Allocation: '0x1'}}}}", []string{
			`class "gold": L3: mask 0x1 has too few bits; the minimum of this CPU is 2`}},
		"a gap": {sim.New(sim.IntelSpec()), "partitions: {p: {l3Allocation: 100%, classes: {gold: {l3Allocation: '0,2'}, tin: {l3Allocation: '0x505'}}}}", []string{
			`class "gold": L3: mask 0x5 has a gap; this CPU accepts only contiguous bits`,
			`class "tin": L3: mask 0x505 has a gap; this CPU accepts only contiguous bits`}},
		"wider than the cache": {sim.New(sim.IntelSpec()), "partitions: {p: {l3Allocation: '0xffff', classes: {gold: }}}", []string{
			`L3 0, unified: partition "p": 0xffff: mask 0xffff is wider than the cache, whose mask is 0xfff`}},
		"beyond the partition": {sim.New(sim.IntelSpec()), "partitions: {p: {l3Allocation: '0xf0', classes: {gold: {l3Allocation: '0xf8'}}}}", []string{
			`class "gold": L3: 0xf8, counted from bit 4, has bits outside its partition's mask 0xf0`}},
		"no such cache": {sim.New(onlyMB), twoPartitions, []string{
			`class "gold": l3Allocation: this machine does not support the setting; remove the setting, or set options.l3.optional: true`,
			`class "bronze": l3Allocation: this machine does not support the setting; remove the setting, or set options.l3.optional: true`}},
		"no memory bandwidth": {sim.New(noMB), twoPartitions, []string{
			`class "bronze": mbAllocation: this machine does not support the setting; remove the setting, or set options.mb.optional: true`}},
		"too many partitions": {sim.New(sim.IntelSpec()), "partitions: {a: {l3Allocation: 1%}, b: {l3Allocation: 2%}}", []string{
			"L3 0, unified: 0 bits of the cache mask are too few for the partitions (a 1%, b 2%); give larger shares, or define fewer partitions"}},
		"more than all": {sim.New(sim.IntelSpec()), "partitions: {a: {l3Allocation: 60%}, b: {l3Allocation: 50%}}", []string{
			"L3 0, unified: the shares of the partitions (a 60%, b 50%) add up to 110%; reduce them to 100% or less"}},
		"a problem of each kind at once": {sim.New(sim.IntelSpec()), "partitions: {a: {l2Allocation: 60%, l3Allocation: 60%}, b: {l2Allocation: 50%, l3Allocation: 40%, mbAllocation: [5MBps], classes: {gold: {l3Allocation: '0,2'}}}}", []string{
			"L2 0, unified: the shares of the partitions (a 60%, b 50%) add up to 110%; reduce them to 100% or less",
			`class "gold": L3: mask 0x500 has a gap; this CPU accepts only contiguous bits`,
			`partition "b": mbAllocation has no value in per cent, but resctrl is mounted without mba_MBps; add a value like "50%", or on Intel mount resctrl with -o mba_MBps`}},
	} {
		t.Run(name, func(t *testing.T) {
			before := test.fs.Dump()
			config := parse(t, test.config)
			var got []string
			for _, err := range classes.SplitErrors(newBackend(test.fs, nil).Check(t.Context(), config)) {
				if unavailable := (*classes.Unavailable)(nil); errors.As(err, &unavailable) {
					t.Errorf("the problem is reported as an unavailable resource: %v", err)
				}
				got = append(got, err.Error())
			}

			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}

			if diff := cmp.Diff(before, test.fs.Dump()); diff != "" {
				t.Error(diff)
			}

			if test.want != nil && newBackend(test.fs, nil).Apply(t.Context(), config) == nil {
				t.Error("Apply accepts a configuration that Check refuses")
			}

			if diff := cmp.Diff(before, test.fs.Dump()); test.want != nil && diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAPseudoLockedGroupUsesNoCLOSID(t *testing.T) {
	spec := sim.IntelSpec()
	spec.L2, spec.L3 = nil, nil // masks would overlap the group
	config := func(n int) *Config {
		return parse(t, strings.Replace(manyClasses(n), "l3Allocation: 100%", "mbAllocation: [50%]", 1))
	}
	// Without the pseudo-lock, each of these groups would use a CLOSID: the group of a former class with a task, and the group of another
	// program.
	for _, group := range []string{"qos-busy", "alone"} {
		fs := sim.New(spec)
		must(t, fs.Mkdir(sim.MountPoint+"/"+group))
		fs.AddTask(1, group)
		b := newBackend(altered{fs, func(path string, data []byte, err error) ([]byte, error) {
			if path == sim.MountPoint+"/"+group+"/mode" {
				return []byte("pseudo-locked\n"), nil
			}
			return data, err
		}}, nil)
		if err := b.Check(t.Context(), config(7)); err != nil {
			t.Errorf("%s is pseudo-locked, and 7 of 8 CLOSIDs are not free: %v", group, err)
		}

		must(t, b.Apply(t.Context(), config(1)))
		want := "6 of 8 CLOSIDs are free: classes use 1, resctrl's root group uses 1"
		if got := conditionOf(b.Status(), ConditionCLOSIDs).Message; got != want {
			t.Errorf("%s is pseudo-locked, and the status is %q, want %q", group, got, want)
		}
	}
}

func TestOnlyCLOSIDsOfEmptyGroupsAreReused(t *testing.T) {
	fs := sim.New(sim.IntelSpec())
	b := newBackend(fs, nil)
	apply(t, b, manyClasses(7))       // with the root group, these groups use all 8 CLOSIDs
	apply(t, b, classesNamed("d", 7)) // must remove all these groups, which are empty
	fs.AddTask(1, "qos-d1")
	err := b.Apply(t.Context(), parse(t, manyClasses(7)))
	if !errors.Is(err, ErrNoCLOSID) {
		t.Errorf("Apply returned %v, want ErrNoCLOSID: the CLOSID of a group with tasks is in use", err)
	}
}

func TestUnavailableNamesReasonAndRemedy(t *testing.T) {
	no, unmounted, readOnly, mbps, noKernel := sim.IntelSpec(), sim.IntelSpec(), sim.IntelSpec(), sim.IntelSpec(), sim.IntelSpec()
	no.L2, no.L3, no.MB, no.RMIDs = nil, nil, nil, 0
	no.Unmounted, unmounted.Unmounted, noKernel.NoKernel = true, true, true
	readOnly.ReadOnly, mbps.Options = true, "mba_MBps"
	amd := sim.AMDSpec()
	amd.Unmounted, amd.MB = true, nil
	const inPercent = "partitions: {p: {mbAllocation: [50%], classes: {a: }}}"
	const inMBps = "partitions: {p: {mbAllocation: [500MBps], classes: {a: }}}"
	for name, test := range map[string]struct {
		spec    sim.Spec
		mount   bool          // the plugin may mount resctrl
		fault   syscall.Errno // of the mount
		config  string
		reason  resctrl.Reason
		message string // a part of the message
	}{
		"a CPU without RDT":                             {no, true, 0, inPercent, resctrl.NoCPUSupport, "the CPU has no RDT"},
		"a kernel without resctrl":                      {noKernel, true, 0, inPercent, resctrl.NoKernelSupport, "CONFIG_X86_CPU_RESCTRL"},
		"not mounted, and the plugin must not mount it": {unmounted, false, 0, inPercent, resctrl.NotMounted, "run: mount -t resctrl resctrl /sys/fs/resctrl"},
		"the plugin may not mount it":                   {unmounted, true, syscall.EPERM, inPercent, resctrl.NotMounted, "operation not permitted"},
		"a CPU for which the kernel refuses the mount":  {unmounted, true, syscall.ENODEV, inPercent, resctrl.NoCPUSupport, "no such device"},
		"mounted read-only":                             {readOnly, true, 0, inPercent, resctrl.ReadOnly, "remount,rw"},
		"mounted with MBps, for shares in per cent":     {mbps, true, 0, inPercent, resctrl.WrongMountOptions, "mount resctrl without mba_MBps"},
		"mounted with per cent, for shares in MBps":     {sim.IntelSpec(), true, 0, inMBps, resctrl.WrongMountOptions, "mount resctrl with -o mba_MBps"},
		"shares in MBps on a CPU without them":          {amd, true, 0, inMBps, resctrl.WrongMountOptions, "which this machine does not support"},
		"the mount point does not exist":                {unmounted, true, syscall.ENOENT, inPercent, resctrl.NoKernelSupport, "/sys/fs/resctrl"},
	} {
		t.Run(name, func(t *testing.T) {
			fs := sim.New(test.spec)
			refuse(fs, test.fault, func(call sim.Call) bool { return test.fault != 0 && call.Op == "mount" })

			b := New(Options{FS: fs, MountResctrl: test.mount})
			err := b.Apply(t.Context(), parse(t, test.config))
			unavailable := (*classes.Unavailable)(nil)
			if !errors.As(err, &unavailable) || unavailable.Reason != string(test.reason) || !strings.Contains(unavailable.Message, test.message) {
				t.Fatalf("got %v (%#v)", err, unavailable)
			}

			if status := b.Status(); status.Unavailable == nil || status.Unavailable.Reason != string(test.reason) {
				t.Errorf("the status is %+v, want the reason of the error", status)
			}
		})
	}
}

// mountOptionsFor returns the expected mount options of each configuration. The configurations set only the root group,
// because further groups could use up the RMIDs of a real kernel.
func mountOptionsFor() map[string]string {
	return map[string]string{
		"partitions: {p: {l3Allocation: 50%, classes: {system/default: }}}":                                         "rw,relatime",
		"partitions: {p: {mbAllocation: [500MBps], classes: {system/default: }}}":                                   "rw,relatime,mba_MBps",
		"partitions: {p: {l3Allocation: {all: {unified: 50%, code: 25%, data: 75%}}, classes: {system/default: }}}": "rw,relatime,cdp",
		"partitions: {p: {l2Allocation: {all: {unified: 50%, code: 25%, data: 75%}}, classes: {system/default: }}}": "rw,relatime", // the machine has no L2 CDP
	}
}

func TestApplyMountsWithTheOptionsThatTheConfigurationNeeds(t *testing.T) {
	spec := sim.IntelSpec()
	spec.Unmounted = true
	for config, want := range mountOptionsFor() {
		fs := sim.New(spec)
		b := newBackend(fs, nil)
		must(t, b.Check(t.Context(), parse(t, config)))
		apply(t, b, config)
		tree, err := resctrl.Find(fs)
		if diff := cmp.Diff(want, strings.Join(tree.Options(), ",")); diff != "" || err != nil {
			t.Errorf("%s\nfind resctrl: %v; mount options: %s", config, err, diff)
		}
	}
}

func TestStatusDescribesMachineAndClasses(t *testing.T) {
	spec := sim.IntelSpec()
	spec.L2 = nil
	fs := sim.New(spec)
	must(t, fs.Mkdir(sim.MountPoint+"/theirs"))
	b := newBackend(fs, nil)
	apply(t, b, `
options: {l2: {optional: true}}
partitions:
  p:
    l2Allocation: 50%
    l3Allocation: {all: {unified: 50%, code: 30%, data: 60%}}
    mbAllocation: [55%]
    classes: {gold: {l2Allocation: 50%, kubernetes: {denyPodAnnotation: true}}}
`)

	// without gold, which then drains
	apply(t, b, "partitions: {p: {l3Allocation: {all: {unified: 50%, code: 30%, data: 60%}}, mbAllocation: [55%], classes: {tin: {kubernetes: {denyPodAnnotation: true}}}}}")
	want := []classes.Condition{
		{Type: "ConfigurationApplied", Healthy: true, Reason: "Applied", Message: "1 classes have resctrl groups"},
		{Type: "ResctrlMounted", Healthy: true, Reason: "Mounted", Message: "resctrl is mounted at /sys/fs/resctrl with rw,relatime"},
		{Type: "CLOSIDsFree", Healthy: true, Reason: "Free",
			Message: "4 of 8 CLOSIDs are free: classes use 1, resctrl's root group uses 1, groups of other programs (theirs) use 1, " +
				"groups of former classes that are in use (qos-gold) use 1"},
		{Type: "ForeignGroups", Healthy: true, Reason: "Untouched", Message: "left as they are: theirs"},
		{Type: "ClassesDraining", Healthy: true, Reason: "InUse", Message: "classes that are no longer configured are kept until their containers end: gold"},
		{Type: "L3CodeAndDataApart", Reason: "WrongMountOptions", Message: "code and data of L3 are configured separately, but resctrl is mounted without cdp, so the unified shares apply; mount resctrl with -o cdp if the CPU supports that"},
		{Type: "BandwidthExact", Healthy: true, Limited: true, Reason: "Rounded", Message: "the kernel rounds memory bandwidth: tin has 0=60;1=60 for 0=55;1=55"},
		{Type: "AnnotationDenials", Reason: "NotEnforced", Message: "denyPodAnnotation and denyContainerAnnotation (tin) have no effect; " +
			"to limit who can request a class, use an admission policy that checks the annotations"},
	}

	if diff := cmp.Diff(want, b.Status().Conditions); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAnOptionalCacheThatIsAbsentDegradesItsClasses(t *testing.T) {
	spec := sim.IntelSpec()
	spec.L3 = nil
	b := newBackend(sim.New(spec), nil)
	apply(t, b, "options: {l3: {optional: true}}"+twoPartitions)
	reason := "l3Allocation is an optional setting that this machine does not support"
	if diff := cmp.Diff(map[string]string{"gold": reason, "bronze": reason}, b.Status().Degraded); diff != "" {
		t.Error(diff)
	}
}

// TestRMIDsThatAreNotFreeYetAreReported has three RMIDs, for the root group and two classes. The kernel does not free those of
// removed groups before Drain.
func TestRMIDsThatAreNotFreeYetAreReported(t *testing.T) {
	spec := sim.IntelSpec()
	spec.RMIDs, spec.Limbo = 3, true
	fs := sim.New(spec)
	b := newBackend(fs, nil)
	apply(t, b, manyClasses(2))
	removeClasses(t, b)
	before := fs.Dump()
	err := b.Apply(t.Context(), parse(t, manyClasses(2)))
	if !errors.Is(err, syscall.EBUSY) || !strings.Contains(err.Error(), "try again") || !strings.Contains(err.Error(), "Out of RMIDs") {
		t.Errorf("got %v", err)
	}

	if diff := cmp.Diff(before, fs.Dump()); diff != "" {
		t.Error(diff)
	}

	fs.Drain()
	apply(t, b, manyClasses(2))
}

func TestPreviewReportsThatTheMachineWasNotChecked(t *testing.T) {
	spec := sim.IntelSpec()
	spec.Unmounted = true
	b := New(Options{FS: sim.New(spec), MountResctrl: true})
	status, err := b.Preview(t.Context(), parse(t, twoPartitions))
	must(t, err)
	if len(status.Conditions) != 1 || status.Conditions[0].Healthy || !strings.Contains(status.Conditions[0].Message, "were not checked") {
		t.Errorf("the conditions are %+v, want only one that reports an unchecked machine", status.Conditions)
	}
}

func TestPreviewPredictsTheStatusAfterApply(t *testing.T) {
	for vendor, spec := range map[string]sim.Spec{"Intel": sim.IntelSpec(), "AMD": sim.AMDSpec()} {
		got := applied(t, newBackend(sim.New(spec), nil), twoPartitions)
		if diff := cmp.Diff(got["status"], got["check"]); diff != "" {
			t.Errorf("%s: -status +preview:\n%s", vendor, diff)
		}
	}
}

// TestTheErrorHasTheSmallestNumberOfClassesToRemove compares the number in the message with what Check accepts.
func TestTheErrorHasTheSmallestNumberOfClassesToRemove(t *testing.T) {
	for name, fs := range map[string]*sim.FS{"empty": sim.New(sim.IntelSpec()), "beside other groups": occupied(t, sim.AMDSpec())} {
		// One of the n classes is bronze. Beside other groups, its group exists already, and must not count twice.
		check := func(n int) error {
			return newBackend(fs, nil).Check(t.Context(), parse(t, "partitions: {p: {l3Allocation: 100%, classes: {bronze: {}, "+
				strings.TrimPrefix(manyClasses(n-1), "partitions: {p: {l3Allocation: 100%, classes: {")))
		}
		for _, n := range []int{9, 20, 50} {
			var named, more int
			err := check(n)
			if err == nil {
				t.Fatalf("%s: %d classes are accepted", name, n)
			}
			if _, scanErr := fmt.Sscanf(err.Error(), "%d classes are %d too many", &named, &more); scanErr != nil || named != n {
				t.Fatalf("%s: %d classes: %v", name, n, err)
			}
			if check(n-more) != nil || check(n-more+1) == nil {
				t.Errorf("%s: without %d of %d classes: %v; without %d: %v", name, more, n, check(n-more), more-1, check(n-more+1))
			}
		}
	}
}
