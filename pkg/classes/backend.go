// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"context"
	"errors"
	"maps"
)

// Kind describes a type of backend: the field of a resource in a class file that configures it, and how it is made.
// To add a resource type, implement Backend in a package of its own and register its Kind in cmd/qos-nri-plugin.
type Kind struct {
	// Field of the resource in class files, e.g. "rdt".
	Field string
	// Scopes in which a resource of this kind may be.
	Scopes []Scope
	// Single kinds back at most one resource of each scope of a node.
	Single bool
	// Mutable says whether Backend.Enforce can change the class of something that runs.
	Mutable bool
	// Parse reads the value of the field, strictly and without I/O. It reports problems with the methods of Field; its result
	// counts only when there is none.
	Parse func(section *Field) BackendConfig
	// New makes the backend of one resource. It does no I/O.
	New func(resource string, scope Scope) Backend
}

// BackendConfig is what Kind.Parse made of a class file's section.
type BackendConfig interface {
	// ClassNames are the classes that are configured and can be offered, in a stable order.
	ClassNames() []string
}

// Backend applies the classes of one resource on this machine.
//
// Check, Apply, Repair, Withdraw and Release are never called at the same time as each other, but may be at the same time as the rest.
type Backend interface {
	// Check says whether config can be applied on this machine, without writing anything. The error joins all
	// reasons why not; an *Unavailable error means that the machine has no such resource at all.
	Check(ctx context.Context, config BackendConfig) error

	// Apply makes config the live one: whole, or not at all, the previous one staying live on any error.
	// Classes that are gone but in use stay enforced until Release.
	Apply(ctx context.Context, config BackendConfig) error

	// Repair brings back what somebody else has changed of what Apply made live, and looks at the machine again, whose devices may have
	// come or gone. After an error the resource cannot be relied on; an *Unavailable error means that the machine lost it.
	// It may be called before any Apply, and after Withdraw.
	Repair(ctx context.Context) (Drift, error)

	// Withdraw takes back what Apply made live, for a resource that is not configured any more: nothing is offered then,
	// and classes in use stay enforced until Release. It may be called again, and before any Apply.
	Withdraw(ctx context.Context) error

	// Release drops what is kept only for classes that config no longer has and that are not in use.
	Release(ctx context.Context, inUse func(class string) bool) error

	// Adjust says what the runtime must set to take a container from one class to another; from is SystemDefault
	// at creation. It does no I/O and is quick: hooks of all containers wait for it.
	Adjust(from, to string) (Adjustment, error)

	// Enforce does what the runtime cannot do to take the target from one class to another, and verifies by reading
	// back that the target is in class "to" now, whoever did it. It is called before the first instruction of a
	// container (from SystemDefault), and for changes of what runs. On error the target is as it was before.
	Enforce(ctx context.Context, target Holder, from, to string) error

	// Observe says in which class the kernel has a running target; ok is false when the kernel cannot tell. Where classes look
	// the same, it is want, the one that the target should be in. The error is ErrEnded for what runs no more.
	Observe(ctx context.Context, target Holder, want string) (class string, ok bool, err error)

	// Status is the state of the live configuration as last seen; it does no I/O.
	Status() BackendStatus
}

// ThreadMover is a Backend whose classes are of threads rather than of cgroups: what a runtime starts in a container later, as for
// "kubectl exec", is in the class that the container was created in.
type ThreadMover interface {
	Backend
	// MoveThreads brings the threads of targets that are outside of their class into it, and returns the IDs of the targets that had
	// any. It goes on after an error.
	MoveThreads(ctx context.Context, class string, targets []Holder) (strayed []string, err error)
}

// StoredValueChecker is a Backend with values that runtimes store for a container, and set again when they change something
// else of it, as for a resize.
type StoredValueChecker interface {
	Backend
	// IsStale reports whether the cgroup v2 files that a runtime has stored for a container of a class differ from the class: they
	// have another class's values, or name a device that the machine lost. Values that no class has come from a former configuration;
	// from then on they are cleared with a class. It does no I/O.
	IsStale(class string, stored map[string]string) bool
}

// Drift is what Repair found and did.
type Drift struct {
	// Found are sentences about what was not as it had been left; none is the usual case.
	Found []string
	// DevicesGone says that a runtime may have stored values of devices that the machine has no more.
	DevicesGone bool
}

// ErrEnded is for a target that runs no more.
var ErrEnded = errors.New("has ended")

// Adjustment is what the runtime must set on a container.
type Adjustment struct {
	// ClosID is the resctrl group that the runtime has to put the container into (OCI linux.intelRdt.closID).
	ClosID string
	// Unified are cgroup v2 files and their values (OCI linux.resources.unified).
	Unified map[string]string
}

// Merge returns what both adjustments set; what other sets wins.
func (a Adjustment) Merge(other Adjustment) Adjustment {
	if other.ClosID != "" {
		a.ClosID = other.ClosID
	}
	if len(other.Unified) == 0 {
		return a
	}
	unified := make(map[string]string, len(a.Unified)+len(other.Unified))
	maps.Copy(unified, a.Unified)
	maps.Copy(unified, other.Unified)
	a.Unified = unified
	return a
}

// BackendStatus is what a backend knows of the resource on this machine.
type BackendStatus struct {
	// Unavailable is nil when the resource can be used.
	Unavailable *Unavailable
	Conditions  []Condition
	// Degraded classes are offered and enforced in part, with the reason: e.g. one of its device patterns matches nothing.
	Degraded map[string]string
}

// Condition is one observation that a user should know of.
type Condition struct {
	// Type is in CamelCase, e.g. "WeightsEffective".
	Type string
	// Healthy is true when the condition is as a user would want it.
	Healthy bool
	// Reason is a word in CamelCase, Message a sentence for people.
	Reason, Message string
}

// Unavailable says why this machine does not have a resource. It is an error.
type Unavailable struct {
	// Reason is a word in CamelCase, e.g. "NoCPUSupport". Message is a sentence that names the remedy.
	Reason, Message string
}

func (u *Unavailable) Error() string { return u.Message }
