// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"context"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

const profile = "vendor.example/profile"

// profileFile returns a class file with the classes of a resource of kind linux.
func profileFile(classes string) string {
	return "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources:\n- name: " + profile + "\n  linux:\n    classes: {" + classes + "}\n"
}

func newProfileRig(t *testing.T, classes string) *machineRig {
	t.Helper()
	return newMachineRigWith(t, profileFile(classes))
}

// runBurstable runs a container with a memory limit of 1 GiB, half a CPU, the OOM score 900, and the values that kubelet 1.37 sets for its
// MemoryQoS.
func (r *machineRig) runBurstable(t *testing.T, pod string) (string, error) {
	t.Helper()
	id, err := r.CreateContainer(t.Context(), pod, burstable())
	if err != nil {
		return "", err
	}
	return id, r.StartContainer(t.Context(), id)
}

func burstable() nriruntime.ContainerConfig {
	return nriruntime.ContainerConfig{Name: "main", OOMScoreAdj: 900, Resources: resources(1<<30, 50_000)}
}

// resources returns a memory limit in bytes, a CPU limit in microseconds per 100 ms, and the memory.high of the kubelet for 1 GiB.
func resources(limit, quota int64) *api.LinuxResources {
	return &api.LinuxResources{
		Memory: &api.LinuxMemory{Limit: api.Int64(limit)}, Cpu: &api.LinuxCPU{Quota: api.Int64(quota), Period: api.UInt64(100_000)},
		Unified: map[string]string{"memory.high": kubeletHighOf1Gi, "memory.oom.group": "1", "cpu.max": fmt.Sprint(quota) + " 100000"},
	}
}

// doubled returns the resources to which the kubelet resizes such a container when its memory limit becomes 2 GiB.
func doubled() *api.LinuxResources {
	larger := resources(2<<30, 50_000)
	larger.Unified["memory.high"] = kubeletHighOf2Gi
	return larger
}

func (r *machineRig) mustRunBurstable(t *testing.T, name, request string) string {
	t.Helper()
	return r.runWith(t, r.pod(t, name, request), burstable())
}

// pidOf returns the first process of a container.
func (r *machineRig) pidOf(t *testing.T, id string) int {
	t.Helper()
	return r.container(t, id).PID
}

func (r *machineRig) wantProcess(t *testing.T, id string, want map[string]string) {
	t.Helper()
	pid := r.pidOf(t, id)
	for file, line := range want {
		data, err := r.host.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		if err != nil || !strings.Contains(strings.Join(strings.Fields(string(data)), " "), line) {
			t.Errorf("%s is %q, %v; want %s", file, data, err, line)
		}
	}
}

// wantValue compares a file of a container's cgroup.
func (r *machineRig) wantValue(t *testing.T, id, file, want string) {
	t.Helper()
	data, err := r.host.ReadFile(r.cgroupFile(t, id, file))
	if err != nil || strings.TrimSpace(string(data)) != want {
		t.Errorf("%s is %q, %v; want %s", file, data, err, want)
	}
}

func (r *machineRig) cgroupFile(t *testing.T, id, file string) string {
	t.Helper()
	return path.Join("/sys/fs/cgroup", nriruntime.CgroupDir(r.container(t, id).Spec.CgroupsPath), file)
}

// wantStale compares the stale properties that the node API reports for a container.
func (r *machineRig) wantStale(t *testing.T, id, want string) {
	t.Helper()
	if got := r.assignment(t, id, profile).GetStale(); got != want {
		t.Errorf("the stale properties are %q, want %q", got, want)
	}
}

// wantLimited compares the reason why the class of a container is not fully in force, as the node API reports it.
func (r *machineRig) wantLimited(t *testing.T, id, want string) {
	t.Helper()
	if got := r.assignment(t, id, profile).GetLimited(); got != want {
		t.Errorf("the class is limited: %q, want %q", got, want)
	}
}

