// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodetest has a classes.Backend for tests of the packages that call one. The backend keeps classes in memory, and fails on
// demand.
package nodetest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Backend is a classes.Backend that accepts every class. NewBackend makes one.
type Backend struct {
	mu sync.Mutex // guards the fields below
	// classes has the classes of the live configuration.
	classes []string
	// enforced is the class of each target, by ID.
	enforced map[string]string
	// failures has the error of each operation that is to fail. The operations are "check", "apply", "repair", "withdraw",
	// "release", "adjust", "moveThreads", "observe", "measure", "enforce" and "enforce <class>".
	failures map[string]error
	// unavailable is the reason why the machine does not have the resource. It is nil if the machine has it.
	unavailable *classes.Unavailable
	// The keys of the next two maps are operations. `stuck` has the channel on which an operation waits. `reached` has
	// the function that the operation calls before it waits.
	stuck   map[string]<-chan struct{}
	reached map[string]func()
	// before is called at the beginning of each operation. It is nil if there is nothing to call.
	before func()
	// status is what Status and Preview return, together with `unavailable`.
	status   classes.BackendStatus
	values   map[string]map[string]string
	applied  int
	released int
	drift    classes.Drift
	blurred  bool
	// strays has the targets with threads outside of their class. `targets` has "ID class" for each target of MoveThreads.
	strays  map[string]bool
	targets []string
	// used is the usage of each target, by ID.
	used map[string]float64
}

// NewBackend makes a backend without classes.
func NewBackend() *Backend {
	return &Backend{
		enforced: map[string]string{}, strays: map[string]bool{}, failures: map[string]error{}, stuck: map[string]<-chan struct{}{}, reached: map[string]func(){},
		used: map[string]float64{},
	}
}

// SetValues sets the result of Values.
func (b *Backend) SetValues(values map[string]map[string]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.values = values
}

// Values implements classes.Valued.
func (b *Backend) Values() map[string]map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.values
}

// Config names the classes.
type Config struct {
	Names []string
}

// ClassNames is part of classes.BackendConfig.
func (c Config) ClassNames() []string { return c.Names }

// Kind makes a kind of resource. The map `backends` has the backend of each resource, by the resource's name.
func Kind(field string, scopes []classes.Scope, backends map[string]*Backend) classes.Kind {
	return classes.Kind{
		Field: field, Scopes: scopes, Mutable: true, Measures: []classes.Measure{{Name: Used, Help: "Bytes that a class has used."}},
		Parse: func(section *classes.Field, _ classes.Scope) classes.BackendConfig {
			var config Config
			for _, name := range section.Fields("names")["names"].Items() {
				config.Names = append(config.Names, name.Scalar())
			}
			return config
		},
		New: func(resource string, _ classes.Scope) classes.Backend { return backends[resource] },
	}
}

// ClaimedClasses returns the value of Kind.Claims for a kind of resource whose classes can be requested by claims.
func ClaimedClasses() *classes.ClaimedClasses {
	return &classes.ClaimedClasses{Resource: classes.ClaimResource, Config: func(limits map[string]qos.VolumeLimits) (classes.BackendConfig, error) {
		return Config{Names: slices.Sorted(maps.Keys(limits))}, nil
	}}
}

// Fail makes an operation fail, until Fail is called with nil.
func (b *Backend) Fail(operation string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures[operation] = err
}

// Lack sets the reason why the machine does not have the resource. nil means that it has the resource.
func (b *Backend) Lack(why *classes.Unavailable) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unavailable = why
}

// Preset sets the conditions and the degraded classes that Status and Preview return.
func (b *Backend) Preset(status classes.BackendStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status = status
}

// Preview is part of reconcile.Previewer.
func (b *Backend) Preview(context.Context, classes.BackendConfig) (classes.BackendStatus, error) {
	return b.Status(), nil
}

// Stick makes an operation hang, like a blocked system call, until the channel `released` is closed. The operation is "apply", "repair",
// "observe", "observe <ID>", "moveThreads <ID>", "measure", "measure <ID>", "enforce" or "enforce <class>". The returned channel is
// closed when the first call hangs.
func (b *Backend) Stick(operation string, released <-chan struct{}) (reached <-chan struct{}) {
	waits := make(chan struct{})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stuck[operation] = released
	b.reached[operation] = sync.OnceFunc(func() { close(waits) })
	return waits
}

// Before sets a function that is called at the beginning of each call into the machine.
func (b *Backend) Before(do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.before = do
}

// begin calls the function that Before has set.
func (b *Backend) begin() {
	b.mu.Lock()
	before := b.before
	b.mu.Unlock()
	if before != nil {
		before()
	}
}

// wait blocks if Stick was called for the operation.
func (b *Backend) wait(operation string) {
	b.mu.Lock()
	released, reached := b.stuck[operation], b.reached[operation]
	b.mu.Unlock()
	if released != nil {
		reached()
		<-released
	}
}

