// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package linux is the kind of resources whose classes set properties of processes and cgroups of Linux: the OOM score, resource limits,
// the I/O priority, the CPU scheduling policy, and limits of cgroup v2. The runtime sets all of them before the first instruction of a
// container. Afterwards only the values of cgroups change. The backend itself sets the values of pods.
package linux

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"

	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// FS is the part of the host that the backend needs. Paths are paths on the host.
type FS interface {
	ReadFile(path string) ([]byte, error)
	// WriteFile does one write(2) to an existing file.
	WriteFile(path string, data []byte) error
	Glob(pattern string) ([]string, error)
	// IOPriority returns the I/O priority of a process, as ioprio_get(2) does.
	IOPriority(pid int) (int, error)
}

// Tree finds cgroups. *cgroup.Tree implements it.
type Tree interface {
	// Unified reports whether container runtimes accept values for cgroup v2 files.
	Unified() bool
	// UnifiedDir returns the directory with the target's cgroup v2 files.
	UnifiedDir(target classes.Holder) (string, error)
	Threads(target classes.Holder) ([]int, error)
}

// Options has the dependencies of the backends of a Kind.
type Options struct {
	FS   FS
	Tree Tree
	Log  *slog.Logger
}

// Kind returns the kind that class files configure in the field "linux".
func Kind(opts Options) classes.Kind {
	pods := newPodRecords(opts.Log)
	return classes.Kind{
		Field:    "linux",
		Scopes:   []classes.Scope{classes.ContainerScope, classes.PodScope},
		Mutable:  true,
		Parse:    ParseConfig,
		Measures: measures(),
		New: func(resource string, scope classes.Scope) classes.Backend {
			b := &Backend{opts: opts, scope: scope, pods: pods, usage: usageFiles(), log: opts.Log.With("resource", resource)}
			b.live.Store(&snapshot{})
			return b
		},
	}
}

// Backend enforces the classes of one resource.
type Backend struct {
	opts  Options
	scope classes.Scope
	log   *slog.Logger
	live  atomic.Pointer[snapshot]
	// `pods` has the values of pods' cgroups before their classes. All backends of the kind share it.
	pods *podRecords
	// usage has the files that show how properties are used. It does not change.
	usage map[string][]cgroup.UsageFile
	// stalls has the containers at memory.high. A round begins with Repair.
	stalls stalls
}

// snapshot is the live configuration. It is replaced and never modified.
type snapshot struct {
	// `classes` also has removed classes, until Release removes them.
	classes map[string]class
	offered map[string]bool
	// unordered has the disks on which I/O priorities have no effect.
	unordered []string
	status    classes.BackendStatus
}

// class returns the properties of a class. The system default has none.
func (s *snapshot) class(name string) (class, error) {
	c, known := s.classes[name]
	if !known && name != classes.SystemDefault {
		return nil, fmt.Errorf("class %q: %w", name, classes.ErrUnknownClass)
	}
	return c, nil
}

// Check implements classes.Backend.
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

// Apply implements classes.Backend. It changes nothing on the machine.
func (b *Backend) Apply(_ context.Context, config classes.BackendConfig) error {
	next, err := b.resolve(config)
	if err != nil {
		return err
	}
	all := map[string]class{}
	maps.Copy(all, b.live.Load().classes)
	maps.Copy(all, next.classes)
	next.classes = all
	b.live.Store(next)
	for class, reason := range next.status.Degraded {
		b.log.Warn("a class is enforced only in part", "class", class, "reason", reason)
	}
	return nil
}

// Repair implements classes.Backend. It reads the state of the machine again. The classes have no state of their own on
// the machine.
func (b *Backend) Repair(context.Context) (classes.Drift, error) {
	b.stalls.nextRound()
	b.pods.prune(b.hasGroup)
	s := *b.live.Load()
	if s.offered == nil {
		return classes.Drift{}, nil
	}
	offered := maps.Clone(s.classes)
	maps.DeleteFunc(offered, func(name string, _ class) bool { return !s.offered[name] })
	if unavailable := b.unavailable(offered); unavailable != nil {
		return classes.Drift{}, unavailable
	}
	s.unordered = b.opts.disksWithoutPriorities()
	s.status = b.statusOf(offered, s.unordered)
	b.live.Store(&s)
	return classes.Drift{}, nil
}

// Withdraw implements classes.Backend.
func (b *Backend) Withdraw(context.Context) error {
	b.live.Store(&snapshot{classes: b.live.Load().classes})
	return nil
}

// Release implements classes.Backend.
func (b *Backend) Release(_ context.Context, inUse func(class string) bool) error {
	s := *b.live.Load()
	s.classes = maps.Clone(s.classes)
	maps.DeleteFunc(s.classes, func(name string, _ class) bool { return !s.offered[name] && !inUse(name) })
	b.live.Store(&s)
	return nil
}

// Status implements classes.Backend.
func (b *Backend) Status() classes.BackendStatus { return b.live.Load().status }

// Values implements classes.Valued. It leaves out values that depend on the settings of a container.
func (b *Backend) Values() map[string]map[string]string {
	values := map[string]map[string]string{}
	for name, c := range b.live.Load().classes {
		values[name] = map[string]string{}
		for _, p := range c {
			if text, same := p.value.(fixed); same {
				values[name][p.name] = string(text)
			}
		}
	}
	return values
}

// Adjust implements classes.Backend. If the container leaves a class, the adjustment has the values that the container
// had before the class. The runtime sets nothing for pods.
func (b *Backend) Adjust(target classes.Holder, from, to string) (classes.Adjustment, error) {
	s := b.live.Load()
	c, err := s.class(to)
	if err != nil || b.scope == classes.PodScope {
		return nil, err
	}
	adjustment, err := c.adjustment(target.Spec)
	if err != nil {
		return nil, err
	}
	for setting := range s.left(from, to) {
		if _, sets := adjustment[setting]; !sets {
			adjustment[setting] = original(target.Spec, setting)
		}
	}
	return adjustment, nil
}

// left returns the cgroup v2 files that may still have values of the class that a container leaves. If the container
// stays in the system default, the runtime may have stored the values of any class for it.
func (s *snapshot) left(from, to string) map[classes.Setting]bool {
	files := map[classes.Setting]bool{}
	for name, c := range s.classes {
		if name != from && (from != classes.SystemDefault || to != classes.SystemDefault) {
			continue
		}
		for _, p := range c {
			if p.setting.Name == classes.SettingUnified {
				files[p.setting] = true
			}
		}
	}
	return files
}
