// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"context"
	"errors"
	"maps"
)

// Kind is a type of backend: the field of a resource in a class file that configures it, and its constructor.
type Kind struct {
	// Field of the resource in class files, e.g. "rdt".
	Field string
	// Scopes that a resource of this kind can have.
	Scopes []Scope
	// Single is true when a node can have one resource of this kind in each scope.
	Single bool
	// Mutable is true when Backend.Enforce can change the class of a running container or pod.
	Mutable bool
	// Parse reads the value of the field, strictly and without I/O. It reports problems with the methods of Field; its result
	// counts only when there is none.
	Parse func(section *Field) BackendConfig
	// New makes the backend of one resource. It does no I/O.
	New func(resource string, scope Scope) Backend
}

// BackendConfig is the result of Kind.Parse.
type BackendConfig interface {
	// ClassNames returns the configured classes, in a stable order.
	ClassNames() []string
}

// Backend applies the classes of one resource on this machine.
//
// Calls of Check, Apply, Repair, Withdraw and Release exclude each other. Other methods may be called during them.
type Backend interface {
	// Check reports whether config can be applied on this machine, and writes nothing. The error joins all reasons why not;
	// *Unavailable means that the machine does not have the resource.
	Check(ctx context.Context, config BackendConfig) error

	// Apply makes config the live configuration. On an error the previous one stays live, as a whole.
	// Removed classes that are in use stay enforced until Release.
	Apply(ctx context.Context, config BackendConfig) error

	// Repair restores what others have changed of the live configuration, and follows devices that were added or removed. After
	// an error the resource is unreliable; *Unavailable means that the machine lost it.
	// It may be called before Apply and after Withdraw.
	Repair(ctx context.Context) (Drift, error)

	// Withdraw removes the live configuration, for a resource that is not configured any more. Classes in use stay enforced
	// until Release. It is idempotent, and may be called before Apply.
	Withdraw(ctx context.Context) error

	// Release removes what is kept for classes that are neither configured nor in use.
	Release(ctx context.Context, inUse func(class string) bool) error

	// Adjust returns what the runtime must set to move a container from one class to another; from is SystemDefault
	// at creation. It does no I/O and is fast: hooks of all containers wait for it.
	Adjust(from, to string) (Adjustment, error)

	// Enforce does what the runtime cannot do to move the target from one class to another, and verifies by reading
	// back that the target is in the class now. It is called before the first instruction of a
	// container (from SystemDefault), and for changes of running ones. On error the target is as it was before.
	Enforce(ctx context.Context, target Holder, from, to string) error

	// Observe returns the class in which the kernel has a running target; ok is false when the kernel does not show it. If
	// several classes look the same, want is preferred. The error is ErrEnded for a target that has ended.
	Observe(ctx context.Context, target Holder, want string) (class string, ok bool, err error)

	// Status returns the last known state of the live configuration. It does no I/O.
	Status() BackendStatus
}

// ThreadMover is a Backend that assigns classes to threads rather than to cgroups. A process that a runtime starts later in a
// container, as for "kubectl exec", is in the class in which the container was created.
type ThreadMover interface {
	Backend
	// MoveThreads moves threads of the targets that are outside of the class into it, and returns the IDs of the targets that had
	// such threads. It continues after an error.
	MoveThreads(ctx context.Context, class string, targets []Holder) (strayed []string, err error)
}

// StoredValueChecker is a Backend with values that runtimes store for a container. A runtime sets them again when it changes
// something else of the container, as for a resize.
type StoredValueChecker interface {
	Backend
	// IsStale reports whether the cgroup v2 files that a runtime has stored for a container of a class are stale: they have the
	// values of another class, or name a device that the machine lost. Values of no class come from a former configuration; from
	// then on they are cleared with a class. It does no I/O.
	IsStale(class string, stored map[string]string) bool
}

// Drift is the drift that Repair found and corrected.
type Drift struct {
	// Found has a sentence for each difference from the live configuration.
	Found []string
	// DevicesGone is true when the values that a runtime has stored may name devices that the machine lost.
	DevicesGone bool
}

// ErrEnded is the error for a target that has ended.
var ErrEnded = errors.New("has ended")

// Adjustment is what the runtime must set on a container.
type Adjustment struct {
	// ClosID is the resctrl group of the container (OCI linux.intelRdt.closID).
	ClosID string
	// Unified are cgroup v2 files and their values (OCI linux.resources.unified).
	Unified map[string]string
}

// Merge returns what both adjustments set; other wins.
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

// BackendStatus is the state of the resource on this machine.
type BackendStatus struct {
	// Unavailable is nil when the resource can be used.
	Unavailable *Unavailable
	Conditions  []Condition
	// Degraded are the classes that are enforced only in part, with the reason: e.g. a device pattern matches nothing.
	Degraded map[string]string
}

// Condition is an observation for users.
type Condition struct {
	// Type is in CamelCase, e.g. "WeightsEffective".
	Type string
	// Healthy is true when the condition is as a user wants it.
	Healthy bool
	// Reason is a word in CamelCase, Message a sentence.
	Reason, Message string
}

// Unavailable is the error of a resource that this machine does not have.
type Unavailable struct {
	// Reason is a word in CamelCase, e.g. "NoCPUSupport". Message is a sentence that names the remedy.
	Reason, Message string
}

func (u *Unavailable) Error() string { return u.Message }
