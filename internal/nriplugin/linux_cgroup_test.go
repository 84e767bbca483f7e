// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

const (
	// The kubelet's MemoryQoS sets memory.high to 90% of a memory limit of 1 or 2 GiB, in whole pages.
	kubeletHighOf1Gi = "966365184"
	kubeletHighOf2Gi = "1932730368"
)

// TestAnotherProgramsValueIsReplacedByTheOneOfTheClass uses a class with 80% of the memory limit as memory.high. Of 1
// GiB, this is 858992640 bytes in whole pages.
func TestAnotherProgramsValueIsReplacedByTheOneOfTheClass(t *testing.T) {
	r := newProfileRig(t, database)
	id := r.mustRunBurstable(t, "a", profile+"=database")
	for _, file := range []string{"memory.high", "pids.max"} {
		must(t, r.host.Machine.WriteFile(r.cgroupFile(t, id, file), []byte("max")))
	}
	r.node.Repair(t.Context())
	r.wantValue(t, id, "memory.high", "858992640")
	r.wantValue(t, id, "pids.max", "100")
	r.wantReported(t, id, profile, "database/pod")
}

// TestAResizeKeepsTheClassAndLeavingItRestoresTheKubeletsValues resizes the memory limit to 2 GiB, and then the CPU limit to a fifth of
// a CPU.
func TestAResizeKeepsTheClassAndLeavingItRestoresTheKubeletsValues(t *testing.T) {
	r := newProfileRig(t, "a: {memory: {high: 50%, min: 100%, oomGroup: false}, cpu: {burst: 100%}}")
	id := r.mustRunBurstable(t, "a", profile+"=a")
	must(t, r.UpdateContainer(t.Context(), id, doubled()))
	r.wantValue(t, id, "memory.high", fmt.Sprint(1<<30))
	r.wantValue(t, id, "memory.min", fmt.Sprint(2<<30))
	r.wantValue(t, id, "memory.oom.group", "0")

	lower := resources(2<<30, 20_000) // the kernel refuses this CPU limit while the burst is above it
	lower.Unified["memory.high"] = kubeletHighOf2Gi
	must(t, r.UpdateContainer(t.Context(), id, lower))
	r.wantValue(t, id, "cpu.max.burst", "20000")
	r.wantReported(t, id, profile, "a/pod")

	r.change(t, id, profile, "")
	for file, want := range map[string]string{
		"memory.high": kubeletHighOf2Gi, "memory.min": "0", "memory.oom.group": "1", "cpu.max.burst": "0",
	} {
		r.wantValue(t, id, file, want)
	}
	r.node.Repair(t.Context())
	r.wantReported(t, id, profile, "/update")
}

func TestTheKubeletsValuesThatAClassReplacesAreReported(t *testing.T) {
	r := newProfileRig(t, database)
	id := r.mustRunBurstable(t, "a", profile+"=database")
	want := func(replaced string) {
		t.Helper()
		if got := r.assignment(t, id, profile).GetReplaced(); got != replaced {
			t.Errorf("the class has replaced %q, want %q", got, replaced)
		}
	}
	want("memory.high " + kubeletHighOf1Gi + ", memory.oom.group 1, oomScoreAdj 900")

	must(t, r.UpdateContainer(t.Context(), id, doubled()))
	want("memory.high " + kubeletHighOf2Gi + ", memory.oom.group 1, oomScoreAdj 900")
	r.startNewWith(t, profileFile(database))
	want("memory.high " + kubeletHighOf2Gi + ", memory.oom.group 1, oomScoreAdj 900")
}

func TestAContainerThatLeavesItsClassAfterAResizeAndARestartGetsTheLastValuesOfTheKubelet(t *testing.T) {
	const class = "a: {memory: {high: 50%, oomGroup: false}}"
	r := newProfileRig(t, class)
	id := r.mustRunBurstable(t, "a", profile+"=a")
	must(t, r.UpdateContainer(t.Context(), id, doubled()))
	r.startNewWith(t, profileFile(class))
	r.change(t, id, profile, classes.SystemDefault)
	r.wantValue(t, id, "memory.high", kubeletHighOf2Gi)
	r.wantValue(t, id, "memory.oom.group", "1")
}

