// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package steps tests a node with rounds of random deeds, and checks the invariants after each round. The node is a Site: a
// simulation in this process, or a virtual machine.
package steps

import (
	"context"
	"time"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/invariant"
)

// Site is a node: a runtime and the plugin on a machine. Its methods are safe for concurrent use, but for those of the plugin.
type Site interface {
	Runtime
	Plugin
	// Host has the kernel's files.
	Host() invariant.FS
	// Live returns the runtime's pods and containers.
	Live(ctx context.Context) (invariant.Live, error)
	// Machine returns the properties that the values of classes depend on.
	Machine() Machine
}

// Runtime is a container runtime with the kubelet's part in what happens.
type Runtime interface {
	RunPod(ctx context.Context, pod Pod) (id string, err error)
	// RemovePod ends its containers and removes it.
	RemovePod(ctx context.Context, id string) error
	CreateContainer(ctx context.Context, pod string, container Container) (id string, err error)
	StartContainer(ctx context.Context, id string) error
	// ExitContainer ends the processes as if by themselves. The plugin's hooks are called later.
	ExitContainer(ctx context.Context, id string) error
	RemoveContainer(ctx context.Context, id string) error
	// Exec starts one more process in a running container; Fork has one of its processes make another.
	Exec(ctx context.Context, id string) error
	Fork(ctx context.Context, id string) error
	// Resize is the kubelet's change of a container's CPU shares, with which the runtime sets all of its resources again.
	Resize(ctx context.Context, id string) error
	// RestartRuntime does so while containers run on.
	RestartRuntime(ctx context.Context) error
}

// Plugin is the plugin as a process. Its methods are called one at a time.
type Plugin interface {
	// WriteClasses replaces the class file as a whole; Hangup has it read at once, rather than within some seconds.
	WriteClasses(text string) error
	Hangup() error
	// StartPlugin starts it when it does not run.
	StartPlugin(ctx context.Context) error
	// StopPlugin ends it as SIGTERM does, and waits for it.
	StopPlugin(ctx context.Context) error
	// KillPlugin ends it as SIGKILL does: at once with 0, else at its nth write into the kernel from now, if there ever are as many.
	KillPlugin(ctx context.Context, at int) error
	// PluginRuns is false once it was stopped or killed. The error is why it ended by itself.
	PluginRuns() (bool, error)
	// API is the running plugin's.
	API() qosv1alpha1.NodeQOSClient
}

// Pod is a pod to run.
type Pod struct {
	Name, UID   string
	Annotations map[string]string
}

// Container is a container to create.
type Container struct {
	Name string
	// Annotations are those of CRI, which the kubelet sets.
	Annotations map[string]string
}

// Machine has the properties that the values of classes depend on.
type Machine struct {
	// Ways are the bits of the masks of its L3 caches, Domains the caches' IDs. Memory bandwidth is in per cent, in tens.
	Ways    int
	Domains []int
	// Disks are numbers, MAJ:MIN, of the disks /dev/vd[a-z].
	Disks []string
	// Weights are the cgroup files with weights, and their content for the weight 400.
	Weights map[string]string
	// Notices is how long the plugin may take to find drift.
	Notices time.Duration
}

// Disks is a Site whose disks can be added and removed.
type Disks interface {
	// ToggleDisk adds a disk, or takes it away again.
	ToggleDisk(ctx context.Context) error
}

// Faults is a Site whose kernel or runtime can refuse what the plugin asks for.
type Faults interface {
	// RefuseWrite has the kernel refuse the plugin's next write, after during has returned. stop ends that, and waits for during.
	RefuseWrite(during func()) (stop func())
	// RefuseUpdate has the runtime refuse the next update of a container. stop ends that.
	RefuseUpdate() (stop func())
}

// Others is a Site on which another program uses resctrl as well.
type Others interface {
	// ChangeForeign changes a group that is not the plugin's; n chooses how.
	ChangeForeign(ctx context.Context, n int) error
	// ForeignFiles are further foreign files, beside those in resctrl.
	ForeignFiles() []string
}

// Saboteur is a Site on which another program changes the plugin's groups and limits.
type Saboteur interface {
	// RemoveGroup removes a resctrl group, and RewriteGroup writes into its schemata; a group may not be there.
	RemoveGroup(ctx context.Context, group string) error
	RewriteGroup(ctx context.Context, group, schemata string) error
	// Remount unmounts resctrl, with all that is in it, and mounts it again or leaves that to others.
	Remount(ctx context.Context, again bool) error
	// Stray moves a thread of a container to the root group.
	Stray(ctx context.Context, id string) error
	// Unlimit takes limits from a container's cgroup.
	Unlimit(ctx context.Context, id string) error
}