// assignment returns the class of a resource that the node API reports for a container.
func (r *machineRig) assignment(t *testing.T, id, resource string) *qosv1alpha1.Assignment {
	t.Helper()
	answer, err := r.world.API.ListAssignments(t.Context(), &qosv1alpha1.ListAssignmentsRequest{})
	must(t, err)
	for _, pod := range answer.GetPods() {
		for _, ctr := range pod.GetContainers() {
			for _, a := range ctr.GetQosResources() {
				if ctr.GetId() == id && a.GetName() == resource {
					return a
				}
			}
		}
	}
	t.Fatalf("container %.12s has no assignment of %s", id, resource)
	return nil
}

const database = "database: {oomScoreAdj: {add: -200}, rlimits: {nofile: 65536, memlock: unlimited}, ioPriority: {class: best-effort, priority: 2}, " +
	"scheduler: {policy: batch, nice: -5}, memory: {high: 80%, oomGroup: false}, cpu: {burst: 50%}, pids: {max: 100}}"

// TestAContainerStartsWithThePropertiesOfItsClass uses a container with the OOM score 900, a memory limit of 1 GiB and a CPU quota of 50000.
// Class database subtracts 200 from the score, sets memory.high to 80% of the limit, which is 858992640 bytes in whole pages, and allows a
// burst of 50% of the quota. The other values are those in the class file.
func TestAContainerStartsWithThePropertiesOfItsClass(t *testing.T) {
	onEachRuntime(t, func(t *testing.T, options nriruntime.Options) {
		if options.CRIO {
			options.Name, options.Version = "cri-o", "v1.35.0" // its NRI can set all of the properties
		}
		r := newMachineRigOn(t, newMachine(simcgroup.New()), profileFile(database), options)
		id := r.mustRunBurstable(t, "a", profile+"=database")
		r.wantReported(t, id, profile, "database/pod")
		r.wantStale(t, id, "")
		r.wantProcess(t, id, map[string]string{"oom_score_adj": "700", "limits": "Max open files 65536 65536"})
		r.wantProcess(t, id, map[string]string{"limits": "Max locked memory unlimited unlimited"})
		if stored := r.container(t, id).Spec.Unified["memory.high"]; stored != "858992640" {
			t.Errorf("the runtime has stored memory.high %q", stored)
		}
		for file, want := range map[string]string{
			"memory.high": "858992640", "memory.oom.group": "0", "cpu.max.burst": "25000", "pids.max": "100",
		} {
			r.wantValue(t, id, file, want)
		}
		if got, err := r.host.IOPriority(r.pidOf(t, id)); err != nil || got != 2<<13|2 {
			t.Errorf("the I/O priority is %#x, %v, want class 2 (best-effort) with priority 2", got, err)
		}
	})
}

// changing is an OCI runtime that starts containers with other properties than it was asked for.
type changing struct {
	*sim.Machine
	change func(*nriruntime.Spec)
}

func (c changing) Create(ctx context.Context, spec nriruntime.Spec) (int, error) {
	c.change(&spec)
	return c.Machine.Create(ctx, spec)
}

func TestAPropertyThatTheRuntimeChangesIsNeverInForce(t *testing.T) {
	for _, test := range []struct {
		name, class, want string
		change            func(*nriruntime.Spec)
	}{
		{"an OCI runtime that does not know it, as crun before 1.8.5", "scheduler: {policy: batch}",
			"process.scheduler is policy=SCHED_OTHER, and the class has policy=SCHED_BATCH",
			func(s *nriruntime.Spec) { s.Scheduler = nil }},
		{"a score that is raised", "oomScoreAdj: -500", "process.oomScoreAdj is 0, and the class has -500", func(s *nriruntime.Spec) { s.OOMScoreAdj = 0 }},
		{"a limit that is lowered", "rlimits: {nofile: 4096}", "process.rlimits[RLIMIT_NOFILE] is hard=1024 soft=1024, and the class has hard=4096 soft=4096",
			func(s *nriruntime.Spec) {
				s.Rlimits = []*api.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: 1024, Soft: 1024}}
			}},
		{"a priority that is dropped", "ioPriority: idle", "process.ioPriority is , and the class has class=IOPRIO_CLASS_IDLE",
			func(s *nriruntime.Spec) { s.IOPriority = nil }},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMachine(simcgroup.New())
			r := newMachineRigOn(t, m, profileFile("a: {"+test.class+"}"), nriruntime.Options{OCI: changing{m, test.change}})
			_, err := r.runBurstable(t, r.pod(t, "a", profile+"=a"))
			want := test.want + `: the container runtime has not set it; upgrade the OCI runtime, or remove the property from class "a"`
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

