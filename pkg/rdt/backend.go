// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// ErrNotOffered is for a class that the live configuration does not have.
var ErrNotOffered = errors.New("class is not offered")

// Backend is the classes.Backend of resctrl.
type Backend struct {
	host    FS
	threads Threads
	mount   bool
	log     *slog.Logger

	// mu serializes what writes groups or decides on that, and guards the fields below.
	mu sync.Mutex
	// root is what the root group had of the values that a configuration has changed, to be restored when none does so
	// any more. A restart forgets it: what is there then counts as the original.
	root Schemata

	// live is replaced whole, so that hooks never wait for a change of configuration.
	live atomic.Pointer[live]
}

// live is what the backend knows since its last change. It is immutable.
type live struct {
	// config is what was applied; nil before the first Apply.
	config *Config
	// point is where resctrl is mounted; empty before the first Apply. mount is how.
	point string
	mount resctrlMount
	// domains are the root group's schemata, of which the IDs count: all caches that there are.
	domains Schemata
	// offered classes, and draining ones: those that are gone from the configuration, or were in one of a former run, but have a
	// group still.
	offered, draining map[string]bool
	// effective are the schemata of our groups, those that drain included, and, when configured, the root's, as the kernel has them.
	effective map[string]Schemata
	status    classes.BackendStatus
}

// New makes a backend. It does no I/O.
func New(opts Options) *Backend {
	log := opts.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	b := &Backend{host: opts.FS, threads: opts.Threads, mount: opts.MountResctrl, log: log}
	b.live.Store(&live{})
	return b
}

// asConfig takes back what Kind.Parse has made.
func asConfig(config classes.BackendConfig) (*Config, error) {
	c, ok := config.(*Config)
	if !ok {
		return nil, fmt.Errorf("configuration is a %T, not one of RDT", config)
	}
	return c, nil
}

// Check implements classes.Backend. When resctrl is not mounted, and Apply would mount it, the machine cannot be looked
// at yet: then it finds nothing, and Apply does.
func (b *Backend) Check(_ context.Context, config classes.BackendConfig) error {
	c, err := asConfig(config)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	mount, err := locate(b.host)
	if err == nil {
		_, _, _, err = b.prepare(c, mount)
	}
	if unavailable := (*classes.Unavailable)(nil); errors.As(err, &unavailable) && unavailable.Reason == NotMounted && b.mount {
		return nil
	}
	return err
}

// prepare reads the machine and settles what the configuration means on it.
func (b *Backend) prepare(config *Config, mount resctrlMount) (*machine, *Resolution, []string, error) {
	m, err := readMachine(b.host, mount)
	if err != nil {
		return nil, nil, nil, err
	}
	if mount.has("ro") {
		return nil, nil, nil, &classes.Unavailable{Reason: ReadOnly,
			Message: fmt.Sprintf("resctrl is mounted read-only at %s; run: mount -o remount,rw %s", mount.point, mount.point)}
	}
	resolution, reclaim, err := preflight(config, m, b.isDraining)
	return m, resolution, reclaim, orWrongMount(err, m.info)
}

// orWrongMount is for configurations in which nothing is wrong but the unit of memory bandwidth: they are right for
// machines that have resctrl mounted otherwise.
func orWrongMount(err error, info Info) error {
	problems := classes.SplitErrors(err)
	if slices.ContainsFunc(problems, func(err error) bool { return !errors.Is(err, ErrBandwidthUnit) }) || len(problems) == 0 {
		return err
	}
	return errors.Join(&classes.Unavailable{Reason: WrongMountOptions, Message: unitMessage(info)}, err)
}

func unitMessage(info Info) string {
	if info.Bandwidth.Unit == MBps {
		return "resctrl is mounted with mba_MBps, but the configuration has memory bandwidth in per cent only; mount it without mba_MBps"
	}
	return "resctrl is mounted without mba_MBps, but the configuration has memory bandwidth in MBps only; mount it with -o mba_MBps"
}

func (b *Backend) isDraining(group string) bool {
	l := b.live.Load()
	return l.offered[classOf(group)] || l.draining[classOf(group)]
}

// Apply implements classes.Backend.
func (b *Backend) Apply(_ context.Context, config classes.BackendConfig) error {
	c, err := asConfig(config)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	err = b.apply(c, nil)
	if err != nil {
		b.live.Store(b.live.Load().refused(err))
	}
	return err
}

