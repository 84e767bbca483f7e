// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// FS is what the backend needs of the host; paths are the host's own.
type FS interface {
	ReadFile(path string) ([]byte, error)
	// WriteFile is one write(2) to an existing file.
	WriteFile(path string, data []byte) error
	ReadDir(path string) ([]string, error)
	Readlink(path string) (string, error)
	Glob(pattern string) ([]string, error)
	BlockDevice(path string) (major, minor uint32, err error)
}

// Tree finds cgroups; *cgroup.Tree is one.
type Tree interface {
	// IORoot is where the hierarchy with the io controller is mounted, and its version.
	IORoot() (dir string, version int, err error)
	// Unified says whether runtimes take values for cgroup v2 files.
	Unified() bool
	// IODir is where the io controller's files of a target are.
	IODir(target classes.Holder) (dir string, version int, err error)
}

// Options are what the backends of a kind work on.
type Options struct {
	FS   FS
	Tree Tree
	// Log is slog.Default() if it is nil.
	Log *slog.Logger
}

// Kind describes resources with a "blockio" section in class files.
func Kind(opts Options) classes.Kind {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	return classes.Kind{
		Field:   "blockio",
		Scopes:  []classes.Scope{classes.ContainerScope, classes.PodScope},
		Single:  true,
		Mutable: true,
		Parse:   ParseConfig,
		New: func(resource string, scope classes.Scope) classes.Backend {
			b := &Backend{opts: opts, scope: scope, log: opts.Log.With("resource", resource)}
			b.live.Store(&snapshot{})
			return b
		},
	}
}

// Backend enforces the classes of one resource. Its hooks take no lock: what they need is in a snapshot that Apply replaces.
type Backend struct {
	opts  Options
	scope classes.Scope
	log   *slog.Logger
	live  atomic.Pointer[snapshot]
	// replacing is held while live is replaced, which hooks do not wait for.
	replacing sync.Mutex
	// gone says that an Apply has found disks gone that containers may have values of.
	gone atomic.Bool
	// unavailable is why the last Check or Apply found no io controller.
	unavailable atomic.Pointer[classes.Unavailable]
}

// Check implements classes.Backend. The error is a *classes.Unavailable without an io controller.
func (b *Backend) Check(_ context.Context, config classes.BackendConfig) error {
	_, err := b.resolve(config)
	return err
}

// Preview is the status that a configuration would have as the live one.
func (b *Backend) Preview(_ context.Context, config classes.BackendConfig) (classes.BackendStatus, error) {
	s, err := b.resolve(config)
	if err != nil {
		return classes.BackendStatus{}, err
	}
	return s.status, nil
}

// Apply implements classes.Backend. Devices are looked up now, not when containers are created.
func (b *Backend) Apply(_ context.Context, config classes.BackendConfig) error {
	next, err := b.resolve(config)
	if err != nil {
		return err
	}
	b.goLive(func(now *snapshot) *snapshot {
		if now.config != nil && now.loses(next) {
			b.gone.Store(true) // for Repair to tell
		}
		return next.inherit(now)
	})
	for class, reason := range next.status.Degraded {
		b.log.Warn("a class is enforced in part only", "class", class, "reason", reason)
	}
	return nil
}

// goLive replaces what is live by what is made of it, in memory only.
func (b *Backend) goLive(next func(now *snapshot) *snapshot) {
	b.replacing.Lock()
	defer b.replacing.Unlock()
	s := next(b.live.Load())
	s.named = s.touched()
	b.live.Store(s)
}

func (b *Backend) resolve(config classes.BackendConfig) (*snapshot, error) {
	own, ok := config.(*Config)
	if !ok {
		return nil, fmt.Errorf("configuration is a %T, not one of blockio", config)
	}
	s, err := newSnapshot(b.opts, b.scope, own)
	var unavailable *classes.Unavailable
	errors.As(err, &unavailable)
	b.unavailable.Store(unavailable)
	return s, err
}

// Release implements classes.Backend. It touches no cgroup: those of gone containers are gone with them.
func (b *Backend) Release(_ context.Context, inUse func(class string) bool) error {
	used := map[string]bool{}
	for class := range b.live.Load().classes {
		used[class] = inUse(class) // which may wait for a lock
	}
	b.goLive(func(now *snapshot) *snapshot {
		return now.released(func(class string) bool {
			is, asked := used[class]
			return is || !asked
		})
	})
	return nil
}

// Adjust implements classes.Backend: io.max and the weights, one line a device, for containers in cgroup v2.
func (b *Backend) Adjust(from, to string) (classes.Adjustment, error) {
	s := b.live.Load()
	if live, ok := s.classes[to]; ok && from == classes.SystemDefault {
		return live.creation, nil
	}
	change, _, err := s.change(from, to)
	if err != nil || !s.byRuntime(b.scope) {
		return classes.Adjustment{}, err
	}
	text := unifiedMap(s.settable(change))
	return classes.Adjustment{Unified: text}.Merge(classes.Adjustment{Unified: s.machine.idle(change, text)}), nil
}

// Status implements classes.Backend.
func (b *Backend) Status() classes.BackendStatus {
	status := b.live.Load().status
	status.Unavailable = b.unavailable.Load()
	return status
}

// Effective returns what the classes that are offered come to on this machine: class by name, its files with their text.
func (b *Backend) Effective() map[string]map[string]string {
	s := b.live.Load()
	effective := map[string]map[string]string{}
	for name, live := range s.classes {
		if !live.offered {
			continue
		}
		files := map[string]string{}
		for _, write := range layoutOf(s.machine.version).writes(live.values) {
			files[write.file] = strings.TrimPrefix(files[write.file]+"\n"+write.data, "\n")
		}
		effective[name] = files
	}
	return effective
}

// valuesOf a class that is live, offered or not.
func (s *snapshot) valuesOf(name string) (values, error) {
	if name == classes.SystemDefault {
		return values{}, nil
	}
	live, ok := s.classes[name]
	if !ok {
		return values{}, fmt.Errorf("%w %q; there are %s", classes.ErrUnknownClass, name, cmp.Or(strings.Join(s.offered(), ", "), "none"))
	}
	return live.values, nil
}

func (s *snapshot) offered() []string {
	var names []string
	for name, live := range s.classes {
		if live.offered {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