func TestAPropertyThatTheRuntimesNRICannotSetIsRefused(t *testing.T) {
	const lacks = "the runtime has NRI v0.%s, and only NRI %s or later sets it; upgrade the runtime"
	for _, test := range []struct{ version, class, want string }{
		{"v1.7.20", "oomScoreAdj: 5", "process.oomScoreAdj: " + fmt.Sprintf(lacks, "6.1", "0.7")},
		{"v2.1.0", "ioPriority: idle", "process.ioPriority: " + fmt.Sprintf(lacks, "8.0", "0.10")},
		{"v2.2.0", "scheduler: {policy: idle}", "process.scheduler: " + fmt.Sprintf(lacks, "10.0", "0.11")},
		{"v2.2.1", "memoryPolicy: {mode: local}", "linux.memoryPolicy: " + fmt.Sprintf(lacks, "11.0", "0.12")},
	} {
		r := newMachineRigOn(t, newMachine(simcgroup.New()), profileFile("a: {"+test.class+"}"),
			nriruntime.Options{Name: "containerd", Version: test.version})
		if _, err := r.runBurstable(t, r.pod(t, "a", profile+"=a")); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s", test.version, err, test.want)
		}
		r.wantRefused(t, "a EnforcementFailed")
	}
}

// TestChangedPropertiesOfProcessesApplyToNewContainersOnly changes properties of processes and a value of the cgroup.
// Running containers get only the latter. Their old properties are reported as stale, also after a restart.
func TestChangedPropertiesOfProcessesApplyToNewContainersOnly(t *testing.T) {
	r := newProfileRig(t, "a: {oomScoreAdj: -500, rlimits: {nofile: 4096}, pids: {max: 100}}")
	old := r.mustRunBurstable(t, "a", profile+"=a")
	r.mustConfigure(t, profileFile("a: {oomScoreAdj: -600, rlimits: {nofile: 8192}, pids: {max: 200}}"))
	r.wantReported(t, old, profile, "a/pod")
	r.wantStale(t, old, "oomScoreAdj rlimits.nofile")
	r.wantProcess(t, old, map[string]string{"oom_score_adj": "-500"})
	r.wantValue(t, old, "pids.max", "200")

	r.startNewWith(t, profileFile("a: {oomScoreAdj: -600, rlimits: {nofile: 8192}, pids: {max: 200}}"))
	r.wantReported(t, old, profile, "a/pod")
	r.wantStale(t, old, "oomScoreAdj rlimits.nofile")
	now := r.mustRunBurstable(t, "b", profile+"=a")
	r.wantStale(t, now, "")
	r.wantProcess(t, now, map[string]string{"oom_score_adj": "-600"})
	if refused := r.node.Refused(); len(refused) > 0 {
		t.Errorf("refused: %+v", refused)
	}
}

func TestAPropertyThatTheContainerItselfChangesIsReportedAsStale(t *testing.T) {
	r := newProfileRig(t, "a: {oomScoreAdj: -500, rlimits: {nofile: {soft: 1024, hard: 4096}}}")
	id := r.mustRunBurstable(t, "a", profile+"=a")
	r.host.ChangeProcess(r.pidOf(t, id), func(p *sim.Process) {
		p.OOMScoreAdj = 0
		p.Limits["Max open files"] = [2]uint64{4096, 4096} // not reported, because every program in Go raises this soft limit
	})
	r.node.Repair(t.Context())
	r.wantStale(t, id, "oomScoreAdj")
	r.wantReported(t, id, profile, "a/pod")
}