// TestAContainerThatLeavesItsClassAfterARestartGetsTheValuesOfItsCreationBack restarts the plugin, which then has to read these values
// from an annotation of the container.
func TestAContainerThatLeavesItsClassAfterARestartGetsTheValuesOfItsCreationBack(t *testing.T) {
	const file = "a: {memory: {high: 50%}}, b: {memory: {high: 25%}}"
	r := newProfileRig(t, file)
	id := r.mustRunBurstable(t, "a", profile+"=a")
	r.startNewWith(t, profileFile(file))
	for _, change := range []struct{ class, high string }{{"b", fmt.Sprint(256 << 20)}, {"", kubeletHighOf1Gi}} {
		r.change(t, id, profile, change.class)
		r.wantValue(t, id, "memory.high", change.high)
	}
}

// TestAContainerGetsTheLastValueOfTheKubeletEvenIfItsClassHadTheSame resizes a container to 2 GiB. The class and the kubelet then have the
// same memory.high.
func TestAContainerGetsTheLastValueOfTheKubeletEvenIfItsClassHadTheSame(t *testing.T) {
	r := newProfileRig(t, "a: {memory: {high: "+kubeletHighOf2Gi+"}}")
	id := r.mustRunBurstable(t, "a", profile+"=a")
	must(t, r.UpdateContainer(t.Context(), id, doubled()))
	r.change(t, id, profile, "")
	r.wantValue(t, id, "memory.high", kubeletHighOf2Gi)
}

func TestAResizeOfAContainerWithoutAClassIsNotChanged(t *testing.T) {
	r := newProfileRig(t, "a: {memory: {high: 50%}}")
	id := r.mustRunBurstable(t, "a", "")
	must(t, r.UpdateContainer(t.Context(), id, doubled()))
	r.wantValue(t, id, "memory.high", kubeletHighOf2Gi)
}

// TestThePluginDoesNotChangeAResizeIfNoClassFilesAreLoaded restarts the plugin without class files, e.g. because they are invalid.
func TestThePluginDoesNotChangeAResizeIfNoClassFilesAreLoaded(t *testing.T) {
	r := newProfileRig(t, "a: {memory: {high: 50%}}")
	id := r.mustRunBurstable(t, "a", profile+"=a")
	r.stop()
	r.begin(t, r.newNode(t))
	must(t, r.UpdateContainer(t.Context(), id, doubled()))
	r.wantValue(t, id, "memory.high", kubeletHighOf2Gi)
}

// TestAResizeKeepsTheSwapOfTheClass uses a runtime that writes a limit of swap with each limit of memory.
func TestAResizeKeepsTheSwapOfTheClass(t *testing.T) {
	r := newMachineRigOn(t, newMachine(simcgroup.New()), profileFile("a: {memory: {swapMax: 8Mi}}"), nriruntime.Options{CRIO: true})
	id := r.mustRunBurstable(t, "a", profile+"=a")
	must(t, r.UpdateContainer(t.Context(), id, resources(2<<30, 50_000)))
	r.wantValue(t, id, "memory.swap.max", fmt.Sprint(8<<20))
}

// TestAContainerThatGotItsClassLaterGetsTheKubeletsValuesBack uses a container that was created without a class. The plugin restarts after
// each change of the class.
func TestAContainerThatGotItsClassLaterGetsTheKubeletsValuesBack(t *testing.T) {
	const class = "a: {memory: {high: 50%, oomGroup: false}, pids: {max: 5}}"
	for name, before := range map[string]func(*machineRig, string){
		"at once":                       func(*machineRig, string) {},
		"after a restart of the plugin": func(r *machineRig, _ string) { r.startNewWith(t, profileFile(class)) },
		"after a resize": func(r *machineRig, id string) {
			must(t, r.UpdateContainer(t.Context(), id, doubled()))
		},
	} {
		r := newProfileRig(t, class)
		id := r.mustRunBurstable(t, "a", "")
		before(r, id)
		want, err := r.host.ReadFile(r.cgroupFile(t, id, "memory.high"))
		must(t, err)

		for _, to := range []string{"a", classes.SystemDefault} {
			r.change(t, id, profile, to)
			r.startNewWith(t, profileFile(class))
			r.node.Repair(t.Context())
		}
		t.Log(name)
		r.wantValue(t, id, "memory.high", strings.TrimSpace(string(want)))
		r.wantValue(t, id, "memory.oom.group", "1")
		r.wantValue(t, id, "pids.max", "max")
	}
}

