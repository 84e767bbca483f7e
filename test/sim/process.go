// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"maps"
	"strings"
	"syscall"

	"github.com/containerd/nri/pkg/api"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

// Process has the properties of a process that an OCI runtime sets. A test can change them, as the process itself could.
type Process struct {
	OOMScoreAdj int
	// Limits maps the titles in /proc/PID/limits to the soft and the hard limit.
	Limits map[string][2]uint64
	// IOPriority is a value of ioprio_get(2).
	IOPriority int
	// Policy, Nice and Priority are fields 41, 19 and 40 of /proc/PID/stat.
	Policy, Nice, Priority int
	// NUMA is the memory policy as in /proc/PID/numa_maps.
	NUMA string
}

// processOf returns the first process of a container.
func processOf(spec nriruntime.Spec) Process {
	titles := map[string]string{
		"RLIMIT_NOFILE": "Max open files", "RLIMIT_MEMLOCK": "Max locked memory", "RLIMIT_CORE": "Max core file size", "RLIMIT_NPROC": "Max processes",
	}
	p := Process{OOMScoreAdj: spec.OOMScoreAdj, NUMA: "default", Limits: map[string][2]uint64{}}
	for _, title := range titles {
		p.Limits[title] = [2]uint64{1024, 4096}
	}
	for _, limit := range spec.Rlimits {
		p.Limits[titles[limit.GetType()]] = [2]uint64{limit.GetSoft(), limit.GetHard()}
	}
	if priority := spec.IOPriority; priority != nil {
		p.IOPriority = int(priority.GetClass())<<13 | int(priority.GetPriority())
	}
	if policy := spec.MemoryPolicy; policy != nil {
		p.NUMA = strings.ToLower(strings.TrimPrefix(policy.GetMode().String(), "MPOL_"))
		if policy.GetNodes() != "" {
			p.NUMA += ":" + policy.GetNodes()
		}
	}
	if scheduler := spec.Scheduler; scheduler != nil {
		numbers := map[api.LinuxSchedulerPolicy]int{
			api.LinuxSchedulerPolicy_SCHED_FIFO: 1, api.LinuxSchedulerPolicy_SCHED_RR: 2, api.LinuxSchedulerPolicy_SCHED_BATCH: 3,
			api.LinuxSchedulerPolicy_SCHED_IDLE: 5, api.LinuxSchedulerPolicy_SCHED_DEADLINE: 6,
		}
		p.Policy, p.Nice, p.Priority = numbers[scheduler.GetPolicy()], int(scheduler.GetNice()), int(scheduler.GetPriority())
	}
	return p
}

// ChangeProcess changes the properties of a process.
func (m *Machine) ChangeProcess(pid int, change func(*Process)) {
	m.runc.mu.Lock()
	defer m.runc.mu.Unlock()
	p := m.runc.processes[pid]
	p.Limits = maps.Clone(p.Limits)
	change(&p)
	m.runc.processes[pid] = p
}

// IOPriority simulates ioprio_get(2).
func (m *Machine) IOPriority(pid int) (int, error) {
	m.runc.mu.Lock()
	defer m.runc.mu.Unlock()
	p, exists := m.runc.processes[pid]
	if !exists || !m.exists(pid) {
		return 0, syscall.ESRCH
	}
	return p.IOPriority, nil
}

// readProcess returns a file of /proc/PID. The parameter `stat` is the beginning of the file stat.
func (m *Machine) readProcess(pid int, file string, stat []byte) (data []byte, exists bool) {
	m.runc.mu.Lock()
	defer m.runc.mu.Unlock()
	p, exists := m.runc.processes[pid]
	if !exists || !m.exists(pid) {
		return nil, false
	}

	switch file {
	case "oom_score_adj":
		return fmt.Appendln(nil, p.OOMScoreAdj), true
	case "limits":
		text := fmt.Sprintf("%-25s %-20s %-20s %-10s\n", "Limit", "Soft Limit", "Hard Limit", "Units")
		units := map[string]string{"Max open files": "files", "Max locked memory": "bytes", "Max core file size": "bytes", "Max processes": "processes"}
		for title, limits := range p.Limits {
			text += fmt.Sprintf("%-25s %-20s %-20s %-10s\n", title, limitText(limits[0]), limitText(limits[1]), units[title])
		}
		return []byte(text), true
	case "numa_maps":
		return []byte("55f0c0de0000 " + p.NUMA + " file=/bin/sh mapped=1 N0=1 kernelpagesize_kB=4\n"), true
	case "stat":
		fields := strings.Fields(strings.Repeat("0 ", 37)) // fields 5 to 41
		fields[19-5], fields[40-5], fields[41-5] = fmt.Sprint(p.Nice), fmt.Sprint(p.Priority), fmt.Sprint(p.Policy)
		return []byte(strings.TrimSpace(string(stat)) + " " + strings.Join(fields, " ") + "\n"), true
	}
	return nil, false
}

func limitText(limit uint64) string {
	if limit == 1<<64-1 {
		return "unlimited"
	}
	return fmt.Sprint(limit)
}
