// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

func parse(t testing.TB, text string) *Config {
	t.Helper()
	config, err := parseConfig(text)
	must(t, err)
	return config
}

func parseConfig(text string) (*Config, error) {
	config, err := classes.ParseSection(classes.File{Data: []byte(text)}, ParseConfig)
	if err != nil {
		return nil, err
	}
	return config.(*Config), nil
}

func newBackend(fs resctrl.FS, threads Threads) *Backend {
	return New(Options{FS: fs, Threads: threads, MountResctrl: true})
}

func apply(t testing.TB, b *Backend, text string) {
	t.Helper()
	must(t, b.Apply(t.Context(), parse(t, text)))
}

func nobody(string) bool { return false }

// dump returns the content of one file of each group, by the name of the group.
func dump(fs *sim.FS, file string) map[string]string {
	texts := map[string]string{}
	for path, text := range fs.Dump() {
		if group, ok := strings.CutSuffix(strings.TrimPrefix(path, sim.MountPoint), "/"+file); ok {
			texts[strings.TrimPrefix(group, "/")] = text
		}
	}
	return texts
}

func schemataIn(t testing.TB, fs *sim.FS) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for name, text := range dump(fs, "schemata") {
		texts[name] = schemataOf(t, text).String()
	}
	return texts
}

const twoPartitions = `
partitions:
  exclusive:
    l3Allocation: "60%"
    classes: {gold: {l3Allocation: "100%"}}
  shared:
    l3Allocation: "40%"
    mbAllocation: ["50%", "4000MBps"]
    classes: {bronze: {l3Allocation: "100%", mbAllocation: ["66%", "3000MBps"]}}
`

const others = `
partitions:
  p:
    l3Allocation: "50%"
    mbAllocation: ["100%", "9000MBps"]
    classes: {silver: {l3Allocation: "100%"}, bronze: {}}
  q:
    l3Allocation: "50%"
    classes: {system/default: {}, tin: {l3Allocation: "50%"}}
`

