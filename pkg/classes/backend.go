// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"context"
	"errors"
)

// Kind is a type of backend. A field of the resource in the class file selects the kind: a resource with the field
// "rdt" has the kind whose Field is "rdt".
type Kind struct {
	// Field is the name of the field of a resource in class files, e.g. "rdt".
	Field string
	// Scopes has the scopes that a resource of this kind can have.
	Scopes []Scope
	// Single is true if a node can have only one resource of this kind in each scope.
	Single bool
	// Mutable is true if Backend.Enforce can change the class of a running container or pod.
	Mutable bool
	// AnyClass is true if the backend needs no configuration of a class. A resource of this kind has the classes that it lists.
	AnyClass bool
	// AnyHandler is true if the classes also suit runtime handlers that do not share the node's kernel. If a class file
	// has no field runtimeHandlers, pods of all handlers can then have classes.
	AnyHandler bool
	// Parse reads the value of the field of a resource in a scope, strictly and without I/O. It reports problems with the methods of
	// Field. Its result is valid only if it reported no problem.
	Parse func(section *Field, scope Scope) BackendConfig
	// Claims describes the resource of this kind whose classes PersistentVolumeClaims request. It is nil if there is none.
	Claims *ClaimedClasses
	// New makes the backend of one resource. It does no I/O.
	New func(resource string, scope Scope) Backend
	// Measures describes the values that the backends measure. It is empty if they are neither a ClassMeter nor a
	// HolderMeter.
	Measures []Measure
	// OfVolumes describes the values that the backends measure for volumes. It is empty if they are not a VolumeMeter.
	OfVolumes []Measure
	// Monitored describes the values that the backends measure for monitored containers. It is empty if they are not a
	// Monitor.
	Monitored []Measure
}

// InAnyScope returns a Kind.Parse for a configuration that is the same in each scope.
func InAnyScope(parse func(section *Field) BackendConfig) func(*Field, Scope) BackendConfig {
	return func(section *Field, _ Scope) BackendConfig { return parse(section) }
}

// BackendConfig is the result of Kind.Parse.
type BackendConfig interface {
	// ClassNames returns the configured classes, in a stable order. It returns none if the kind has AnyClass.
	ClassNames() []string
}

// External is a BackendConfig whose classes another program enforces.
type External interface {
	// EnforcerUser returns the ID of the user that may report on the enforcement of the classes. `named` is false if
	// only root may.
	EnforcerUser() (user uint32, named bool)
}

// Backend applies the classes of one resource on this machine.
//
// Callers call only one of Check, Apply, Repair, Withdraw and Release at a time. They may call the other methods at any time.
type Backend interface {
	// Check reports whether config can be applied on this machine. It writes nothing. The error joins all reasons why
	// config cannot be applied. *Unavailable means that the machine does not have the resource.
	Check(ctx context.Context, config BackendConfig) error

	// Apply makes config the live configuration. If Apply returns an error, the previous configuration stays live as a
	// whole. A class that is in use stays enforced until Release, even if `config` does not have it any more.
	Apply(ctx context.Context, config BackendConfig) error

	// Repair restores the parts of the live configuration that other programs have changed. It also adapts the
	// configuration to devices that were added or removed. After an error the caller must not offer the resource.
	// *Unavailable means that the machine lost the resource. Repair may be called before Apply and after Withdraw.
	Repair(ctx context.Context) (Drift, error)

	// Withdraw removes the live configuration of a resource that is not configured any more. Classes in use stay
	// enforced until Release. Withdraw is idempotent, and may be called before Apply.
	Withdraw(ctx context.Context) error

	// Release removes the state that the backend keeps for classes that are neither configured nor in use.
	Release(ctx context.Context, inUse func(class string) bool) error

	// Adjust returns what the runtime must set to move a container from one class to another. `target` is the container as the runtime
	// described it. When a container is created, `from` is SystemDefault. If `from` and `to` are equal, the adjustment replaces all values
	// of the resource that the runtime may have stored. Adjust does no I/O and must be fast, because hooks wait for it.
	Adjust(target Holder, from, to string) (Adjustment, error)

	// Enforce moves the target from one class to another, and reads the class back from the kernel. It writes the
	// values from Adjust only if the runtime has not set them. If Enforce returns an error, the target is as it was
	// before.
	//
	// Enforce is called when the class of a running container changes. It is also called before the first instruction
	// of a new container, and to enforce a class again. In these two cases, `from` and `to` are equal; target.Starting
	// is true only for a new container.
	Enforce(ctx context.Context, target Holder, from, to string) error

	// Observe reads the class of a running target from the kernel. If the values in the kernel match several classes,
	// and `want` is one of these classes, Observe returns `want`. If the target has ended, the error is ErrEnded.
	Observe(ctx context.Context, target Holder, want string) (Observation, error)

	// Status returns the last known state of the live configuration. It does no I/O.
	Status() BackendStatus
}