func TestAChangeToAClassWithAnotherPropertyOfTheProcessIsRefused(t *testing.T) {
	r := newProfileRig(t, "a: {oomScoreAdj: -500, pids: {max: 100}}, b: {oomScoreAdj: 500}, c: {oomScoreAdj: -500, memory: {high: 64Mi}}")
	id := r.mustRunBurstable(t, "a", profile+"=a")
	for class, want := range map[string]string{
		"b": `class "b" has another process.oomScoreAdj than class "a", and a runtime sets it only when it creates a container; create the pod again`,
		"":  `class "" has another process.oomScoreAdj than class "a"`,
	} {
		if err := r.update(t, id, profile, class); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", class, err, want)
		}
	}

	// class c has the same property of the process, and other values of the cgroup
	r.change(t, id, profile, "c")
	r.wantReported(t, id, profile, "c/update")
	r.wantValue(t, id, "memory.high", fmt.Sprint(64<<20))
	r.wantValue(t, id, "pids.max", "max")
}

// TestAContainerThatWasCreatedWithoutThePluginDoesNotHaveTheClass uses a running container. Only the runtime could have set the OOM score
// of its process, so the plugin does not set the other values of the class either.
func TestAContainerThatWasCreatedWithoutThePluginDoesNotHaveTheClass(t *testing.T) {
	for _, class := range []string{"a: {oomScoreAdj: -500, pids: {max: 100}}", "a: {oomScoreAdj: -500}"} {
		r := newProfileRig(t, class)
		r.stop()
		id := r.mustRunWithoutPlugin(t, r.pod(t, "a", profile+"=a"))
		r.startNewWith(t, profileFile(class))
		r.host.intercept(func(op, path string) error {
			t.Errorf("the plugin makes a change: %s %s", op, path)
			return nil
		})
		for range 2 {
			r.node.Repair(t.Context())
			r.wantReported(t, id, profile, "/adopted")
			r.wantValue(t, id, "pids.max", "max")
		}
	}
}

