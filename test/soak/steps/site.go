// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package steps tests a node with rounds of random operations, and checks the invariants after each round. The node is
// a Site: a simulation in this process, or a virtual machine. An action is a kind of operation; operations that cause
// trouble may make later ones fail. A node is settled when it again has the state that the model expects.
package steps

import (
	"context"
	"time"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/invariant"
)

// Site is a node: a runtime and the plugin on a machine. Its methods are safe for concurrent use, except the methods of
// Plugin.
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

// Runtime is a container runtime, with methods that do what the kubelet does.
type Runtime interface {
	RunPod(ctx context.Context, pod Pod) (id string, err error)
	// RemovePod ends the pod's containers and removes the pod.
	RemovePod(ctx context.Context, id string) error
	CreateContainer(ctx context.Context, pod string, container Container) (id string, err error)
	StartContainer(ctx context.Context, id string) error
	// ExitContainer makes the processes of a container exit, as if they had ended by themselves. It can return before the
	// runtime calls the plugin's hooks.
	ExitContainer(ctx context.Context, id string) error
	RemoveContainer(ctx context.Context, id string) error
	// Exec starts one more process in a running container. Fork makes one of the container's processes fork.
	Exec(ctx context.Context, id string) error
	Fork(ctx context.Context, id string) error
	// Resize changes a container's CPU shares as the kubelet does. The runtime then sets all resources of the container
	// again.
	Resize(ctx context.Context, id string) error
	// RestartRuntime restarts the runtime. The containers keep running.
	RestartRuntime(ctx context.Context) error
}

// Plugin controls the process of the plugin. Its methods are called one at a time.
type Plugin interface {
	// WriteClasses replaces the class file as a whole. Hangup makes the plugin read the file at once, and not only
	// after some seconds.
	WriteClasses(text string) error
	Hangup() error
	// StartPlugin starts the plugin if it does not run.
	StartPlugin(ctx context.Context) error
	// StopPlugin ends the plugin as SIGTERM does, and waits for its end.
	StopPlugin(ctx context.Context) error
	// KillPlugin ends the plugin as SIGKILL does. If `at` is 0, it ends the plugin at once. Otherwise, it lets the
	// plugin make `at`-1 more writes to kernel files, and ends the plugin at the write after them.
	KillPlugin(ctx context.Context, at int) error
	// PluginRuns returns false after the plugin was stopped or killed. It returns an error if the plugin ended by
	// itself.
	PluginRuns() (bool, error)
	// API returns a client of the running plugin.
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
	// Annotations has the CRI annotations, which the kubelet sets.
	Annotations map[string]string
	// Device is the path of the container's block device, both on the machine and in the container. It is empty if the
	// container has none.
	Device string
}

// Machine has the properties that the values of classes depend on.
type Machine struct {
	// Ways is the number of bits in a mask of an L3 cache. Domains has the IDs of the caches.
	Ways    int
	Domains []int
	// RMIDs is the number of RMIDs that are not reserved for classes. It is 0 if some of them can be in limbo forever.
	RMIDs int
	// Disks has the device numbers (MAJ:MIN) of the disks /dev/vd[a-z].
	Disks []string
	// Weights maps each cgroup file with weights to its content for the weight 400.
	Weights map[string]string
	// Notices is the longest time that the plugin may take to find drift.
	Notices time.Duration
}

// Disks is a Site whose disks can be added and removed.
type Disks interface {
	// ToggleDisk adds a disk, or removes it if it was added before.
	ToggleDisk(ctx context.Context) error
}

// Faults is a Site whose kernel or runtime can refuse changes of the plugin.
type Faults interface {
	// RefuseWrite makes the kernel refuse the plugin's next write. The write first calls `during`, and fails when
	// `during` has returned. `stop` cancels the refusal. If `during` was already called, `stop` waits for its end.
	RefuseWrite(during func()) (stop func())
	// RefuseUpdate makes the runtime refuse the next update of a container, until `stop` is called.
	RefuseUpdate() (stop func())
}

// Others is a Site on which another program uses resctrl as well.
type Others interface {
	// ChangeForeign changes a group of another program. `n` selects the change.
	ChangeForeign(ctx context.Context, n int) error
	// ForeignFiles are foreign files outside of resctrl.
	ForeignFiles() []string
}

// Saboteur is a Site on which another program changes the plugin's groups and limits.
type Saboteur interface {
	// RemoveGroup removes a resctrl group. RewriteGroup changes its schemata. The group may not exist.
	RemoveGroup(ctx context.Context, group string) error
	RewriteGroup(ctx context.Context, group, schemata string) error
	// Remount unmounts resctrl, which loses all groups. It mounts resctrl again if `again` is true.
	Remount(ctx context.Context, again bool) error
	// Stray moves a thread of a container to the root group.
	Stray(ctx context.Context, id string) error
	// Unlimit removes limits from a container's cgroup.
	Unlimit(ctx context.Context, id string) error
}