// Valued is a Backend that reports the values of its classes, for users.
type Valued interface {
	Backend
	// Values maps each class, including draining classes, to its values on this machine, by the names that the kernel
	// or the class files give to them, e.g. "L3" and "0=ff;1=f". It leaves out values that depend on the holder. It
	// does no I/O.
	Values() map[string]map[string]string
}

// ThreadMover is a Backend that assigns classes to threads and not to cgroups. When a runtime adds a process to a running
// container, e.g. for "kubectl exec", it starts the process in the class that the container had when it was created. If
// the container's class has changed since, MoveThreads must move the process.
type ThreadMover interface {
	Backend
	// MoveThreads moves all threads of the targets into the class. It returns the IDs of the targets that had threads outside
	// the class. After an error it continues with the next target.
	MoveThreads(ctx context.Context, class string, targets []Holder) (strayed []string, err error)
	// MoveNewThreads is like MoveThreads, but does not check the threads that the last call for the class found in the
	// class. If few threads are new, its cost does not depend on the number of threads on the node.
	MoveNewThreads(ctx context.Context, class string, targets []Holder) (strayed []string, err error)
}

// StoredValueChecker is a Backend whose values the container runtime stores. When another setting of a container
// changes, e.g. in a resize, the runtime writes the stored values to the cgroup again.
type StoredValueChecker interface {
	Backend
	// IsStale records the values that a runtime has stored for a container of the class, and reports whether they are
	// stale. `stored` maps cgroup v2 files to these values. The recorded values of other files stay. Values are stale
	// if they differ from those of the class, or name a device that the machine lost. The next change of the
	// container's class clears the recorded values. IsStale does no I/O.
	IsStale(target Holder, class string, stored map[string]string) bool
}

// Resizer is a Backend with values that must be lowered before a limit of the container is lowered, because the kernel
// refuses a limit that is below them.
type Resizer interface {
	Backend
	// BeforeResize lowers the values of a running container that its new limits do not allow. target.Spec has the new limits, which the
	// runtime writes next.
	BeforeResize(ctx context.Context, target Holder, class string) error
}

// Rememberer is a Backend that must know what a former process of the plugin has applied.
type Rememberer interface {
	// Remember loads what the backend of a former process has saved. After Remember, the backend saves each change with
	// memory.Save. All backends of a node have one memory.
	Remember(memory Memory) error
}

// Memory keeps JSON of backends over restarts of the plugin, until the machine is restarted.
type Memory interface {
	// Load returns the JSON that was saved last under each key.
	Load() map[string][]byte
	// Save replaces the JSON under each key in the map. nil removes a key.
	Save(changed map[string][]byte) error
}

// Recorder is a Backend that records what it applies to a container.
type Recorder interface {
	Backend
	// Record records and saves that the container may get the values of the class `to`. It is called before the runtime
	// is asked to set these values for a running container.
	Record(target Holder, to string)
}

// Sharer is a Backend that must know the classes of other holders, e.g. because it sets values in a pod's cgroup, in which other
// backends set values, too.
type Sharer interface {
	Backend
	// ShareWith sets the function that returns a pod and its containers and volumes with their desired classes, in any order. If
	// podUID is empty, the function returns those of all pods of the node. ShareWith does no I/O.
	ShareWith(holdings func(podUID string) []Holding)
}

