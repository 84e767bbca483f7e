// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package blockio is the backend that enforces classes of block I/O. It uses the io controller of cgroup v2 or the
// blkio controller of cgroup v1. Its configuration has the format of goresctrl.
package blockio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// Kind returns the kind that class files configure in the field "blockio". All kinds of block I/O on a node share their cgroups.
func Kind(cgroups *ioapply.Cgroups) classes.Kind {
	return classes.Kind{
		Field:   "blockio",
		Scopes:  []classes.Scope{classes.ContainerScope, classes.PodScope},
		Single:  true,
		Mutable: true,
		Parse:   classes.InAnyScope(ParseConfig),
		New: func(resource string, scope classes.Scope) classes.Backend {
			b := &Backend{cgroups: cgroups, resource: resource, scope: scope, log: cgroups.Log.With("resource", resource)}
			b.live.Store(&snapshot{})
			return b
		},
		Measures: measures(),
	}
}

// Backend enforces the classes of one resource. Its methods read a snapshot without a lock, because Apply replaces the
// snapshot as a whole.
type Backend struct {
	cgroups  *ioapply.Cgroups
	resource string
	scope    classes.Scope
	log      *slog.Logger
	live     atomic.Pointer[snapshot]
	// `replacing` is held while `live` is replaced, so that no replacement is lost. Hooks do not take this lock.
	replacing sync.Mutex
	// devicesGone is true when Apply has found that the machine lost disks for which containers have values. Repair
	// reports this and sets devicesGone to false.
	devicesGone atomic.Bool
	// unavailable is the error of the last inspection if this machine does not have the resource, e.g. because it has
	// no io controller. Otherwise it is nil.
	unavailable atomic.Pointer[classes.Unavailable]
}

// Check implements classes.Backend. If the machine has no io controller, the error is a *classes.Unavailable.
func (b *Backend) Check(_ context.Context, config classes.BackendConfig) error {
	_, err := b.resolve(config)
	return err
}

// Preview returns the status that the backend would report if `config` were the live configuration.
func (b *Backend) Preview(_ context.Context, config classes.BackendConfig) (classes.BackendStatus, error) {
	s, err := b.resolve(config)
	if err != nil {
		return classes.BackendStatus{}, err
	}
	return s.status, nil
}

// Apply implements classes.Backend. It resolves device patterns to disks, so that the hooks of containers need not do so.
func (b *Backend) Apply(_ context.Context, config classes.BackendConfig) error {
	next, err := b.resolve(config)
	if err != nil {
		return err
	}
	if _, err := b.cgroups.Costs.Set(b.resource, &next.machine, next.costs); err != nil {
		return err
	}

	b.goLive(func(now *snapshot) *snapshot {
		if now.config != nil && b.loses(now, next) {
			b.devicesGone.Store(true)
		}
		return next.inherit(now)
	})
	if b.scope == classes.PodScope {
		b.cgroups.Add(b.resource, b)
	}
	holdings, _ := b.cgroups.Holdings("")
	b.cgroups.Records.ExpectAll(holdings, b.resource, next.valuesOf)
	for class, reason := range next.status.Degraded {
		b.log.Warn("a class is enforced only in part", "class", class, "reason", reason)
	}
	return nil
}

// goLive passes the live snapshot to `next`, and makes the result the live snapshot. It does no I/O.
func (b *Backend) goLive(next func(now *snapshot) *snapshot) {
	b.replacing.Lock()
	defer b.replacing.Unlock()

	b.live.Store(next(b.live.Load()))
}

func (b *Backend) resolve(config classes.BackendConfig) (*snapshot, error) {
	own, ok := config.(*Config)
	if !ok {
		return nil, fmt.Errorf("configuration is a %T, not a %T", config, own)
	}

	s, err := newSnapshot(b.cgroups, b.scope, own)
	var unavailable *classes.Unavailable
	errors.As(err, &unavailable)
	b.unavailable.Store(unavailable)
	return s, err
}

// Release implements classes.Backend. It changes only the snapshot, because no cgroup has the values of a class that is
// not in use.
func (b *Backend) Release(_ context.Context, inUse func(class string) bool) error {
	used := map[string]bool{}
	for class := range b.live.Load().classes {
		used[class] = inUse(class) // inUse may wait for a lock
	}

	b.goLive(func(now *snapshot) *snapshot {
		return now.released(func(class string) bool {
			isUsed, asked := used[class]
			return isUsed || !asked
		})
	})
	return nil
}

// Withdraw implements classes.Backend. It does not change the cgroups of containers, which keep their values. It
// restores the parameters of iocost.
func (b *Backend) Withdraw(context.Context) error {
	previous := b.live.Load()
	next, err := b.resolve(&Config{})
	if err != nil { // the machine cannot be inspected now
		next = &snapshot{config: &Config{}, machine: previous.machine, classes: map[string]liveClass{}}
	}
	if _, err := b.cgroups.Costs.Set(b.resource, &next.machine, nil); err != nil {
		return err
	}

	b.goLive(next.inherit)
	b.unavailable.Store(nil)
	return nil
}

// Adjust implements classes.Backend. If the plugin writes the values itself, the adjustment is empty. If the runtime
// writes them, the adjustment has the texts for io.max and the weight files, with one line for each device. It also
// clears values that were applied to the container earlier and that the class does not have.
func (b *Backend) Adjust(target classes.Holder, from, to string) (classes.Adjustment, error) {
	s := b.live.Load()
	wanted, err := s.valuesOf(to)
	if err != nil || !s.byRuntime(b.scope) {
		return nil, err
	}

	before := b.cgroups.Records.Get(target).Settings().Merge(s.classes[from].values)
	change := before.ChangeTo(wanted)
	files := s.neutral(change)
	maps.Copy(files, iocgroup.Texts(iocgroup.Unified{}.Writes(s.settable(change))))
	return classes.UnifiedFiles(files), nil
}

// Record implements classes.Recorder.
func (b *Backend) Record(target classes.Holder, to string) {
	s := b.live.Load()
	if wanted, err := s.valuesOf(to); err == nil && s.byRuntime(b.scope) {
		b.cgroups.Records.Expect(target, to, wanted)
	}
}

// Remember implements classes.Rememberer.
func (b *Backend) Remember(memory classes.Memory) error {
	return errors.Join(b.cgroups.Records.Remember(memory), b.cgroups.Costs.Remember(memory))
}

var (
	_ classes.Recorder   = (*Backend)(nil)
	_ classes.Rememberer = (*Backend)(nil)
	_ classes.Sharer     = (*Backend)(nil)
)

// Status implements classes.Backend.
func (b *Backend) Status() classes.BackendStatus {
	status := b.live.Load().status
	status.Unavailable = b.unavailable.Load()
	return status
}

// Values implements classes.Valued. It returns the cgroup files of each offered class, with their texts.
func (b *Backend) Values() map[string]map[string]string {
	s := b.live.Load()
	values := map[string]map[string]string{}
	for _, name := range s.offered() {
		values[name] = iocgroup.Texts(iocgroup.LayoutOf(s.machine.Version).Writes(s.classes[name].values))
	}
	return values
}