// apply makes config the live one. Groups in kept, with their schemata, are there afterwards, too.
func (b *Backend) apply(config *Config, kept map[string]Schemata) error {
	mount, err := b.mounted(config)
	if err != nil {
		return err
	}
	m, resolution, reclaim, err := b.prepare(config, mount)
	if err != nil {
		return err
	}
	wanted := m.info.rounded(resolution.Groups)
	_, rootConfigured := wanted[rootGroup]
	if !rootConfigured && b.root != nil {
		wanted[rootGroup] = b.root
	}
	maps.Copy(wanted, kept)
	t := tree{b.host, mount.point}
	before := m.schemata(func(name string) bool { return name == rootGroup || isOurs(name) })
	ops := make([]Op, 0, len(reclaim))
	for _, name := range reclaim {
		ops = append(ops, Op{Kind: Remove, Group: name})
	}
	ops = append(ops, Plan(before, wanted, m.info)...)
	var effective map[string]Schemata
	err = t.transact(ops, before, func() error {
		effective, err = t.readBack(wanted, m.info)
		return err
	})
	if err != nil {
		return err
	}
	switch {
	case !rootConfigured:
		b.root = nil
		delete(effective, rootGroup) // its values are not ours any more
	case b.root == nil:
		b.root = before[rootGroup].restrictedTo(wanted[rootGroup])
	}
	b.settle(config, resolution, m, t, effective)
	return nil
}

// mounted finds resctrl, or mounts it.
func (b *Backend) mounted(config *Config) (resctrlMount, error) {
	mount, err := locate(b.host)
	if unavailable := (*classes.Unavailable)(nil); !errors.As(err, &unavailable) || unavailable.Reason != NotMounted || !b.mount {
		return mount, err
	}
	if err := mountFor(b.host, config); err != nil {
		return resctrlMount{}, err
	}
	b.log.Info("mounted resctrl", "path", DefaultMountPoint)
	return locate(b.host)
}

// settle makes an applied configuration the live one. Groups of ours that no class has drain, also those of a former run: somebody may be on
// the way to them.
func (b *Backend) settle(config *Config, resolution *Resolution, m *machine, t tree, effective map[string]Schemata) {
	next := &live{
		config: config, point: t.point, mount: m.mount, domains: m.groups[rootGroup].schemata,
		offered: map[string]bool{}, draining: map[string]bool{}, effective: effective,
	}
	for _, class := range config.ClassNames() {
		next.offered[class] = true
	}
	for name := range effective {
		if _, configured := resolution.Groups[name]; !configured && name != rootGroup {
			next.draining[classOf(name)] = true // kept
		}
	}
	for _, name := range m.surplus(resolution.Groups) {
		if _, kept := effective[name]; kept || !t.exists(name) { // or removed for its CLOSID
			continue
		}
		next.draining[classOf(name)] = true
		next.effective[name] = m.groups[name].schemata
	}
	next.status = describeStatus(config, resolution, m, next)
	b.live.Store(next)
	b.log.Info("applied RDT configuration", "classes", len(next.offered), "draining", len(next.draining))
}

// Release implements classes.Backend. A group that still has tasks stays, whoever they are: removing it would move them to
// the root group.
func (b *Backend) Release(_ context.Context, inUse func(class string) bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.live.Load()
	if len(now.draining) == 0 {
		return nil
	}
	t := tree{b.host, now.point}
	kept := map[string]bool{}
	var problems []error
	for _, class := range slices.Sorted(maps.Keys(now.draining)) {
		done, err := t.release(GroupOf(class), inUse(class))
		if err != nil {
			problems = append(problems, err)
		}
		if !done {
			kept[class] = true
		}
	}
	b.live.Store(now.withDraining(kept))
	return errors.Join(problems...)
}

// Adjust implements classes.Backend.
//
// Nothing new gets into a class that drains; what was in it can be taken back there, when a change fails.
func (b *Backend) Adjust(from, to string) (classes.Adjustment, error) {
	if to == classes.SystemDefault {
		return classes.Adjustment{}, nil
	}
	now := b.live.Load()
	if back := now.draining[to] && from != classes.SystemDefault; !now.offered[to] && !back {
		reason := "there are " + names(now.offered)
		if now.draining[to] {
			reason = "it was removed, and only stays for what runs in it; " + reason
		}
		return classes.Adjustment{}, fmt.Errorf("RDT class %q: %w; %s", to, ErrNotOffered, reason)
	}
	return classes.Adjustment{ClosID: GroupOf(to)}, nil
}

// Status implements classes.Backend.
func (b *Backend) Status() classes.BackendStatus { return b.live.Load().status }

// Schemata are the values of each class as the kernel has them, one line a schema; those of the system default are there
// when the configuration sets them.
func (b *Backend) Schemata() map[string]string {
	texts := map[string]string{}
	for name, schemata := range b.live.Load().effective {
		class := classes.SystemDefault
		if name != rootGroup {
			class = classOf(name)
		}
		texts[class] = schemata.String()
	}
	return texts
}