// TestAContainerThatWasCreatedWithoutThePluginGetsTheKubeletsValuesBack uses a container that the plugin moves to its class in the hook
// StartContainer. A resize then makes the runtime store the values of the class.
func TestAContainerThatWasCreatedWithoutThePluginGetsTheKubeletsValuesBack(t *testing.T) {
	const class = "a: {memory: {high: 50%}, pids: {max: 5}}"
	for name, restart := range map[string]func(*machineRig){
		"in the same process":           func(*machineRig) {},
		"after a restart of the plugin": func(r *machineRig) { r.startNewWith(t, profileFile(class)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newProfileRig(t, class)
			r.stop()
			id := r.createWith(t, r.pod(t, "a", profile+"=a"), burstable())
			r.startNewWith(t, profileFile(class))
			must(t, r.StartContainer(t.Context(), id))
			r.resize(t, id)
			r.wantReported(t, id, profile, "a/pod")

			restart(r)
			r.change(t, id, profile, classes.SystemDefault)
			r.resize(t, id)
			r.wantValue(t, id, "memory.high", kubeletHighOf1Gi)
			r.wantValue(t, id, "pids.max", "max")
		})
	}
}

func TestAProtectionThatAParentCapsIsNotReportedAsInForce(t *testing.T) {
	r := newProfileRig(t, "a: {memory: {low: 64Mi, min: 0}}")
	id := r.mustRunBurstable(t, "a", profile+"=a")
	r.node.Repair(t.Context())
	pod := path.Dir(r.cgroupFile(t, id, ""))
	name := path.Base(pod)
	r.wantLimited(t, id, "memory.low 64Mi has no effect because kubepods has 0 and "+name+" has 0 (set memory.low to 64Mi or more there)")
	reason := "memory.low has no effect, because kubepods has memory.low 0, and a cgroup protects at most what its parents protect; " +
		"set it there, e.g. echo 8G > /sys/fs/cgroup/kubepods/memory.low, and in the cgroups of QoS classes and pods below it, or enable MemoryQoS of the kubelet"
	if got := r.node.Status().Resources[0].Degraded["a"]; got != reason {
		t.Errorf("the class is degraded: %q, want %s", got, reason)
	}

	for _, set := range []struct {
		dir     string
		bytes   int
		limited string
	}{
		{path.Dir(pod), 1 << 30, "memory.low 64Mi has no effect because " + name + " has 0 (set memory.low to 64Mi or more there)"},
		{pod, 32 << 20, "memory.low 64Mi protects only 32Mi because " + name + " has 32Mi (set memory.low to 64Mi or more there)"},
		{pod, 64 << 20, ""},
	} {
		must(t, r.host.Machine.WriteFile(path.Join(set.dir, "memory.low"), []byte(fmt.Sprint(set.bytes))))
		r.node.Repair(t.Context())
		r.wantLimited(t, id, set.limited)
	}
	if got := r.node.Status().Resources[0].Degraded["a"]; got != "" {
		t.Errorf("the class is degraded: %q", got)
	}
}

// TestAProtectionAboveALimitIsReportedAtTheContainer uses a container with a limit of 1 GiB, for which the kubelet sets
// memory.high to 90%. `high` is memory.high in a class of another resource. The parents of the container do not cap its
// protection.
func TestAProtectionAboveALimitIsReportedAtTheContainer(t *testing.T) {
	const other = "vendor.example/other"
	above := func(property, own, high string) string {
		return property + " " + own + " is not below memory.high " + high + ": the kernel still reclaims what the container uses above memory.high " +
			"(lower " + property + " or raise memory.high)"
	}
	for _, test := range []struct{ name, class, high, want string }{
		{"the protections are below all limits", "{memory: {min: 64Mi, low: 128Mi}}", "", ""},
		{"memory.min is the limit", "{memory: {min: 1Gi, high: max}}", "", "memory.min 1Gi is not below the memory limit 1Gi: the container can be killed because of the files " +
			"that it writes (lower memory.min or set memory.low)"},
		{"memory.min is above the limit", "{memory: {min: 2Gi, high: max}}", "", "memory.min 2Gi is not below the memory limit 1Gi: the container can be killed because of the files " +
			"that it writes (lower memory.min or set memory.low)"},
		{"memory.low may be the limit", "{memory: {low: 100%, high: max}}", "", ""},
		{"memory.low is above memory.high of the kubelet", "{memory: {low: 1Gi}}", "", above("memory.low", "1Gi", "943716Ki")},
		{"memory.min is above memory.high of another resource", "{memory: {min: 512Mi}}", "256Mi", above("memory.min", "512Mi", "256Mi")},
		{"memory.min is below memory.high of another resource", "{memory: {min: 512Mi}}", "768Mi", ""},
		{"memory.high is the limit", "{memory: {high: 1Gi}}", "", "memory.high 1Gi has no effect because the memory limit is 1Gi (lower memory.high)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			file, request := profileFile("a: "+test.class), profile+"=a"
			if test.high != "" {
				file += "- {name: " + other + ", linux: {classes: {b: {memory: {high: " + test.high + "}}}}}\n"
				request += "," + other + "=b"
			}
			r := newMachineRigWith(t, file)
			id := r.mustRunBurstable(t, "a", request)
			pod := path.Dir(r.cgroupFile(t, id, ""))
			for _, parent := range []string{pod, path.Dir(pod)} {
				for _, name := range []string{"memory.min", "memory.low"} {
					must(t, r.host.Machine.WriteFile(path.Join(parent, name), []byte("max")))
				}
			}
			r.node.Repair(t.Context())
			r.wantLimited(t, id, test.want)
		})
	}
}

