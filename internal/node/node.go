// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node is what this machine offers and has assigned: configuration, ledger and backends, kept in step.
package node

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Pod is a pod sandbox as the runtime shows it.
type Pod struct {
	ID, UID, Name, Namespace string
	Annotations              map[string]string
	// CgroupParent is the pod's cgroup: a path, or a slice with the systemd driver.
	CgroupParent string
	// PID is that of the sandbox, in the host's namespace; 0 when it has none, or the runtime does not tell.
	PID int
}

// Container is a container as the runtime shows it.
type Container struct {
	ID, Name    string
	Annotations map[string]string
	// CgroupsPath is as in the OCI runtime spec.
	CgroupsPath string
	// Unified are cgroup v2 files and their values as the runtime has them stored. Synchronize looks at them.
	Unified map[string]string
	// PID is in the host's namespace; 0 when there is no process yet.
	PID int
}

// Runtime is what the container runtime can do for a change of what runs.
type Runtime interface {
	// SetUnified sets cgroup v2 files of a container, and the runtime remembers them.
	SetUnified(ctx context.Context, id string, unified map[string]string) error
}

// Options are the parts that a Node is made of.
type Options struct {
	Kinds []classes.Kind
	// Changes remembers classes that were changed after creation over a restart; nil forgets them.
	Changes ChangeStore
	Log     *slog.Logger
	// Now tells the time; nil is time.Now.
	Now func() time.Time
	// StartTime tells when a process of the host was started, in any unit, and whether there is one; nil is not known.
	StartTime func(pid int) (at uint64, exists bool)
}

// Node is safe for concurrent use. Its hooks do no I/O while they hold a lock.
type Node struct {
	kinds   map[string]classes.Kind
	changes ChangeStore
	log     *slog.Logger
	now     func() time.Time
	// startTime may be nil.
	startTime func(pid int) (at uint64, exists bool)

	// changing serializes whatever changes the kernel outside of hooks: Configure, Update, Reconcile, Inspect, Gather and
	// ReleaseUnused. It is taken before mu, and held while the runtime and the kernel are waited for; no hook takes it.
	changing turn
	// away is why the runtime is asked for nothing more in this round of changes. It belongs to who has the turn.
	away error

	// stuck counts what hooks have begun in the kernel and has not ended.
	stuck atomic.Int64

	// mu guards all below. It is held for work in memory only, since the hooks of all containers wait for it.
	mu       sync.Mutex
	catalog  *classes.Catalog
	backends map[string]backend // by resource
	ledger   *classes.Ledger
	tracked  map[string]tracked        // by the ID of the container or sandbox
	seen     uint64                    // containers and sandboxes so far
	unproven []sandbox                 // those that may have been made without the plugin
	owed     map[string]classes.Holder // what runs without the classes that it asks for, by the ID of the container or sandbox
	runtime  Runtime
	info     RuntimeInfo
	config   ConfigStatus
	refusals Refusals
	refused  map[classes.Owner]Refused
	mends    map[Mend]uint64
	findings map[string]finding // by resource
	gathers  map[string]string  // why threads could not be gathered the last time, by resource and class
	stale    map[string]bool    // IDs of containers of which the runtime has stored values of devices that are gone
	watchers chan struct{}      // closed and replaced at every change
	drained  chan struct{}      // signalled when an assignment of a class that is offered no more has ended
}

// tracked is what is known of a holder beside its assignments.
type tracked struct {
	target classes.Holder
	// sandbox is the ID of the pod's sandbox.
	sandbox string
	// number orders the holders of one owner: the newest has the highest.
	number uint64
	// started is false until the first process is about to run. enforcing is true while a hook brings it into its classes.
	started, enforcing bool
	// began is when its first process was started, as it was seen first; 0 is not known.
	began uint64
	// created are the classes that it was created in, which the runtime has stored.
	created []classes.Assignment
	// astray is, by resource, the class that it is in as far as is known, where that is not the ledger's. It is never
	// changed, but replaced.
	astray map[string]string
}

// classOf is the class that a holder is in.
func (t tracked) classOf(holder classes.Holding, resource string) string {
	if class, ok := t.astray[resource]; ok {
		return class
	}
	return classOf(holder.Assignments, resource)
}

// track begins to follow a holder. The caller holds mu.
func (n *Node) track(pod Pod, target classes.Holder, started bool, created []classes.Assignment) {
	n.seen++
	n.tracked[target.ID] = tracked{target: target, sandbox: pod.ID, number: n.seen, started: started, created: created}
}

// backend is a resource's backend with the configuration that it last applied.
type backend struct {
	classes.Backend
	config classes.ResourceConfig
	// unavailable says why the machine does not have the resource; nil when it does.
	unavailable *classes.Unavailable
}

// RuntimeInfo is what the runtime said of itself when the plugin registered.
type RuntimeInfo struct {
	Name, Version, NRIVersion string
	// Synchronized is true from the end of Synchronize until the connection is lost.
	Synchronized bool
	// Since is when Synchronized became true last; zero when it never did.
	Since time.Time
}

// ConfigStatus is the outcome of the last attempts to load class files.
type ConfigStatus struct {
	// Loaded is when the live configuration was applied; zero when none ever was. Hash identifies its files.
	Loaded time.Time
	Hash   string
	Files  []string
	// Generation counts the configurations that were applied, from 1.
	Generation uint64
	// Err is why the last attempt failed, at the time Failed; nil when the live configuration is the last one.
	Err    error
	Failed time.Time
}

// Refusals counts what was refused, by the reason's sentinel error, since the process started.
type Refusals map[string]uint64

// New makes a node that offers nothing yet.
func New(o Options) *Node {
	n := &Node{
		changing: newTurn(), kinds: map[string]classes.Kind{}, changes: o.Changes, log: o.Log, now: o.Now, startTime: o.StartTime,
		catalog: classes.NewCatalog(nil), backends: map[string]backend{}, ledger: classes.NewLedger(),
		tracked: map[string]tracked{}, refused: map[classes.Owner]Refused{},
		mends: map[Mend]uint64{}, findings: map[string]finding{}, gathers: map[string]string{}, stale: map[string]bool{}, owed: map[string]classes.Holder{},
		refusals: Refusals{}, watchers: make(chan struct{}), drained: make(chan struct{}, 1),
	}
	for _, kind := range o.Kinds {
		n.kinds[kind.Field] = kind
	}
	if n.changes == nil {
		n.changes = forgetful{}
	}
	if n.now == nil {
		n.now = time.Now
	}
	return n
}

// Changed returns a channel that is closed at the next change of what Status and Assignments say.
func (n *Node) Changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.watchers
}

// notify tells all who wait for a change. The caller holds mu.
func (n *Node) notify() {
	close(n.watchers)
	n.watchers = make(chan struct{})
}

// Connected notes the runtime that the plugin registered with, before Synchronize.
func (n *Node) Connected(runtime Runtime, info RuntimeInfo) {
	n.mu.Lock()
	defer n.mu.Unlock()
	info.Since = n.info.Since
	n.runtime, n.info = runtime, info
	n.notify()
}

// Disconnected notes that the runtime is away. What is assigned stays as it is.
func (n *Node) Disconnected() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.runtime, n.info.Synchronized = nil, false
	n.notify()
}
