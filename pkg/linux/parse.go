// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"maps"
	"slices"
	"strconv"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// lowestScore is the lowest OOM score without privileges. A process with a lower score outlives the kubelet and the runtime, which have
// -999 (pkg/kubelet/qos/policy.go of Kubernetes).
const lowestScore = -997

func (p *parser) oomScoreAdj(f *classes.Field) {
	setting := classes.Setting{Name: classes.SettingOOMScoreAdj}
	if f == nil {
		return
	}
	if !isMapping(f) {
		score, ok := integer(f, -maxScore, maxScore)
		if ok && score < lowestScore {
			p.needsPrivilege(f, "a score below -997 protects the container more than the kubelet and the container runtime")
		}
		p.set("oomScoreAdj", setting, fixed(strconv.FormatInt(score, 10)))
		return
	}

	add := f.ExactFields("add")["add"]
	if add == nil && len(f.Entries()) == 0 {
		f.Report("needs the field add, e.g. {add: -200}")
	}
	number, _ := integer(add, -2*maxScore, 2*maxScore)
	least := int64(-maxScore)
	if !p.privileged {
		least = lowestScore
	}
	p.set("oomScoreAdj", setting, addedScore{number, least})
}

func isMapping(f *classes.Field) bool { return !f.IsScalar() && !f.IsList() && !f.IsNull() }

const unlimited = "unlimited"

func (p *parser) rlimit(f *classes.Field) {
	limit, known := rlimits()[f.Name]
	if !known {
		f.Report("unknown limit%s; the known limits are %s", classes.Suggestion(f.Name, rlimitNames()), list(rlimitNames()))
		return
	}

	soft, hard := f, f
	if isMapping(f) {
		fields := f.ExactFields("soft", "hard")
		if soft, hard = fields["soft"], fields["hard"]; soft == nil || hard == nil {
			f.Report("needs the fields soft and hard, or one number for both")
			return
		}
	}
	softly, softOK := rlimitValue(soft)
	hardly, hardOK := softly, softOK
	if hard != soft {
		hardly, hardOK = rlimitValue(hard)
	}
	switch {
	case !softOK || !hardOK:
		return
	case softly > hardly:
		soft.Report("is above the hard limit")
	case f.Name == "rtprio" && hardly > 0:
		p.needsPrivilege(f, "a limit above 0 lets the container use real-time scheduling, with which it can stop all other programs")
	}
	p.set("rlimits."+f.Name, classes.Setting{Name: classes.SettingRlimit, Key: limit.name}, fixed(rlimitText(softly, hardly)))
}

func rlimitValue(f *classes.Field) (limit uint64, ok bool) {
	const want = "a whole number, or unlimited"
	text := scalar(f, want)
	limit, err := parseLimit(text)
	if text != "" && err != nil {
		f.Report("must be %s, not %s", want, quote(text))
	}
	return limit, text != "" && err == nil
}

func rlimitText(soft, hard uint64) string {
	return words("hard", strconv.FormatUint(hard, 10), "soft", strconv.FormatUint(soft, 10))
}

func (p *parser) ioPriority(f *classes.Field) {
	if f == nil {
		return
	}
	kind, priority := f, (*classes.Field)(nil)
	if isMapping(f) {
		fields := f.ExactFields("class", "priority")
		if kind, priority = fields["class"], fields["priority"]; kind == nil {
			f.Report("needs the field class, e.g. {class: best-effort, priority: 7}")
			return
		}
	}
	class := oneOf(kind, ioClassNames()...)
	level, _ := integer(priority, 0, 7)
	if class == "idle" && priority != nil {
		priority.Report("must be omitted: the class idle has no priorities")
	}
	if class == "realtime" {
		p.needsPrivilege(kind, "with realtime a container can stop the I/O of all other programs")
	}
	if class == "best-effort" && priority == nil {
		level = 4 // the kernel's default (IOPRIO_BE_NORM)
	}
	p.set("ioPriority", classes.Setting{Name: classes.SettingIOPriority}, fixed(ioPriorityText(ioClasses()[class], int(level))))
}

