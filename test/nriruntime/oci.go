// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriruntime

import (
	"context"
	"sync"

	"github.com/containerd/nri/pkg/api"
)

// OCI stands in for the OCI runtime, e.g. runc, and makes pod cgroups as the kubelet does. It must be safe for
// concurrent use.
type OCI interface {
	// MakePodCgroup makes the cgroup that a pod's containers will be in, before the pod runs.
	MakePodCgroup(cgroupParent string) error
	// RemovePodCgroup removes the pod's cgroup after the pod has ended.
	RemovePodCgroup(cgroupParent string) error

	// Create makes the container's cgroup and writes the values of spec.Unified to it. It starts the container's first
	// process in this cgroup and in the resctrl group; the process waits for Start. If Create fails, it removes what
	// it made.
	Create(ctx context.Context, spec Spec) (pid int, err error)
	// Start lets the container's first process run the container's program.
	Start(ctx context.Context, id string) error
	// Exec starts one more process in the container, in the cgroup and the resctrl group that the spec names.
	Exec(ctx context.Context, spec Spec) (pid int, err error)
	// Update writes `unified` to the container's cgroup.
	Update(ctx context.Context, id string, unified map[string]string) error
	// Delete ends all processes of the container and removes its cgroup. It is idempotent.
	Delete(ctx context.Context, id string) error
}

// Spec is the part of a container's OCI runtime spec that an OCI implementation gets.
type Spec struct {
	// ID is the container's ID.
	ID string
	// CgroupsPath is linux.cgroupsPath.
	CgroupsPath string
	Annotations map[string]string
	// Unified is linux.resources.unified: cgroup v2 files and their values.
	Unified map[string]string
	// ClosID is linux.intelRdt.closID, the resctrl group. It is empty if there is none.
	ClosID string
	// Monitoring is linux.intelRdt.enableMonitoring.
	Monitoring bool
	// OOMScoreAdj is process.oomScoreAdj. The kubelet always sets it.
	OOMScoreAdj int
	// Rlimits, IOPriority and Scheduler are fields of process.
	Rlimits    []*api.POSIXRlimit
	IOPriority *api.LinuxIOPriority
	Scheduler  *api.LinuxScheduler
	// MemoryPolicy is linux.memoryPolicy. NRI does not report it.
	MemoryPolicy *api.LinuxMemoryPolicy
}

// NoMachine is an OCI that only assigns process IDs. It is for tests that need only hooks.
type NoMachine struct {
	mu   sync.Mutex // guards last
	last int
}

// MakePodCgroup does nothing.
func (*NoMachine) MakePodCgroup(string) error { return nil }

// RemovePodCgroup does nothing.
func (*NoMachine) RemovePodCgroup(string) error { return nil }

// Create returns the next process ID.
func (n *NoMachine) Create(context.Context, Spec) (int, error) { return n.next(), nil }

// Start does nothing.
func (*NoMachine) Start(context.Context, string) error { return nil }

// Exec returns the next process ID.
func (n *NoMachine) Exec(context.Context, Spec) (int, error) { return n.next(), nil }

// Update does nothing.
func (*NoMachine) Update(context.Context, string, map[string]string) error { return nil }

// Delete does nothing.
func (*NoMachine) Delete(context.Context, string) error { return nil }

func (n *NoMachine) next() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last++
	return n.last
}
