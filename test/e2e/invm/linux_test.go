// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	profileQoS     = "vendor.example/profile"
	linuxResources = `
- name: ` + profileQoS + `
  linux:
    classes:
      database:
        oomScoreAdj: {add: -200}
        rlimits: {nofile: 4096, memlock: unlimited, core: 0}
        ioPriority: {class: best-effort, priority: 2}
        scheduler: {policy: batch, nice: -5}
        memory: {min: 4Mi, low: 25%, high: 75%, swapMax: 8Mi, oomGroup: true}
        cpu: {burst: 50%}
        pids: {max: 100}
`
	backgroundQoS = "vendor.example/background"
	idleResources = `
- name: ` + backgroundQoS + `
  scope: pod
  linux: {classes: {idle: {cpu: {idle: true}}}}
`
)

// linuxClasses: the runtime and the kernel accept each property of a class, and cgroup values survive a resize.
func linuxClasses(t *testing.T, n *node) {
	n.offer(t, linuxResources, profileQoS, "database")
	p := n.runPod(t, "linux", map[string]string{keyOf("main"): profileQoS + "=database"})
	c := p.run(t, spec{name: "main", resources: limited(64*megabyte, 50_000)})
	c.wantProcess(t)
	c.wantExec(t)
	c.wantValues(t, map[string]string{
		"memory.min": "4194304", "memory.low": fmt.Sprint(16 * megabyte), "memory.high": fmt.Sprint(48 * megabyte), "memory.swap.max": "8388608",
		"memory.oom.group": "1", "cpu.max.burst": "25000", "pids.max": "100",
	})

	for _, resize := range []struct{ memory, quota int64 }{{128 * megabyte, 80_000}, {64 * megabyte, 20_000}} {
		c.resize(t, limited(resize.memory, resize.quota))
		c.wantValues(t, map[string]string{
			"memory.high": fmt.Sprint(resize.memory * 3 / 4), "memory.oom.group": "1", "cpu.max.burst": fmt.Sprint(resize.quota / 2), "pids.max": "100",
		})
	}

	// The parents have neither memory.min nor memory.low, so both values of the class have no effect.
	eventually(t, "the protection that the parents cap is reported", func() error {
		a := n.assignment(t, p, "main", profileQoS)
		if a.GetClass() != "database" || a.GetStale() != "" || strings.Count(a.GetLimited(), " has no effect because ") != 2 {
			return fmt.Errorf("the assignment is %v", a)
		}
		return nil
	})
}

// limited returns the resources that kubelet 1.36 requests for a container with limits, whose OOM score is 900.
func limited(memory, quota int64) *cri.LinuxContainerResources {
	return &cri.LinuxContainerResources{
		MemoryLimitInBytes: memory, CpuQuota: quota, CpuPeriod: 100_000, CpuShares: 512, OomScoreAdj: 900,
		Unified: map[string]string{"memory.oom.group": "0"},
	}
}

// wantProcess checks that the container's first process has the properties of class `database`.
func (c *container) wantProcess(t testing.TB) {
	t.Helper()
	pids := c.pod.node.processes(t, c.cgroup())
	if len(pids) == 0 {
		t.Fatal("the container has no process")
	}
	for file, lines := range map[string][]string{
		"oom_score_adj": {"700"}, // the class adds -200 to the 900 of the kubelet
		"limits":        {"Max open files 4096 4096", "Max locked memory unlimited unlimited", "Max core file size 0 0"},
	} {
		data, err := os.ReadFile(filepath.Join("/proc", pids[0], file))
		must(t, err)
		for _, line := range lines {
			if !strings.Contains(strings.Join(strings.Fields(string(data)), " "), line) {
				t.Errorf("/proc/%s/%s does not have %q:\n%s", pids[0], file, line, data)
			}
		}
	}

	var pid int
	_, err := fmt.Sscan(pids[0], &pid)
	must(t, err)
	attributes, err := unix.SchedGetAttr(pid, 0)
	must(t, err)
	if attributes.Policy != unix.SCHED_BATCH || attributes.Nice != -5 {
		t.Errorf("the scheduling attributes are %+v, want the policy SCHED_BATCH and the nice value -5", attributes)
	}
	const ofProcess, bestEffort = 1, 2 // IOPRIO_WHO_PROCESS, IOPRIO_CLASS_BE (linux/ioprio.h)
	priority, _, errno := unix.Syscall(unix.SYS_IOPRIO_GET, ofProcess, uintptr(pid), 0)
	if errno != 0 || priority != bestEffort<<13|2 {
		t.Errorf("the I/O priority is %#x (%v), want level 2 of the class best effort", priority, errno)
	}
}