// TestAClassWithAShareOfALimitIsRefusedToAContainerWithoutTheLimit also uses a class with withoutLimit: skip. A
// container then gets the class without this value.
func TestAClassWithAShareOfALimitIsRefusedToAContainerWithoutTheLimit(t *testing.T) {
	r := newProfileRig(t, "a: {memory: {high: 80%}}, b: {withoutLimit: skip, memory: {high: 80%}, pids: {max: 5}}")
	_, err := r.run(t, r.pod(t, "a", profile+"=a"))
	want := `pod default/a container main: class "a" of vendor.example/profile: memory.high: the class has 80% of the memory limit, ` +
		"and the container has no limit; set resources.limits.memory in the pod, or withoutLimit: skip in the class"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}

	id := r.mustRun(t, r.pod(t, "b", profile+"=b"))
	r.wantReported(t, id, profile, "b/pod")
	r.wantValue(t, id, "memory.high", "max")
	r.wantValue(t, id, "pids.max", "5")
}

// TestThePluginsOwnPodsGetTheDefaultClass uses a container that was created before the plugin started, as that of the plugin itself, and one
// that was created later, as that of the publisher.
func TestThePluginsOwnPodsGetTheDefaultClass(t *testing.T) {
	file := strings.Replace(profileFile("a: {pids: {max: 100}}"), "  linux:", "  defaultClass: a\n  linux:", 1)
	r := newMachineRigWith(t, externalFiles)
	pod := r.podWith(t, nriruntime.PodConfig{Name: "own", Namespace: "qos-system"})
	r.stop()
	plugin := r.mustRunWithoutPlugin(t, pod)
	r.startNewWith(t, file)

	for _, id := range []string{plugin, r.mustRun(t, pod)} {
		r.node.Repair(t.Context())
		r.wantReported(t, id, profile, "a/default")
		r.wantValue(t, id, "pids.max", "100")
	}
}

// TestAnUpdatedClassIsInForceAfterARestartOfThePlugin changes the class of a container, and restarts the plugin. The record of the container
// names the class of its creation, and a value of the new class is not fully in force. The plugin must still report the new class.
func TestAnUpdatedClassIsInForceAfterARestartOfThePlugin(t *testing.T) {
	const file = "a: {oomScoreAdj: -500, pids: {max: 100}}, b: {oomScoreAdj: -500, memory: {low: 64Mi}}, c: {memory: {low: 64Mi}}"
	for name, test := range map[string]struct {
		request, to, stale string
		limited            bool
		change             func(*sim.Process)
	}{
		// Nothing protects the pod, so memory.low of class c has no effect.
		"a parent caps a protection": {request: "", to: "c", limited: true, change: func(*sim.Process) {}},
		// The classes b and a have the same oomScoreAdj, so its change does not show that the container is still in class b.
		"the process changes a property": {
			request: profile + "=b", to: "a", stale: "oomScoreAdj", change: func(p *sim.Process) { p.OOMScoreAdj = 0 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newProfileRig(t, file)
			id := r.mustRunBurstable(t, "a", test.request)
			r.change(t, id, profile, test.to)
			r.host.ChangeProcess(r.pidOf(t, id), test.change)

			r.startNewWith(t, profileFile(file))
			r.node.Repair(t.Context())
			r.wantReported(t, id, profile, test.to+"/update")
			r.wantStale(t, id, test.stale)
			if limited := r.assignment(t, id, profile).GetLimited(); (limited != "") != test.limited {
				t.Errorf("limited: %q", limited)
			}
		})
	}
}