func TestAContainerThatWasCreatedWithoutThePluginDoesNotStartWithoutTheClass(t *testing.T) {
	r := newProfileRig(t, "a: {oomScoreAdj: -500}")
	r.stop()
	pod := r.pod(t, "a", profile+"=a")
	var id string
	var err error
	for range 2 { // the first call shows the runtime that the plugin has ended
		if id, err = r.CreateContainer(t.Context(), pod, burstable()); err == nil {
			break
		}
	}
	r.startNewWith(t, profileFile("a: {oomScoreAdj: -500}"))
	err = r.StartContainer(t.Context(), id)
	want := "process.oomScoreAdj is 900, and the class has -500: a runtime sets it only when it creates a container; create the pod again"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func (r *machineRig) mustRunWithoutPlugin(t *testing.T, pod string) string {
	t.Helper()
	for range 2 { // the first call shows the runtime that the plugin has ended
		if id, err := r.runBurstable(t, pod); err == nil {
			return id
		}
	}
	t.Fatal("the container does not run")
	return ""
}

func TestAClassThatTheMachineCannotSetIsReportedWithTheReason(t *testing.T) {
	for _, test := range []struct {
		name, classes string
		machine       *sim.Machine
		want          string
	}{
		{"cgroup v1", "a: {pids: {max: 5}}", newMachine(simcgroup.NewLegacy()), "unavailable: " +
			`class "a" sets pids.max, which needs cgroup v2; mount cgroup2 at /sys/fs/cgroup (boot with systemd.unified_cgroup_hierarchy=1), ` +
			"or keep to properties of processes"},
		{"processes of cgroup v1", "a: {oomScoreAdj: 5}", newMachine(simcgroup.NewLegacy()), ""},
		{"too many files", "a: {rlimits: {nofile: unlimited}}", newMachine(simcgroup.New()), `refused: a.yaml:4: vendor.example/profile: class "a": rlimits.nofile: ` +
			"the hard limit unlimited is above fs.nr_open of this machine, which is 1048576; lower it, or raise the sysctl"},
		{"a NUMA node without memory", "a: {memoryPolicy: {mode: bind, nodes: 1-2}}", newMachine(simcgroup.New()), `refused: a.yaml:4: ` +
			`vendor.example/profile: class "a": memoryPolicy: this machine has no memory on NUMA node 2; its nodes with memory are 0-1`},
		{"no controller", "a: {memory: {low: 1Mi}}", newMachine(simcgroup.New(simcgroup.Without("memory"))), "unavailable: " +
			`class "a" sets memory.low, and this machine has no memory controller; boot without cgroup_disable=memory`},
		{"an old kernel", "a: {pids: {max: 5}, cpu: {burst: 10ms}}", newMachine(simcgroup.New(simcgroup.Without("cpu.max.burst"))), "unavailable: " +
			`class "a" sets cpu.burst, and this kernel has no file cpu.max.burst; boot Linux 5.14 or later with CONFIG_CFS_BANDWIDTH, or remove the property`},
		{"a kernel without swap", "a: {memory: {swapMax: 0}}", newMachine(simcgroup.New(simcgroup.Without("memory.swap.max"))), "unavailable: " +
			`class "a" sets memory.swapMax, and this kernel has no file memory.swap.max; ` +
			"boot a kernel with CONFIG_SWAP, up to Linux 6.0 also with swapaccount=1, or remove the property"},
		{"a kernel that lacks what no class sets", "a: {pids: {max: 5}}", newMachine(simcgroup.New(simcgroup.Without("cpu.max.burst"))), ""},
		{"disks without I/O priorities", "a: {ioPriority: idle}", newMachine(simcgroup.New()), "degraded: ioPriority has no effect on vda, vdb: " +
			"their I/O scheduler knows no priorities; select mq-deadline or bfq in /sys/block/NAME/queue/scheduler"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newMachineRigOn(t, test.machine, externalFiles, nriruntime.Options{})
			r.pod(t, "a", "") // the cgroups of pods show which files the kernel has
			got, before := "", r.Synchronizations()
			if err := r.configure(t, profileFile(test.classes)); err != nil {
				got = "refused: " + err.Error()
			}
			for _, resource := range r.node.Status().Resources {
				if resource.Name == profile && resource.Unavailable != nil {
					got = "unavailable: " + resource.Unavailable.Message
				}
				if resource.Name == profile && resource.Degraded["a"] != "" {
					got = "degraded: " + resource.Degraded["a"]
				}
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}

			if reason, unavailable := strings.CutPrefix(test.want, "unavailable: "); unavailable {
				r.wait(t, before+1) // the plugin registers again without the hooks of pods
				_, err := r.runBurstable(t, r.pod(t, "b", profile+"=a"))
				if err == nil || !strings.Contains(err.Error(), reason) || strings.Contains(err.Error(), "\n") {
					t.Errorf("a container of the class: %v, want one line with %s", err, reason)
				}
			}
		})
	}
}

// TestAClassOfAnotherResourceCanChangeBesideAPropertyOfTheProcess restarts the plugin first. The original OOM score is then only in an
// annotation of the container.
func TestAClassOfAnotherResourceCanChangeBesideAPropertyOfTheProcess(t *testing.T) {
	file := profileFile("low: {oomScoreAdj: {add: -200}}") + "- {name: " + xyz + ", classes: [{name: high}], external: {}}\n"
	r := newMachineRigWith(t, file)
	id := r.mustRunBurstable(t, "a", profile+"=low")
	r.startNewWith(t, file)
	for _, class := range []string{"high", ""} {
		r.change(t, id, xyz, class)
	}
}

func TestAContainerHasClassesOfTwoResourcesOfKindLinux(t *testing.T) {
	r := newMachineRigOn(t, newMachine(simcgroup.New()), profileFile("a: {pids: {max: 5}}")+
		"- name: vendor.example/oom\n  linux: {classes: {first: {oomScoreAdj: 1000}}}\n", nriruntime.Options{})
	id := r.mustRun(t, r.pod(t, "a", profile+"=a,vendor.example/oom=first"))
	r.wantReported(t, id, "vendor.example/oom", "first/pod")
	r.wantReported(t, id, profile, "a/pod")
	r.wantProcess(t, id, map[string]string{"oom_score_adj": "1000"})
	r.change(t, id, profile, classes.SystemDefault) // the class of one resource can change alone
}