// RoundObserver is a Backend that reads less if it observes many holders in one round.
type RoundObserver interface {
	Backend
	// BeginRound begins a round. Until the caller calls `end`, Observe may use what the backend has read since the
	// beginning of the round, and so may Enforce for holders that are not starting. Holders that started after the
	// beginning of a round must not be observed in it. BeginRound does no I/O.
	BeginRound() (end func())
}

// Locator is a Backend that reports the devices of volumes.
type Locator interface {
	Backend
	// Device returns the numbers of the devices on which the class of a volume was last enforced or observed, e.g.
	// "253:3". It does no I/O.
	Device(volumeID string) string
}

// Observation is the state of a target's class in the kernel.
type Observation struct {
	// Class is the class of the target, if `Known` is true. Known is false if the values in the kernel do not identify
	// one class.
	Class string
	Known bool
	// Left is true if the target should have no class, but has values of a class that it has left, e.g. because the
	// runtime wrote them again. `Class` is unknown then.
	Left bool
	// Foreign describes what another program has set for a target that has no class, e.g. `resctrl group "batch"`. For a
	// volume, it describes limits that are lower than those of the class. Foreign is empty if no other program has set anything.
	Foreign string
	// Stale names the properties for which the target has other values than the class, separated by spaces, e.g.
	// "oomScoreAdj rlimits.nofile". The runtime sets these properties only when it creates the container. They become
	// stale when the class changes, or when the process changes them. The other properties of the class are in force.
	Stale string
	// Limited has the reasons why properties of the class do not have their effect although the target has them, e.g.
	// "memory.low 64Mi has no effect because kubepods.slice has memory.low 0". It has no commas and no semicolons,
	// because these separate parts of messages. In contrast to Stale, it does not prevent a move of the target to the
	// class.
	Limited string
}

// ChangeChecker is a Backend that knows which targets have values of an earlier configuration of their class. The class
// of these targets is enforced again without an observation.
type ChangeChecker interface {
	Backend
	// HasChanged reports whether the class has other values than those that were applied to the target last. It does no I/O.
	HasChanged(target Holder, class string) bool
}

// Drift is the drift that Repair found and corrected.
type Drift struct {
	// Found describes how the machine differed from the live configuration. It has one sentence for each difference.
	Found []string
	// DevicesGone is true if the values that a runtime has stored may name devices that the machine lost.
	DevicesGone bool
}

// ErrEnded is the error for a target that has ended.
var ErrEnded = errors.New("has ended")

// BackendStatus is the state of the resource on this machine.
type BackendStatus struct {
	// Unavailable is nil if the resource can be used.
	Unavailable *Unavailable
	Conditions  []Condition
	// Degraded has the reason for each class that is enforced only in part, e.g. because a device pattern matches nothing.
	Degraded map[string]string
	// Monitored has the classes whose containers are selected for monitoring. It is nil if the backend is not a Monitor, or if
	// no class is selected.
	Monitored map[string]Monitored
	// Features has the features of the machine for the resource. It is nil if the backend does not report them.
	Features []Feature
}

// Feature is something that only some machines can do for a resource.
type Feature struct {
	Name string
	// Available reports whether this machine has the feature now. Reason is a detail of the feature, or the reason why
	// the machine does not have it.
	Available bool
	Reason    string
}

// Condition is one fact about the state of the resource, for users.
type Condition struct {
	// Type is in CamelCase, e.g. "WeightsEffective".
	Type string
	// Healthy is true if the condition is in the state that a user wants.
	Healthy bool
	// Limited is true if the message names a limitation, e.g. that weights act only between the containers of one pod.
	// "check" prints such a condition although it is healthy.
	Limited bool
	// Reason is a word in CamelCase. Message is a sentence.
	Reason, Message string
}

// Unavailable is the error for a resource that this machine does not have.
type Unavailable struct {
	// Reason is a word in CamelCase, e.g. "NoCPUSupport". Message is a sentence that names the remedy.
	Reason, Message string
}

func (u *Unavailable) Error() string { return u.Message }
