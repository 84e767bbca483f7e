// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

func TestConfigErrorsNameLineFieldAndRemedy(t *testing.T) {
	for name, test := range map[string]struct {
		config string
		want   []string
	}{
		"unknown fields": {"optoins: {}\npartitions:\n  p:\n    l3Alocation: 50%\n    l3Allocation:\n      all:\n        unifed: 50%\n        unified: 50%", []string{
			"line 1: optoins: unknown field (did you mean options?); the known fields are options, partitions, monitoring, deviceTraffic",
			"line 4: partitions.p.l3Alocation: unknown field (did you mean l3Allocation?); the known fields are l2Allocation, l3Allocation, mbAllocation, classes, sharedWithDevices",
			"line 7: partitions.p.l3Allocation.all.unifed: unknown field (did you mean unified?); the known fields are unified, code, data"}},
		"names in any case": {"Options: {L3: {Optional: TRUE}}\npartitions: {P: {L3allocation: 50%}}", nil},
		"not a mapping": {"partitions: [a]\noptions: 5", []string{
			"line 1: partitions: must be a mapping, not a list", `line 2: options: must be a mapping with the fields l2, l3, mb, not the number "5"`}},
		"not YAML":    {"partitions: {", []string{"line 1: is not YAML: did not find expected node content"}},
		"a key twice": {"partitions:\n  p: {}\n  p: {}", []string{`line 3: partitions.p: is defined twice; the first is in line 2`}},
		"a class twice, and the system default by its two names": {"partitions:\n  p: {classes: {gold: }}\n  q: {classes: {gold: , '': , system/default: }}", []string{
			`line 3: partitions.q.classes.gold: class "gold" is already defined in line 2; a class can be in only one partition`,
			`line 3: partitions.q.classes.system/default: class "system/default" is already defined in line 3; a class can be in only one partition`}},
		"class names that are no directories": {"partitions: {p: {classes: {a/b: , '..': , " + strings.Repeat("x", 252) + ": }}}", []string{
			`line 1: partitions.p.classes...: a class name must not have "/" or a line break, because a class name becomes a directory name`,
			`line 1: partitions.p.classes.a/b: a class name must not have "/" or a line break, because a class name becomes a directory name`,
			`line 1: partitions.p.classes.` + strings.Repeat("x", 64) + `...: a class name must not be longer than 251 characters`}},
		"shares": {"partitions:\n  p:\n    l3Allocation: {all: 101%, 0: 50-60%, 1: abc, 2: '0x0', 3: 50}\n    classes: {a: {l3Allocation: 0%}, b: {l3Allocation: 60-50%}}", []string{
			`line 3: partitions.p.l3Allocation.0: "50-60%": a partition has no range in per cent; write a share like "60%", or bits`,
			`line 3: partitions.p.l3Allocation.1: "abc" is not a share of a cache; write per cent ("60%", "50-60%"), a size ("4MiB"), a mask ("0xff0") or bits ("0-5")`,
			`line 3: partitions.p.l3Allocation.2: mask "0x0" has no bit set; a group must have some cache`,
			`line 3: partitions.p.l3Allocation.3: must be a string, not the number "50"; put the value in quotes`,
			`line 3: partitions.p.l3Allocation.all: "101%" is not a share of a cache; write per cent ("60%", "50-60%"), a size ("4MiB"), a mask ("0xff0") or bits ("0-5")`,
			`line 4: partitions.p.classes.a.l3Allocation: "0%": the share of a class must be above 0%; write 1% for the smallest possible share`,
			`line 4: partitions.p.classes.b.l3Allocation: "60-50%" is not a share of a cache; write per cent ("60%", "50-60%"), a size ("4MiB"), a mask ("0xff0") or bits ("0-5")`}},
		"cache IDs": {"partitions: {p: {l3Allocation: {x: 1%, 0-3: 1%, '2,9': 1%, 3-1: 1%, 9999999999: 1%}}}", []string{
			`line 1: partitions.p.l3Allocation.2,9: cache ID 2 is in "0-3" and in "2,9"; list each ID once`,
			`line 1: partitions.p.l3Allocation.3-1: "3-1" is not a list of cache IDs: "3-1" is not a range; write "all", or IDs as in "0-1,4"`,
			`line 1: partitions.p.l3Allocation.9999999999: "9999999999" is not a list of cache IDs: 9999999999 is above 4294967295; write "all", or IDs as in "0-1,4"`,
			`line 1: partitions.p.l3Allocation.x: "x" is not a list of cache IDs: strconv.ParseUint: parsing "x": invalid syntax; write "all", or IDs as in "0-1,4"`}},
		"code without data": {"partitions: {p: {l3Allocation: {all: {code: 50%}, 1: {unified: 50%, data: 50%}}}}", []string{
			"line 1: partitions.p.l3Allocation.1: has the field data, but not code; set both, or only the field unified",
			"line 1: partitions.p.l3Allocation.all: has the field code, but not data; set both, or only the field unified",
			"line 1: partitions.p.l3Allocation.all: has no field unified; add it for machines that do not allocate code and data separately"}},
		"bandwidth": {"partitions:\n  p:\n    mbAllocation: [200%, 5GBps]\n    classes:\n      a: {mbAllocation: 50%}\n      b: {mbAllocation: []}\n      c: {mbAllocation: [5]}\n      d: {mbAllocation: {all: }}", []string{
			`line 3: partitions.p.mbAllocation[0]: "200%" is not a share of memory bandwidth; write "0%" to "100%", or MBps as in "1000MBps"`,
			`line 3: partitions.p.mbAllocation[1]: "5GBps" is not a share of memory bandwidth; write "0%" to "100%", or MBps as in "1000MBps"`,
			`line 5: partitions.p.classes.a.mbAllocation: must be a mapping, not "50%"`,
			`line 6: partitions.p.classes.b.mbAllocation: is empty; write ["50%"], ["1000MBps"], or both`,
			`line 7: partitions.p.classes.c.mbAllocation[0]: must be a string, not the number "5"; put the value in quotes`,
			`line 8: partitions.p.classes.d.mbAllocation.all: is empty; write ["50%"], ["1000MBps"], or both`}},
		"device traffic without a share": {"deviceTraffic: {}", []string{
			`line 1: deviceTraffic: has no l3Allocation; write a share such as l3Allocation: "20%"`}},
		"a class that asks for what its partition does not have": {"partitions:\n  p:\n    classes:\n      gold:\n        l3Allocation: 50%", []string{
			"line 5: partitions.p.classes.gold.l3Allocation: the partition of this class has no l3Allocation; add it to the partition, e.g. 100%"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseConfig(test.config)
			var got []string
			for _, problem := range classes.SplitErrors(err) {
				if field := (*classes.FieldError)(nil); !errors.As(problem, &field) {
					t.Errorf("the problem %q is a %T, want a *FieldError", problem, problem)
				}
				got = append(got, problem.Error())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestClassNamesLeaveOutTheSystemDefault(t *testing.T) {
	config := parse(t, "partitions: {q: {classes: {b: , '': }}, p: {classes: {c: , a: }}}")
	if diff := cmp.Diff([]string{"a", "b", "c"}, config.ClassNames()); diff != "" {
		t.Error(diff)
	}
}

// TestMergeKeysOfYAMLHaveAnEffect has a partition q that takes the share of partition p. Without the share, class b would be
// refused.
func TestMergeKeysOfYAMLHaveAnEffect(t *testing.T) {
	config := parse(t, `
partitions:
  p: &p
    l3Allocation: 25%
  q:
    <<: *p
    classes: {b: {l3Allocation: 100%}}
`)
	if diff := cmp.Diff([]string{"b"}, config.ClassNames()); diff != "" {
		t.Error(diff)
	}
}

func FuzzParseConfig(f *testing.F) {
	for _, config := range sharedConfigs {
		f.Add([]byte(config))
	}

	f.Add([]byte("partitions: &a {p: *a}"))
	f.Add([]byte("partitions: {p: {mbAllocation: [5MBps], classes: {a: {mbAllocation: [1%]}}}}"))
	f.Add([]byte("partitions: {p: {mbAllocation: {all: }, classes: {a: }}}"))
	infos := []resctrl.Info{planInfo(12, 1, false, false), planInfo(20, 2, false, true), planInfo(12, 0, true, false), infoOf(f, sim.AMDSpec()), {}}
	f.Fuzz(func(t *testing.T, section []byte) {
		config, err := parseConfig(string(section))
		if err != nil {
			for _, problem := range classes.SplitErrors(err) {
				if field := (*classes.FieldError)(nil); !errors.As(problem, &field) || strings.TrimSpace(field.Problem) == "" {
					t.Fatalf("the problem %q is a %T, want a *FieldError with a text", problem, problem)
				}
			}
			return
		}

		for _, info := range infos {
			resolution, err := Resolve(config, info)
			if err != nil {
				continue
			}
			checkResolution(t, config, info, resolution)
		}
	})
}

// checkResolution fails the test unless the resolution is legal and complete.
func checkResolution(t *testing.T, config *Config, info resctrl.Info, resolution *Resolution) {
	t.Helper()
	for _, class := range config.ClassNames() {
		if _, ok := resolution.Groups[groups.Of(class)]; !ok {
			t.Fatalf("class %q has no group", class)
		}
	}

	for name, schemata := range resolution.Groups {
		for schema, cache := range info.Caches {
			for _, id := range cache.Domains {
				if err := cache.Check(schemata[resctrl.Domain{Schema: schema, ID: id}]); err != nil {
					t.Fatalf("group %q: %s %d: %v", name, schema, id, err)
				}
			}
		}
		if info.Bandwidth == nil {
			continue
		}
		for _, id := range info.Bandwidth.Domains {
			if value := schemata[resctrl.Domain{Schema: resctrl.MB, ID: id}]; value < info.Bandwidth.Min || value > info.Bandwidth.Max {
				t.Fatalf("group %q: the bandwidth of domain %d is %d, which is out of range", name, id, value)
			}
		}
	}
}

func TestCodeAndDataHaveTheirOwnSharesOnEachCPU(t *testing.T) {
	for name, test := range map[string]struct {
		spec sim.Spec
		want string
	}{
		"Intel": {sim.IntelSpec(), "L3CODE:0=3f;1=3f L3DATA:0=7;1=7"},
		"AMD":   {sim.AMDSpec(), "L3CODE:0=3f;1=3f L3DATA:0=7;1=7"},
		"Arm":   {sim.ArmSpec(8), "L3CODE:0=ff;65536=ff L3DATA:0=f;65536=f"},
	} {
		t.Run(name, func(t *testing.T) {
			test.spec.L3.CDP, test.spec.Options = true, "cdp"
			b := newBackend(sim.New(test.spec), nil)
			apply(t, b, `{partitions: {p: {l3Allocation: "100%", classes: {a: {l3Allocation: {all: {unified: "100%", code: "50%", data: "25%"}}}}}}}`)
			if got := dividedIn(b)["a"]; !strings.HasPrefix(got, test.want) {
				t.Errorf("the class has %s, want %s", got, test.want)
			}
		})
	}
}