// Lose takes a target out of its class, as another program may do.
func (b *Backend) Lose(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.enforced, id)
}

// Enforced returns the class of each target that is not in the system default.
func (b *Backend) Enforced() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.enforced)
}

// Live returns the classes that were applied last, and how often classes were applied.
func (b *Backend) Live() ([]string, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.classes), b.applied
}

// Check is part of classes.Backend.
func (b *Backend) Check(context.Context, classes.BackendConfig) error {
	b.begin()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unavailable != nil {
		return b.unavailable
	}
	return b.failures["check"]
}

// Apply is part of classes.Backend.
func (b *Backend) Apply(_ context.Context, config classes.BackendConfig) error {
	b.begin()
	b.wait("apply")
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.failures["apply"]; err != nil {
		return err
	}
	b.classes = config.ClassNames()
	b.applied++
	return nil
}

// Repair is part of classes.Backend. It finds the drift that Damage has set.
func (b *Backend) Repair(context.Context) (classes.Drift, error) {
	b.begin()
	b.wait("repair")
	b.mu.Lock()
	defer b.mu.Unlock()
	drift := b.drift
	b.drift = classes.Drift{}
	return drift, b.failures["repair"]
}

// Damage sets the drift that the next Repair finds.
func (b *Backend) Damage(found classes.Drift) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drift = found
}

// AddStray adds a thread outside of a target's class. For example, a process that the runtime starts later in a
// container has a thread outside of the class.
func (b *Backend) AddStray(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.strays[id] = true
}

// HasStray reports whether a target has threads outside of its class.
func (b *Backend) HasStray(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.strays[id]
}

// Blur sets whether Observe reports the class of each target as unknown.
func (b *Backend) Blur(blurred bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.blurred = blurred
}

// IsStale is part of classes.StoredValueChecker: values that end in "gone" are stale.
func (b *Backend) IsStale(_ classes.Holder, _ string, stored map[string]string) bool {
	return strings.HasSuffix(stored["test.class"], "gone")
}

// MoveThreads is part of classes.ThreadMover.
func (b *Backend) MoveThreads(_ context.Context, class string, targets []classes.Holder) (moved []string, err error) {
	b.begin()
	for _, target := range targets {
		b.wait("moveThreads " + target.ID)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, target := range targets {
		b.targets = append(b.targets, target.ID+" "+class)
		if b.strays[target.ID] && b.failures["moveThreads"] == nil {
			delete(b.strays, target.ID)
			moved = append(moved, target.ID)
		}
	}
	return moved, b.failures["moveThreads"]
}

// MoveNewThreads is part of classes.ThreadMover.
func (b *Backend) MoveNewThreads(ctx context.Context, class string, targets []classes.Holder) (moved []string, err error) {
	return b.MoveThreads(ctx, class, targets)
}

// Targets returns "ID class" for each target of MoveThreads since the last call of Targets.
func (b *Backend) Targets() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	targets := b.targets
	b.targets = nil
	return targets
}

// Withdraw is part of classes.Backend.
func (b *Backend) Withdraw(context.Context) error {
	b.begin()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.classes = nil
	return b.failures["withdraw"]
}

// Release is part of classes.Backend.
func (b *Backend) Release(context.Context, func(string) bool) error {
	b.begin()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.released++
	return b.failures["release"]
}

// Adjust is part of classes.Backend. The returned adjustment lets the runtime write the class into a file "test.class".
func (b *Backend) Adjust(_ classes.Holder, _, to string) (classes.Adjustment, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.failures["adjust"]; err != nil {
		return nil, err
	}
	return classes.Adjustment{{Name: classes.SettingClosID}: "test-" + to, classes.Unified("test.class"): to}, nil
}

// Enforce is part of classes.Backend.
func (b *Backend) Enforce(_ context.Context, target classes.Holder, _, to string) error {
	b.begin()
	b.wait("enforce")
	b.wait("enforce " + to)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, operation := range []string{"enforce", "enforce " + to} {
		if err := b.failures[operation]; err != nil {
			return err
		}
	}

	if to == classes.SystemDefault {
		delete(b.enforced, target.ID)
	} else {
		b.enforced[target.ID] = to
	}

	return nil
}

// Observe is part of classes.Backend.
func (b *Backend) Observe(_ context.Context, target classes.Holder, _ string) (classes.Observation, error) {
	b.begin()
	b.wait("observe")
	b.wait("observe " + target.ID)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.failures["observe"]; err != nil {
		return classes.Observation{}, err
	}
	return classes.Observation{Class: b.enforced[target.ID], Known: !b.blurred}, nil
}

// Status is part of classes.Backend.
func (b *Backend) Status() classes.BackendStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	return classes.BackendStatus{Unavailable: b.unavailable, Conditions: b.status.Conditions, Degraded: b.status.Degraded}
}
