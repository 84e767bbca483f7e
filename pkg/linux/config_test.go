// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const head = "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources:\n- name: vendor.example/profile\n  linux:\n    classes:\n      a: "

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// parseFile reads a class file with this text.
func parseFile(text string) (*classes.Config, error) {
	return classes.Parse([]classes.File{{Name: "a.yaml", Data: []byte(text)}}, []classes.Kind{Kind(Options{Log: discard()})}, nil)
}

// parse reads a class file whose only class "a" has these properties, and ends the test if they are wrong.
func parse(t *testing.T, properties string) *Config {
	t.Helper()
	config, err := parseFile(head + properties + "\n")
	must(t, err)
	return config.Resources[0].Backend.(*Config)
}

func TestAPropertyBecomesTheSettingOfAContainer(t *testing.T) {
	const gigabyte = 1 << 30
	score := classes.Setting{Name: classes.SettingOOMScoreAdj}
	kubelet := func(text string) classes.Spec { return classes.Spec{Settings: classes.Adjustment{score: text}} }
	limited := classes.Spec{MemoryLimit: gigabyte, CPUQuota: 50_000, CPUPeriod: 100_000}
	for _, test := range []struct {
		name, class string
		spec        classes.Spec
		want        string
	}{
		{"an OOM score", "{oomScoreAdj: -500}", kubelet("900"), "process.oomScoreAdj=-500"},
		{"a relative OOM score", "{oomScoreAdj: {add: -200}}", kubelet("900"), "process.oomScoreAdj=700"},
		{"a relative OOM score is at most 1000", "{oomScoreAdj: {add: 500}}", kubelet("900"), "process.oomScoreAdj=1000"},
		{"a relative OOM score is at least -997", "{oomScoreAdj: {add: -2000}}", kubelet("900"), "process.oomScoreAdj=-997"},
		{"a relative OOM score with privileges", "{allowPrivileged: true, oomScoreAdj: {add: -2000}}", kubelet("900"), "process.oomScoreAdj=-1000"},
		{"an OOM score with privileges", "{allowPrivileged: true, oomScoreAdj: -1000}", kubelet("900"), "process.oomScoreAdj=-1000"},
		{"resource limits, without fields that are 0", "{rlimits: {nofile: 4096, memlock: unlimited, core: 0, nproc: {soft: 10, hard: 20}}}", classes.Spec{},
			"process.rlimits[RLIMIT_CORE]= process.rlimits[RLIMIT_MEMLOCK]=hard=18446744073709551615 soft=18446744073709551615 " +
				"process.rlimits[RLIMIT_NOFILE]=hard=4096 soft=4096 process.rlimits[RLIMIT_NPROC]=hard=20 soft=10"},
		{"an I/O priority", "{ioPriority: idle}", classes.Spec{}, "process.ioPriority=class=IOPRIO_CLASS_IDLE"},
		{"the default I/O priority of a class", "{ioPriority: best-effort}", classes.Spec{}, "process.ioPriority=class=IOPRIO_CLASS_BE priority=4"},
		{"an I/O priority with a number", "{ioPriority: {class: best-effort, priority: 7}}", classes.Spec{}, "process.ioPriority=class=IOPRIO_CLASS_BE priority=7"},
		{"a scheduling policy", "{scheduler: {policy: batch, nice: 5}}", classes.Spec{}, "process.scheduler=policy=SCHED_BATCH nice=5"},
		{"a real-time policy", "{allowPrivileged: true, scheduler: {policy: fifo, priority: 10}}", classes.Spec{}, "process.scheduler=policy=SCHED_FIFO priority=10"},
		{"a memory policy", "{memoryPolicy: {mode: interleave, nodes: '0,1,3'}}", classes.Spec{}, "linux.memoryPolicy=mode=MPOL_INTERLEAVE nodes=0-1,3"},
		{"a memory policy of one node", "{memoryPolicy: {mode: bind, nodes: 0}}", classes.Spec{}, "linux.memoryPolicy=mode=MPOL_BIND nodes=0"},
		{"a memory policy without nodes", "{memoryPolicy: {mode: local}}", classes.Spec{}, "linux.memoryPolicy=mode=MPOL_LOCAL"},
		{"a share of the memory limit, in whole pages", "{memory: {high: 80%, min: 100%}}", limited,
			"linux.resources.unified[memory.high]=858992640 linux.resources.unified[memory.min]=1073741824"},
		{"sizes", "{memory: {high: max, low: 64Mi, swapMax: 0, oomGroup: true}}", classes.Spec{}, "linux.resources.unified[memory.high]=max " +
			"linux.resources.unified[memory.low]=67108864 linux.resources.unified[memory.oom.group]=1 linux.resources.unified[memory.swap.max]=0"},
		{"a size is rounded down to pages, but not to nothing", "{memory: {low: 1, min: 8193, swapMax: 0}}", classes.Spec{},
			"linux.resources.unified[memory.low]=4096 linux.resources.unified[memory.min]=8192 linux.resources.unified[memory.swap.max]=0"},
		{"a share is rounded in the same way", "{memory: {low: 1%, min: 99%}}", classes.Spec{MemoryLimit: 10000},
			"linux.resources.unified[memory.low]=4096 linux.resources.unified[memory.min]=8192"},
		{"a share of memory.high is at least 1Mi", "{memory: {high: 1%, low: 1%}}", classes.Spec{MemoryLimit: 64 << 20},
			"linux.resources.unified[memory.high]=1048576 linux.resources.unified[memory.low]=667648"},
		{"no share without a limit", "{withoutLimit: skip, pids: {max: 10}, memory: {high: 80%}, cpu: {burst: 50%}}", classes.Spec{},
			"linux.resources.unified[pids.max]=10"},
		{"a burst", "{cpu: {burst: 50%}}", limited, "linux.resources.unified[cpu.max.burst]=25000"},
		{"a burst is at most the quota", "{cpu: {burst: 80ms}}", limited, "linux.resources.unified[cpu.max.burst]=50000"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := parse(t, test.class).classes["a"].adjustment(test.spec)
			must(t, err)
			var text []string
			for _, setting := range got.Settings() {
				text = append(text, setting.String()+"="+got[setting])
			}
			if diff := cmp.Diff(test.want, strings.Join(text, " ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAClassCannotBeComputedWithoutWhatItIsRelativeTo(t *testing.T) {
	for class, want := range map[string]string{
		"{memory: {high: 80%}}": "memory.high: the class has 80% of the memory limit, and the container has no limit; " +
			"set resources.limits.memory in the pod, or withoutLimit: skip in the class",
		"{cpu: {burst: 10ms}}": "cpu.burst: a burst is time above the CPU limit, and the container has no limit; " +
			"set resources.limits.cpu in the pod, or withoutLimit: skip in the class",
		"{oomScoreAdj: {add: 5}}": "oomScoreAdj: the class adds +5 to the container's own value, and the runtime does not report that value; " +
			"write a number into the class, or create the pod again",
	} {
		if _, err := parse(t, class).classes["a"].adjustment(classes.Spec{}); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", class, err, want)
		}
	}
}

func TestAWrongPropertyIsReportedWithItsPlaceAndRemedy(t *testing.T) {
	const class = "a.yaml:7: resources[0].linux.classes.a"
	const section = "allowPrivileged, withoutLimit, oomScoreAdj, rlimits, ioPriority, scheduler, memoryPolicy, memory, cpu, pids"
	const privilege = "; to allow that, add allowPrivileged: true to the class"
	for properties, want := range map[string]string{
		"{oomScoreAdjust: 5}":                           ".oomScoreAdjust: unknown field; the known fields are " + section,
		"{oomScoreAdh: 5}":                              ".oomScoreAdh: unknown field (did you mean oomScoreAdj?); the known fields are " + section,
		"{oomscoreadj: 5}":                              ".oomscoreadj: unknown field (did you mean oomScoreAdj?); the known fields are " + section,
		"{oomScoreAdj: 1001}":                           `.oomScoreAdj: must be a whole number from -1000 to 1000, not "1001"`,
		"{oomScoreAdj: [1]}":                            ".oomScoreAdj: must be a whole number from -1000 to 1000",
		"{oomScoreAdj: -998}":                           ".oomScoreAdj: a score below -997 protects the container more than the kubelet and the container runtime" + privilege,
		"{oomScoreAdj: {ad: 1}}":                        ".oomScoreAdj.ad: unknown field (did you mean add?); the known fields are add",
		"{rlimits: {nofiles: 1}}":                       ".rlimits.nofiles: unknown limit (did you mean nofile?); the known limits are as, core, cpu, data, fsize, locks, memlock, msgqueue, nice, nofile, nproc, rss, rtprio, rttime, sigpending, stack",
		"{rlimits: {nofile: -1}}":                       `.rlimits.nofile: must be a whole number, or unlimited, not "-1"`,
		"{rlimits: {nofile: {soft: 2, hard: 1}}}":       ".rlimits.nofile.soft: is above the hard limit",
		"{rlimits: {nofile: {soft: 2}}}":                ".rlimits.nofile: needs the fields soft and hard, or one number for both",
		"{rlimits: {rtprio: 5}}":                        ".rlimits.rtprio: a limit above 0 lets the container use real-time scheduling, with which it can stop all other programs" + privilege,
		"{ioPriority: low}":                             `.ioPriority: must be one of best-effort, idle, realtime, not "low"`,
		"{ioPriority: realtime}":                        ".ioPriority: with realtime a container can stop the I/O of all other programs" + privilege,
		"{ioPriority: {class: idle, priority: 3}}":      ".ioPriority.priority: must be omitted: the class idle has no priorities",
		"{ioPriority: {priority: 3}}":                   ".ioPriority: needs the field class, e.g. {class: best-effort, priority: 7}",
		"{scheduler: {nice: 5}}":                        ".scheduler: needs the field policy, e.g. {policy: batch}",
		"{scheduler: {policy: batch, nice: 20}}":        `.scheduler.nice: must be a whole number from -20 to 19, not "20"`,
		"{scheduler: {policy: batch, priority: 2}}":     ".scheduler.priority: must be omitted: only fifo and rr have priorities",
		"{scheduler: {policy: fifo}}":                   ".scheduler: needs the field priority, from 1 to 99, because fifo is a real-time policy",
		"{scheduler: {policy: rr, priority: 1}}":        ".scheduler.policy: with real-time scheduling a container can stop all other programs" + privilege,
		"{memoryPolicy: {mode: local, nodes: 0}}":       ".memoryPolicy.nodes: must be omitted: the mode local has no nodes",
		"{memoryPolicy: {mode: bind}}":                  ".memoryPolicy: needs the field nodes, e.g. {mode: bind, nodes: 0-1}",
		"{memoryPolicy: {mode: bind, nodes: 1-0}}":      `.memoryPolicy.nodes: must be a list of NUMA nodes like 0-1, not "1-0"`,
		"{memoryPolicy: {mode: preferred, nodes: 0-1}}": ".memoryPolicy.nodes: must be one node; the mode preferred-many has several",
		"{memoryPolicy: {nodes: 0}}":                    ".memoryPolicy: needs the field mode, e.g. {mode: interleave, nodes: 0-1}",
		"{memory: {high: 1}}":                           `.memory.high: must be at least 1Mi, not "1": the kernel stops a container that can use less`,
		"{memory: {high: 0}}":                           `.memory.high: must be at least 1Mi, not "0": the kernel stops a container that can use less`,
		"{memory: {high: 101%}}":                        `.memory.high: must be from 1% to 100%, not "101%"`,
		"{memory: {high: much}}":                        `.memory.high: must be a size like 512Mi, a share of the memory limit like 80%, or max, not "much"`,
		"{memory: {hihg: 1}}":                           ".memory.hihg: unknown field (did you mean high?); the known fields are min, low, high, swapMax, oomGroup",
		"{memory: {oomGroup: maybe}}":                   `.memory.oomGroup: must be true or false, not "maybe"`,
		"{cpu: {burst: 2s}}":                            `.cpu.burst: must be a share of the CPU limit like 50%, or a time from 1us to 1s like 20ms, not "2s"`,
		"{cpu: {idle: true}}":                           ".cpu.idle: must be in a resource with scope: pod: the kernel refuses the CPU weight that runtimes write for an idle container",
		"{pids: {max: 0}}":                              `.pids.max: must be a whole number from 1 to 4194304, not "0"`,
		"{withoutLimit: ignore, pids: {max: 1}}":        `.withoutLimit: must be one of refuse, skip, not "ignore"`,
		"{oomScoreAdj: {}}":                             ".oomScoreAdj: needs the field add, e.g. {add: -200}",
		"{cpu: {}}":                                     ".cpu: sets nothing; add one of the fields burst, idle",
		"{allowPrivileged: true}":                       ": sets nothing; add a property, e.g. oomScoreAdj: 500",
		"{}":                                            ": sets nothing; add a property, e.g. oomScoreAdj: 500",
		"":                                              ": sets nothing; add a property, e.g. oomScoreAdj: 500",
	} {
		t.Run(properties, func(t *testing.T) {
			_, err := parseFile(head + properties + "\n")
			if diff := cmp.Diff(class+want, fmt.Sprint(err)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAClassOfPodsHasOnlyPropertiesOfPods(t *testing.T) {
	const class = "a.yaml:8: resources[0].linux.classes.a"
	const other = ": must be omitted in scope pod: a class of pods sets only cpu.idle; write another resource, in scope container"
	for properties, want := range map[string]string{
		"{cpu: {idle: true}}":                     "<nil>",
		"{cpu: {idle: perhaps}}":                  class + `.cpu.idle: must be true or false, not "perhaps"`,
		"{oomScoreAdj: 5}":                        class + ".oomScoreAdj" + other,
		"{cpu: {idle: true, burst: 10ms}}":        class + ".cpu.burst" + other,
		"{cpu: {idle: true}, memory: {min: 0}}":   class + ".memory" + other,
		"{withoutLimit: skip, cpu: {idle: true}}": class + ".withoutLimit" + other,
		"{}": class + ": sets nothing; add a property, e.g. cpu: {idle: true}",
	} {
		t.Run(properties, func(t *testing.T) {
			_, err := parseFile(strings.Replace(head, "  linux:", "  scope: pod\n  linux:", 1) + properties + "\n")
			if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTwoResourcesCannotSetTheSameProperty(t *testing.T) {
	for second, want := range map[string]string{
		"{memory: {low: 1Gi}}": "<nil>",
		"{memory: {high: max}}": "a.yaml:9: resources[1].linux: sets linux.resources.unified[memory.high], " +
			"and so does vendor.example/profile at a.yaml:4; let only one resource set it",
	} {
		_, err := parseFile(head + "{oomScoreAdj: 5, memory: {high: 1Gi}}\n- name: vendor.example/other\n  linux: {classes: {b: " + second + "}}\n")
		if fmt.Sprint(err) != want {
			t.Errorf("%s: got %v, want %s", second, err, want)
		}
	}
}

func TestTheMemoryPolicyOfAProcessIsRead(t *testing.T) {
	for line, want := range map[string]string{
		"55f0 default file=/bin/a mapped=1":                "mode=MPOL_DEFAULT",
		"55f0 local file=/bin/a:b mapped=1":                "mode=MPOL_LOCAL",
		"55f0 bind:0-1,3 file=/bin/a mapped=1\n7f default": "mode=MPOL_BIND nodes=0-1,3",
		"55f0 prefer:1 anon=1":                             "mode=MPOL_PREFERRED nodes=1",
		"55f0 prefer (many):0-1 anon=1":                    "mode=MPOL_PREFERRED_MANY nodes=0-1",
		"55f0 weighted interleave:0 anon=1":                "mode=MPOL_WEIGHTED_INTERLEAVE nodes=0",
		"":                                                 "",
	} {
		if got, err := parseNUMA(line); got != want || (err != nil) != (want == "") {
			t.Errorf("%q: got %q, %v; want %q", line, got, err, want)
		}
	}
}

func FuzzConfig(f *testing.F) {
	for _, seed := range []string{
		"classes: {a: {oomScoreAdj: {add: 5}, rlimits: {nofile: {soft: 1, hard: unlimited}}, ioPriority: {class: idle}}}",
		"classes: {a: {scheduler: {policy: rr, priority: 5}, memory: {high: 80%, swapMax: 1Gi, oomGroup: true}, cpu: {burst: 20ms}, pids: {max: 5}}}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		config, err := classes.ParseSection(classes.File{Name: "a.yaml", Data: []byte(text)}, func(section *classes.Field) classes.BackendConfig {
			return ParseConfig(section, classes.ContainerScope)
		})
		if err != nil {
			return
		}
		c := config.(*Config)
		for _, name := range c.ClassNames() {
			for _, p := range c.classes[name] {
				if text, sets, err := p.value.text(classes.Spec{MemoryLimit: 1 << 60, CPUQuota: 1}); err == nil && sets && strings.ContainsAny(text, "\n\x00") {
					t.Errorf("%s of %q is %q", p.name, name, text)
				}
			}
		}
	})
}

func FuzzProcess(f *testing.F) {
	f.Add("Max open files            1024                 unlimited            files     \n", "1 (a) S 1")
	f.Fuzz(func(t *testing.T, limits, stat string) {
		if text, err := parseLimits(limits, "RLIMIT_NOFILE"); err == nil && strings.Contains(text, "\n") {
			t.Errorf("the limit in %q is %q", limits, text)
		}
		if text, err := parseNUMA(limits); err == nil && strings.Contains(text, "\n") {
			t.Errorf("the memory policy in %q is %q", limits, text)
		}
		if text, err := parseStat(stat); err == nil && strings.Contains(text, "\n") {
			t.Errorf("the policy in %q is %q", stat, text)
		}
	})
}
