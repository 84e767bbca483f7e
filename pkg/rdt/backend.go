// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rdt assigns containers to classes of cache and memory bandwidth, through the kernel's resctrl filesystem.
//
// Backend.mu is taken before the locks of pkg/rdt/monitoring, and inside.mu is taken alone. Adjust, Enforce and Observe take neither,
// so hooks never wait for a change of the configuration. They read the applied state, which is replaced as a whole.
package rdt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/monitoring"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// ErrNotOffered is the error for a class that the live configuration does not have.
var ErrNotOffered = errors.New("class is not offered")

// Backend is the classes.Backend of resctrl.
type Backend struct {
	host    resctrl.FS
	threads Threads
	mount   bool
	log     *slog.Logger

	// mu serializes the calls that change resctrl groups. It guards root, devices, memory, faults and freed.
	mu sync.Mutex
	// root has the original values of the root group. The backend restores them when the configuration no longer sets the
	// root group. After a restart of this program, the values that the kernel then has count as the original values.
	root resctrl.Schemata

	// `devices` has the values of device traffic before a configuration set them. It is nil if no configuration has set
	// them.
	devices *deviceChange
	// `memory` saves `devices`. It is nil if nothing is saved.
	memory classes.Memory

	// faults has the values of memory bandwidth that were written under the live configuration and mount, and read back
	// as other values. They are not written again.
	faults []*faultError

	// freed has the groups that were removed for a configuration which the kernel then refused, because it had not freed their
	// RMIDs yet. Repair does not create them again, so that the next attempt finds the RMIDs free.
	freed []string

	// live is the applied state. A change of the configuration replaces the whole state, so NRI hooks never wait for the change.
	live atomic.Pointer[live]

	// inside has the threads that MoveNewThreads does not check.
	inside inside

	// Containers measures what classes and containers use.
	*monitoring.Containers
}

var (
	_ classes.Rotator    = (*Backend)(nil)
	_ classes.Rememberer = (*Backend)(nil)
	_ classes.ClassMeter = (*Backend)(nil)
)

// New returns a backend. It does no I/O.
func New(opts Options) *Backend {
	log := opts.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}

	now := opts.Now
	if now == nil {
		now = time.Now
	}

	b := &Backend{host: opts.FS, threads: opts.Threads, mount: opts.MountResctrl, log: log}
	b.Containers = monitoring.New(b.threadsOf, now, log)
	b.live.Store(&live{})
	return b
}

// Check implements classes.Backend. If Apply would have to mount resctrl first, Check cannot check the machine, and
// returns no error.
func (b *Backend) Check(ctx context.Context, config classes.BackendConfig) error {
	_, err := b.Preview(ctx, config)
	return err
}