// TestApplyWritesGroupsOnEveryMachine compares the schemata of all groups. The root group is "". The L3 has 12 bits, and the L2
// has 20. A share of a class is a part of the share of its partition. Intel has bandwidth in steps of 10%, so 66% of 50% gives
// 40. AMD has it in 1/8 GB/s, so 3000 MBps give 24.
func TestApplyWritesGroupsOnEveryMachine(t *testing.T) {
	cdp, mbps, both := sim.IntelSpec(), sim.IntelSpec(), sim.IntelSpec()
	cdp.Options, mbps.Options = "cdp", "mba_MBps"
	both.L2.CDP, both.Options = true, "cdp,cdpl2"
	onlyMB, onlyL2 := sim.IntelSpec(), sim.IntelSpec()
	onlyMB.L2, onlyMB.L3 = nil, nil
	onlyL2.L3, onlyL2.MB = nil, nil
	amdNewer := sim.AMDSpec()
	amdNewer.MB.Max = 4096
	one := sim.IntelSpec()
	one.L2, one.Domains = nil, []int{3}
	optional := "options: {l2: {optional: true}, l3: {optional: true}, mb: {optional: true}}"
	const l2 = "\npartitions: {p: {l2Allocation: 50%, classes: {a: {l2Allocation: 25%}}}}"
	for name, test := range map[string]struct {
		spec   sim.Spec
		config string
		want   map[string]string
	}{
		"Intel": {sim.IntelSpec(), twoPartitions, map[string]string{
			"":           "L2:0=fffff;1=fffff\nL3:0=fff;1=fff\nMB:0=100;1=100\n",
			"qos-gold":   "L2:0=fffff;1=fffff\nL3:0=ff;1=ff\nMB:0=100;1=100\n",
			"qos-bronze": "L2:0=fffff;1=fffff\nL3:0=f00;1=f00\nMB:0=40;1=40\n"}},
		"Intel with CDP": {cdp, twoPartitions, map[string]string{
			"":           "L2:0=fffff;1=fffff\nL3CODE:0=fff;1=fff\nL3DATA:0=fff;1=fff\nMB:0=100;1=100\n",
			"qos-gold":   "L2:0=fffff;1=fffff\nL3CODE:0=ff;1=ff\nL3DATA:0=ff;1=ff\nMB:0=100;1=100\n",
			"qos-bronze": "L2:0=fffff;1=fffff\nL3CODE:0=f00;1=f00\nL3DATA:0=f00;1=f00\nMB:0=40;1=40\n"}},
		"Intel with code and data": {cdp,
			"partitions: {p: {l3Allocation: {all: {unified: 50%, code: 25%, data: 75%}}, classes: {a: {l3Allocation: {all: {unified: 100%, code: 50%, data: 100%}}}}}}",
			map[string]string{
				"":      "L2:0=fffff;1=fffff\nL3CODE:0=fff;1=fff\nL3DATA:0=fff;1=fff\nMB:0=100;1=100\n",
				"qos-a": "L2:0=fffff;1=fffff\nL3CODE:0=3;1=3\nL3DATA:0=1ff;1=1ff\nMB:0=100;1=100\n"}},
		"L2 with CDP": {both, l2, map[string]string{
			"":      "L2CODE:0=fffff;1=fffff\nL2DATA:0=fffff;1=fffff\nL3CODE:0=fff;1=fff\nL3DATA:0=fff;1=fff\nMB:0=100;1=100\n",
			"qos-a": "L2CODE:0=7;1=7\nL2DATA:0=7;1=7\nL3CODE:0=fff;1=fff\nL3DATA:0=fff;1=fff\nMB:0=100;1=100\n"}},
		"L2 alone": {onlyL2, l2, map[string]string{
			"": "L2:0=fffff;1=fffff\n", "qos-a": "L2:0=7;1=7\n"}},
		"Intel with mba_MBps": {mbps, twoPartitions, map[string]string{
			"":           "L2:0=fffff;1=fffff\nL3:0=fff;1=fff\nMB:0=4294967295;1=4294967295\n",
			"qos-gold":   "L2:0=fffff;1=fffff\nL3:0=ff;1=ff\nMB:0=4294967295;1=4294967295\n",
			"qos-bronze": "L2:0=fffff;1=fffff\nL3:0=f00;1=f00\nMB:0=3000;1=3000\n"}},
		"AMD": {sim.AMDSpec(), twoPartitions, map[string]string{
			"":           "L2:0=fffff;1=fffff\nL3:0=fff;1=fff\nMB:0=2048;1=2048\n",
			"qos-gold":   "L2:0=fffff;1=fffff\nL3:0=ff;1=ff\nMB:0=2048;1=2048\n",
			"qos-bronze": "L2:0=fffff;1=fffff\nL3:0=f00;1=f00\nMB:0=24;1=24\n"}},
		"AMD, in per cent": {sim.AMDSpec(), "partitions: {p: {mbAllocation: [50%], classes: {a: {mbAllocation: [10%]}, b: {mbAllocation: [0%]}}}}", map[string]string{
			"":      "L2:0=fffff;1=fffff\nL3:0=fff;1=fff\nMB:0=2048;1=2048\n",
			"qos-a": "L2:0=fffff;1=fffff\nL3:0=fff;1=fff\nMB:0=102;1=102\n",
			"qos-b": "L2:0=fffff;1=fffff\nL3:0=fff;1=fff\nMB:0=1;1=1\n"}},
		"AMD with a larger maximum": {amdNewer, "partitions: {p: {mbAllocation: [50%], classes: {a: {mbAllocation: [100%]}}}}", map[string]string{
			"":      "L2:0=fffff;1=fffff\nL3:0=fff;1=fff\nMB:0=4096;1=4096\n",
			"qos-a": "L2:0=fffff;1=fffff\nL3:0=fff;1=fff\nMB:0=2048;1=2048\n"}},
		"AMD with masks that have gaps": {sim.AMDSpec(),
			"partitions: {p: {l3Allocation: '0xf0f', classes: {a: {l3Allocation: '0x305'}, b: {l3Allocation: 50%}}}, q: {l3Allocation: '0x0f0', classes: {c: }}}",
			map[string]string{
				"":      "L2:0=fffff;1=fffff\nL3:0=fff;1=fff\nMB:0=2048;1=2048\n",
				"qos-a": "L2:0=fffff;1=fffff\nL3:0=305;1=305\nMB:0=2048;1=2048\n",
				"qos-b": "L2:0=fffff;1=fffff\nL3:0=f;1=f\nMB:0=2048;1=2048\n",
				"qos-c": "L2:0=fffff;1=fffff\nL3:0=f0;1=f0\nMB:0=2048;1=2048\n"}},
		"a machine with one cache, whose ID is not 0": {one, "partitions: {p: {l3Allocation: {all: 50%, 3: 25%}, classes: {a: }}}", map[string]string{
			"": "L3:3=fff\nMB:3=100\n", "qos-a": "L3:3=7\nMB:3=100\n"}},
		"bandwidth alone, and caches optional": {onlyMB, optional + twoPartitions, map[string]string{
			"": "MB:0=100;1=100\n", "qos-gold": "MB:0=100;1=100\n", "qos-bronze": "MB:0=40;1=40\n"}},
		"system/default": {sim.IntelSpec(), others, map[string]string{
			"":           "L2:0=fffff;1=fffff\nL3:0=fc0;1=fc0\nMB:0=100;1=100\n",
			"qos-silver": "L2:0=fffff;1=fffff\nL3:0=3f;1=3f\nMB:0=100;1=100\n",
			"qos-bronze": "L2:0=fffff;1=fffff\nL3:0=3f;1=3f\nMB:0=100;1=100\n",
			"qos-tin":    "L2:0=fffff;1=fffff\nL3:0=1c0;1=1c0\nMB:0=100;1=100\n"}},
		"no classes": {sim.IntelSpec(), "", map[string]string{"": "L2:0=fffff;1=fffff\nL3:0=fff;1=fff\nMB:0=100;1=100\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			fs := sim.New(test.spec)
			b := newBackend(fs, nil)
			must(t, b.Check(t.Context(), parse(t, test.config)))
			apply(t, b, test.config)
			if diff := cmp.Diff(test.want, schemataIn(t, fs)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestCheckWritesNothing(t *testing.T) {
	fs := sim.New(sim.IntelSpec())
	must(t, newBackend(fs, nil).Check(t.Context(), parse(t, others)))
	if n := fs.Calls(); n != 0 {
		t.Errorf("Check made %d operations that change resctrl, want none", n)
	}
}

// occupied returns a machine with groups of other programs and of a former run of the plugin.
func occupied(t testing.TB, spec sim.Spec) *sim.FS {
	t.Helper()
	fs := sim.New(spec)
	setUp(t, fs, [][2]string{
		{"schemata", "L3:0=3ff;1=3ff\nL2:0=3ffff;1=3ffff\n"},
		{"theirs/schemata", "L3:0=3;1=3\nMB:0=70;1=20\n"},
		{"alone/schemata", "L3:0=800;1=800\nL2:0=80000;1=80000\n"},
		{"qos-bronze/schemata", "L3:0=f;1=f\n"},
		{"qos-orphan/schemata", "L3:0=ff;1=f\nMB:0=10;1=10\n"},
		{"qos-busy/schemata", "L3:0=f0;1=f0\n"},
	})

	must(t, fs.Mkdir(sim.MountPoint+"/theirs/mon_groups/m"))
	fs.AddTask(100, "theirs")
	fs.AddTask(101, "theirs/mon_groups/m")
	fs.AddTask(102, "qos-busy")
	fs.AddTask(103, "")
	return fs
}

// exclusive returns a machine with an exclusive group of another program.
func exclusive(t testing.TB, spec sim.Spec) *sim.FS {
	t.Helper()
	fs := sim.New(spec)
	setUp(t, fs, [][2]string{
		{"schemata", "L3:0=1ff;1=1ff\nL2:0=7ffff;1=7ffff\n"},
		{"alone/schemata", "L3:0=200;1=200\nL2:0=80000;1=80000\n"},
		{"alone/mode", "exclusive\n"},
	})
	return fs
}

// setUp creates groups and writes their files.
func setUp(t testing.TB, fs *sim.FS, writes [][2]string) {
	t.Helper()
	for _, write := range writes {
		if group, _, inside := strings.Cut(write[0], "/"); inside {
			if err := fs.Mkdir(sim.MountPoint + "/" + group); err != nil && !errors.Is(err, syscall.EEXIST) {
				t.Fatal(err)
			}
		}
		must(t, fs.WriteFile(sim.MountPoint+"/"+write[0], []byte(write[1])))
	}
}

func TestGroupsOfOtherProgramsAreNotChanged(t *testing.T) {
	for vendor, spec := range map[string]sim.Spec{"Intel": sim.IntelSpec(), "AMD": sim.AMDSpec()} {
		t.Run(vendor, func(t *testing.T) {
			fs := occupied(t, spec)
			foreign := func() map[string]string {
				files := fs.Dump()
				for path := range files {
					if !strings.Contains(path, "/theirs/") && !strings.Contains(path, "/alone/") {
						delete(files, path)
					}
				}
				return files
			}

			before := foreign()
			b := newBackend(fs, nil)
			for _, config := range []string{twoPartitions, others, "", twoPartitions} {
				apply(t, b, config)
				must(t, b.Release(t.Context(), nobody))
			}

			if diff := cmp.Diff(before, foreign()); diff != "" {
				t.Error(diff)
			}

			if len(before) < 12 {
				t.Errorf("compared only %d files, want at least 12", len(before))
			}
		})
	}
}

// TestUnusedGroupsOfAFormerRunAreReleased has three groups of a former run: the class bronze is configured again, qos-busy has a
// thread, and qos-orphan has none. A group is kept while it has a thread, and while a container uses its class.
func TestUnusedGroupsOfAFormerRunAreReleased(t *testing.T) {
	fs := occupied(t, sim.IntelSpec())
	b := newBackend(fs, nil)
	apply(t, b, twoPartitions)
	managed := func() []string {
		var names []string
		for name := range dump(fs, "mode") {
			if groups.IsManaged(name) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}

	must(t, b.Release(t.Context(), func(class string) bool { return class == "orphan" }))
	if diff := cmp.Diff([]string{"qos-bronze", "qos-busy", "qos-gold", "qos-orphan"}, managed()); diff != "" {
		t.Fatalf("groups after the release while a container uses the class orphan (-want +got):\n%s", diff)
	}

	must(t, b.Release(t.Context(), nobody))
	if diff := cmp.Diff([]string{"qos-bronze", "qos-busy", "qos-gold"}, managed()); diff != "" {
		t.Fatal(diff)
	}

	fs.Exit(102)
	must(t, b.Release(t.Context(), func(class string) bool { return class == "busy" }))
	if !slices.Contains(managed(), "qos-busy") {
		t.Fatal("a group in use was removed, because it had no tasks at that moment")
	}

	must(t, b.Release(t.Context(), nobody))
	if slices.Contains(managed(), "qos-busy") {
		t.Fatal("a group that nobody needs was kept")
	}
}

func TestTheGroupOfARemovedClassIsKeptUntilItsRelease(t *testing.T) {
	fs := sim.New(sim.IntelSpec())
	b := newBackend(fs, nil)
	apply(t, b, twoPartitions)
	apply(t, b, others)
	if adjustment, err := b.Adjust(classes.Holder{}, "", "gold"); err != nil || adjustment[classes.Setting{Name: classes.SettingClosID}] != "qos-gold" {
		t.Errorf("the successor of a container in a removed class gets %v, %v, want the group of the class", adjustment, err)
	}

	apply(t, b, others) // the next reload does not remove the group, either
	if _, ok := dump(fs, "mode")["qos-gold"]; !ok {
		t.Fatal("the group of the removed class is gone, although a container may still be started in it")
	}

	must(t, b.Release(t.Context(), nobody))
	if _, ok := dump(fs, "mode")["qos-gold"]; ok {
		t.Fatal("the group of the removed class exists after its release")
	}

	for _, condition := range b.Status().Conditions {
		if condition.Type == ConditionDraining {
			t.Errorf("after the release, the class is reported as draining: %v", condition)
		}
		if condition.Type == ConditionCLOSIDs && strings.Contains(condition.Message, "former classes") {
			t.Errorf("the CLOSID of the released class is counted: %v", condition)
		}
	}
}

// TestTheRootGroupIsRestored removes the class system/default. The root group must then have again what another program had set before.
func TestTheRootGroupIsRestored(t *testing.T) {
	fs := sim.New(sim.IntelSpec())
	must(t, fs.WriteFile(sim.MountPoint+"/schemata", []byte("L3:0=ffe;1=fff\nMB:0=90;1=100\n")))
	before := fs.Dump()
	b := newBackend(fs, nil)
	apply(t, b, others)
	apply(t, b, strings.Replace(others, "system/default: {}", `system/default: {l3Allocation: "50%"}`, 1))
	// The share of partition q is the upper six bits, fc0, and system/default has the lower half of them.
	if got := schemataIn(t, fs)[""]; !strings.Contains(got, "L3:0=1c0;1=1c0\n") {
		t.Fatalf("the root group does not have the schemata of system/default: %s", got)
	}

	removeClasses(t, b)
	if diff := cmp.Diff(before, fs.Dump()); diff != "" {
		t.Error(diff)
	}
}