// wantExec checks that a process that is exec'd into the container has properties of class `database`.
func (c *container) wantExec(t testing.TB) {
	t.Helper()
	for file, want := range map[string]string{"oom_score_adj": "700", "limits": "Max open files 4096 4096"} {
		if got := c.exec(t, "cat", "/proc/self/"+file); !strings.Contains(strings.Join(strings.Fields(got), " "), want) {
			t.Errorf("%s of an exec'd process does not have %q:\n%s", file, want, got)
		}
	}
	_, stat, _ := strings.Cut(c.exec(t, "cat", "/proc/self/stat"), ") ")
	if fields := strings.Fields(stat); fields[16] != "-5" || fields[38] != "3" { // nice and policy, as in proc_pid_stat(5)
		t.Errorf("the scheduling attributes of an exec'd process are %s, want the nice value -5 and the policy 3", stat)
	}
}

// wantValues compares files of the container's cgroup.
func (c *container) wantValues(t testing.TB, want map[string]string) {
	t.Helper()
	for file, value := range want {
		data, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", c.cgroup(), file))
		if err != nil || strings.TrimSpace(string(data)) != value {
			t.Errorf("%s is %q, %v; want %s", file, data, err, value)
		}
	}
}

// idlePods: a class makes a pod idle. Until the pod leaves the class, the kernel refuses weights for the pod's cgroup,
// but not for the cgroups of its containers. Then the pod has the kubelet's weight again.
func idlePods(t *testing.T, n *node) {
	n.offer(t, idleResources, backgroundQoS, "idle")
	p := n.runPod(t, "background", nil)
	weight := filepath.Join("/sys/fs/cgroup", p.cgroup(), "cpu.weight")
	mustWrite(t, weight, "79")
	p.update(t, backgroundQoS+"=idle")
	p.wantIdle(t, "1")
	if err := os.WriteFile(weight, []byte("100"), 0); !errors.Is(err, unix.EINVAL) {
		t.Errorf("the write of a weight to an idle pod returned %v, want EINVAL", err)
	}

	c := p.run(t, spec{name: "main", resources: limited(64*megabyte, 50_000)})
	c.resize(t, limited(64*megabyte, 80_000))
	n.restartPlugin(t)
	p.wantIdle(t, "1")
	if bySystemd() {
		systemctl(t, "daemon-reload")
		systemctl(t, "set-property", "--runtime", path.Base(p.cgroup()), "CPUWeight=79") // also ends cpu.idle
		eventually(t, "the pod is idle again", func() error {
			if got := mustRead(t, filepath.Join(filepath.Dir(weight), "cpu.idle")); strings.TrimSpace(got) != "1" {
				return fmt.Errorf("cpu.idle is %s", got)
			}
			return nil
		})
	}
	p.update(t, backgroundQoS+"=")
	p.wantIdle(t, "0")
	if got := mustRead(t, weight); strings.TrimSpace(got) != "79" {
		t.Errorf("the weight is %s, want 79", got)
	}

	another := n.runPod(t, "background-2", map[string]string{podKey: backgroundQoS + "=idle"})
	another.wantIdle(t, "1")
}

// wantIdle compares cpu.idle of the pod's cgroup.
func (p *pod) wantIdle(t testing.TB, want string) {
	t.Helper()
	if got := mustRead(t, filepath.Join("/sys/fs/cgroup", p.cgroup(), "cpu.idle")); strings.TrimSpace(got) != want {
		t.Errorf("cpu.idle of the pod is %s, want %s", got, want)
	}
}