// Preview returns the status that a configuration would have when applied. If Apply would have to mount resctrl first, the status
// reports that the machine was not checked.
func (b *Backend) Preview(_ context.Context, config classes.BackendConfig) (classes.BackendStatus, error) {
	c, err := asConfig(config)
	if err != nil {
		return classes.BackendStatus{}, err
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	t, err := b.find()
	if b.canMount(err) {
		return classes.BackendStatus{Conditions: []classes.Condition{{Type: ConditionMounted, Reason: string(resctrl.NotMounted),
			Message: "resctrl is not mounted yet, so masks, bandwidth and CLOSIDs were not checked; " +
				"qos-nri-plugin mounts it when it starts; to mount it now, run: mount -t resctrl resctrl " + resctrl.DefaultMountPoint}}}, nil
	}
	if err != nil {
		return classes.BackendStatus{}, asUnavailable(err)
	}

	next, _, err := prepare(c, t, nil, b.devices)
	if err != nil {
		return classes.BackendStatus{}, err
	}
	next.effective = rounded(next.machine.info, next.resolution.Groups)
	return next.status(), nil
}

func asConfig(config classes.BackendConfig) (*Config, error) {
	c, ok := config.(*Config)
	if !ok {
		return nil, fmt.Errorf("configuration is a %T, not an RDT configuration", config)
	}
	return c, nil
}

// canMount reports whether the options allow the backend to mount resctrl, and `err` means that resctrl is not mounted.
func (b *Backend) canMount(err error) bool { return b.mount && hasReason(err, resctrl.NotMounted) }

// prepare resolves the configuration and checks it against the machine. `reclaim` has the names of the existing groups
// that must be removed first, because the new groups need the CLOSIDs of these groups. The values in `faults` are left
// out. `devices` has the values of device traffic before a configuration set them.
func prepare(config *Config, t resctrl.Tree, faults []*faultError, devices *deviceChange) (next *live, reclaim []string, err error) {
	m, err := readMachine(t)
	if err != nil {
		return nil, nil, err
	}
	if err := t.Writable(); err != nil {
		return nil, nil, asUnavailable(err)
	}

	resolution, err := Resolve(config, m.info)
	if err != nil {
		return nil, nil, orWrongMount(err, m.info)
	}
	for _, fault := range faults {
		resolution.leave(fault)
	}
	switch {
	case resolution.Devices != nil:
		m.info = m.info.WithDeviceTraffic(m.info.Schemas(resctrl.L3)[0], resolution.Devices)
	case devices.on(m.info) != nil:
		m.info = m.info.WithDeviceTraffic(devices.schema, devices.back(m.info))
	}
	reclaim, err = m.reclaim(resolution.Groups)
	if err = errors.Join(err, m.exclusiveOverlaps(resolution.Groups)); err != nil {
		return nil, nil, err
	}
	return &live{config: config, machine: m, resolution: *resolution, offered: config.ClassNames()}, reclaim, nil
}

// Apply implements classes.Backend.
func (b *Backend) Apply(_ context.Context, config classes.BackendConfig) error {
	c, err := asConfig(config)
	if err != nil {
		return err
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = nil
	if err = b.apply(c, nil); err != nil {
		b.live.Store(b.live.Load().refused(err))
	}
	return err
}

// Withdraw implements classes.Backend. It restores the original values of the root group.
func (b *Backend) Withdraw(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.live.Load().machine == nil {
		return nil
	}
	return b.apply(&Config{}, nil)
}

// apply makes `config` the live configuration. It also restores the groups in `kept`, which are not in `config`, e.g.
// those of draining classes.
func (b *Backend) apply(config *Config, kept map[string]resctrl.Schemata) error {
	t, err := b.mounted(config)
	if err != nil {
		return err
	}
	next, reclaim, err := prepare(config, t, b.faults, b.devices)
	if err != nil {
		return err
	}

	before, wanted := next.machine.configurable(), rounded(next.machine.info, next.resolution.Groups)
	_, rootConfigured := wanted[resctrl.Root]
	if !rootConfigured && b.root != nil {
		wanted[resctrl.Root] = b.root.RestrictedTo(before[resctrl.Root])
	}
	for name, schemata := range kept {
		wanted[name] = schemata.For(before[resctrl.Root])
	}

	earlier := b.devices
	devices, err := b.deviceChange(t, next)
	if err != nil {
		return err
	}
	var ops []Op
	for _, name := range reclaim {
		ops = append(ops, Op{Kind: Remove, Group: name})
	}
	ops = append(ops, devices.do()...) // after the removals, because device traffic needs a CLOSID
	ops = append(ops, Plan(before, wanted, next.machine.info)...)

	b.MakeRoom(next.machine.info, len(next.machine.groups)-len(reclaim)+created(ops))
	next.effective, err = transact(t, ops, before, wanted, devices, next.machine.info)
	b.freed = nil
	if err != nil && !errors.Is(err, ErrRollback) {
		b.setDevices(earlier) // another program may set device traffic before the next configuration does
	}
	if errors.Is(err, syscall.EBUSY) && errors.Is(err, ErrRollback) {
		b.freed = reclaim
		err = fmt.Errorf("%w; the kernel frees the RMIDs of removed groups after some seconds, and the class files are then applied again", err)
	}
	if fault := (*faultError)(nil); errors.As(err, &fault) && !errors.Is(err, ErrRollback) && next.resolution.has(fault) {
		b.faults = append(b.faults, fault)
		return b.apply(config, kept)
	}
	if err != nil {
		return err
	}
	for _, op := range ops {
		if op.Kind == Create {
			b.Created(t, config.monitored, op.Group)
		}
	}

	if next.resolution.Devices == nil {
		b.setDevices(nil)
	}
	original := b.root
	b.root = nil
	if rootConfigured {
		b.root = before[resctrl.Root].RestrictedTo(wanted[resctrl.Root])
		maps.Copy(b.root, original) // so `before` gives only the values of caches that have appeared with their CPUs
	} else {
		delete(next.effective, resctrl.Root) // the root group is not managed any more
	}
	b.activate(next, reclaim)
	return nil
}

// created returns how many groups the operations create.
func created(ops []Op) (n int) {
	for _, op := range ops {
		if op.Kind == Create {
			n++
		}
	}
	return n
}

// mounted returns the mounted resctrl. If resctrl is not mounted and the options allow it, mounted mounts it first.
func (b *Backend) mounted(config *Config) (resctrl.Tree, error) {
	t, err := b.find()
	if !b.canMount(err) {
		return t, asUnavailable(err)
	}

	if err := mountFor(b.host, config); err != nil {
		return resctrl.Tree{}, err
	}
	b.remounted()
	b.log.Info("mounted resctrl", "path", resctrl.DefaultMountPoint)
	t, err = b.find()
	return t, asUnavailable(err)
}

// remounted forgets what depends on the mount: a mount resets the root group, and its options choose the unit of memory bandwidth.
func (b *Backend) remounted() {
	b.root, b.faults = nil, nil
	b.setDevices(nil)
	b.Mounted()
}

// find returns the mounted resctrl. If its mount options are unknown, find assumes that they have not changed.
func (b *Backend) find() (resctrl.Tree, error) {
	t, err := resctrl.Find(b.host)
	if now := b.live.Load().machine; err == nil && t.Options() == nil && now != nil && now.MountPoint() == t.MountPoint() {
		t = now.Tree
	}
	return t, err
}

// activate makes an applied configuration the live one. A class that is not configured, but has a managed group, is
// recorded as draining. This includes classes of a former run of this program, because a container may be about to
// start in the group of such a class.
func (b *Backend) activate(next *live, removed []string) {
	for _, name := range next.machine.surplus(next.resolution.Groups) {
		if next.effective[name] == nil && !slices.Contains(removed, name) {
			next.effective[name] = next.machine.groups[name].Schemata
		}
	}
	for _, name := range slices.Sorted(maps.Keys(next.effective)) {
		if _, configured := next.resolution.Groups[name]; !configured {
			next.draining = append(next.draining, groups.ClassOf(name))
		}
	}
	next.memory = memoryBandwidth(b.host)
	b.live.Store(next)
	b.Use(monitoring.Machine{Tree: next.machine.Tree, Info: next.machine.info, Selection: next.config.monitored, Offered: next.offered})
	b.log.Info("applied RDT configuration", "classes", len(next.offered), "draining", len(next.draining))
}

// Release implements classes.Backend. It keeps a group that has running tasks, because removing the group would move
// these tasks to the root group.
func (b *Backend) Release(_ context.Context, inUse func(class string) bool) error {
	b.inside.forget(inUse)
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.live.Load()
	if len(now.draining) == 0 {
		return nil
	}

	next := *now
	next.draining, next.effective = nil, maps.Clone(now.effective)
	var problems []error
	for _, class := range now.draining {
		removed := false
		if !inUse(class) {
			var err error
			removed, err = now.machine.RemoveUnused(groups.Of(class))
			problems = append(problems, err)
		}
		if removed {
			delete(next.effective, groups.Of(class))
		} else {
			next.draining = append(next.draining, class)
		}
	}
	b.live.Store(&next)
	return errors.Join(problems...)
}

// Adjust implements classes.Backend. It accepts draining classes: after a failed change of class, and after a restart, a container must
// get back its former class, which may be draining.
func (b *Backend) Adjust(_ classes.Holder, _, to string) (classes.Adjustment, error) {
	now := b.live.Load()
	switch {
	case to == classes.SystemDefault:
		return nil, nil //nolint:nilnil // the system default sets nothing
	case slices.Contains(now.offered, to), slices.Contains(now.draining, to):
		return classes.Adjustment{{Name: classes.SettingClosID}: groups.Of(to)}, nil
	}

	reason := "there are none"
	if len(now.offered) > 0 {
		reason = "there are " + strings.Join(now.offered, ", ")
	}
	return nil, fmt.Errorf("RDT class %q: %w; %s", to, ErrNotOffered, reason)
}

// Status implements classes.Backend.
func (b *Backend) Status() classes.BackendStatus {
	status := b.live.Load().status()
	monitored, conditions := b.Containers.Status()
	status.Monitored, status.Conditions = monitored, append(status.Conditions, conditions...)
	return status
}

// Values implements classes.Valued. It returns the lines of the schemata of each class.
func (b *Backend) Values() map[string]map[string]string {
	values := map[string]map[string]string{}
	for name, schemata := range b.live.Load().effective {
		lines := map[string]string{}
		for _, domain := range schemata.Domains() {
			lines[string(domain.Schema)] = schemata.Values(domain.Schema)
		}
		values[strings.TrimPrefix(name, groups.Prefix)] = lines
	}
	return values
}