func (p *parser) scheduler(f *classes.Field) {
	fields := f.ExactFields("policy", "nice", "priority")
	if fields == nil {
		return
	}
	if fields["policy"] == nil {
		f.Report("needs the field policy, e.g. {policy: batch}")
		return
	}

	policy := oneOf(fields["policy"], policyNames()...)
	nice, _ := integer(fields["nice"], -20, 19)
	priority, _ := integer(fields["priority"], 1, 99)
	realTime := policy == "fifo" || policy == "rr"
	switch {
	case realTime && fields["priority"] == nil:
		f.Report("needs the field priority, from 1 to 99, because %s is a real-time policy", policy)
	case realTime && fields["nice"] != nil:
		fields["nice"].Report("must be omitted: %s is a real-time policy, which has priorities", policy)
	case !realTime && fields["priority"] != nil:
		fields["priority"].Report("must be omitted: only fifo and rr have priorities")
	case realTime:
		p.needsPrivilege(fields["policy"], "with real-time scheduling a container can stop all other programs")
	}
	p.set("scheduler", classes.Setting{Name: classes.SettingScheduler}, fixed(schedulerText(policies()[policy], nice, priority)))
}

func (p *parser) memory(f *classes.Field) {
	fields := section(f, "min", "low", "high", "swapMax", "oomGroup")
	for _, name := range []string{"min", "low", "high", "swapMax"} {
		p.share(fields[name], "memory."+name)
	}
	if group := fields["oomGroup"]; group != nil {
		p.file("memory.oomGroup", fixed(bit(truth(group))))
	}
}

// leastHigh is the least memory.high of a class. Not even the program that starts a container fits into less.
const leastHigh = 1 << 20

// share reads a size, a share of the memory limit, or max.
func (p *parser) share(f *classes.Field, name string) {
	text := scalar(f, "a size like 512Mi, a share of the memory limit like 80%, or max")
	if text == "" {
		return
	}
	if text == "max" {
		p.file(name, fixed(text))
		return
	}
	least := int64(0)
	if name == "memory.high" {
		least = leastHigh
	}
	if number, is, ok := percent(f, text); is {
		if ok {
			p.file(name, ofLimit{number, least, p.skip})
		}
		return
	}
	bytes, ok := size(f, text)
	switch {
	case !ok:
	case bytes < least:
		f.Report("must be at least 1Mi, not %s: the kernel stops a container that can use less", quote(text))
	default:
		p.file(name, fixed(strconv.FormatInt(wholePages(bytes), 10)))
	}
}

func (p *parser) cpu(f *classes.Field) {
	fields := section(f, "burst", "idle")
	if p.scope == classes.PodScope {
		reportForContainers(f, "idle")
	}
	p.idle(fields["idle"])
	p.burst(fields["burst"])
}

// idle reads whether a pod is idle. Runtimes write the weight of each container that they update, and the kernel refuses that for an idle
// cgroup (opencontainers/runc#4143).
func (p *parser) idle(f *classes.Field) {
	if f == nil {
		return
	}
	if p.scope != classes.PodScope {
		f.Report("must be in a resource with scope: pod: the kernel refuses the CPU weight that runtimes write for an idle container")
	}
	p.file("cpu.idle", fixed(bit(truth(f))))
}

// bit returns the text of a file that is on or off.
func bit(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

func (p *parser) burst(f *classes.Field) {
	text := scalar(f, "a share of the CPU limit like 50%, or a time like 20ms")
	if text == "" {
		return
	}
	if number, is, ok := percent(f, text); is {
		if ok {
			p.file("cpu.burst", burst{percent: number, skip: p.skip})
		}
		return
	}
	if micros, ok := duration(f, text); ok {
		p.file("cpu.burst", burst{micros: micros, skip: p.skip})
	}
}

func (p *parser) pids(f *classes.Field) {
	if most := section(f, "max")["max"]; most != nil {
		number, _ := integer(most, 1, 1<<22) // PID_MAX_LIMIT
		p.file("pids.max", fixed(strconv.FormatInt(number, 10)))
	}
}

// file adds a property that is a file of cgroup v2.
func (p *parser) file(name string, v value) {
	files := cgroupFiles()
	i := slices.IndexFunc(files[:], func(f cgroupFile) bool { return f.name == name })
	p.set(name, classes.Unified(files[i].file), v)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
