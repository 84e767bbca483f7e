// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package volumeio is the backend that enforces classes of volumes. It limits the disks of a volume in the cgroup of the pod.
package volumeio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/iodisks"
)

// Backend enforces classes of volumes. It sets limits for the disks of a volume in the cgroup of the pod.
type Backend struct {
	cgroups  *ioapply.Cgroups
	resource string

	// mu guards the fields below. The backend makes no call into the kernel while it holds mu.
	mu      sync.Mutex
	machine iocgroup.Machine
	classes map[string]class
	// devices maps the ID of a volume to the numbers of its devices.
	devices map[string]string
	// offered has the names of the classes in the live configuration. The field `classes` also has removed classes that are still in use.
	offered     map[string]bool
	unavailable *classes.Unavailable
}

// Kind returns the kind that class files configure in the field "volumeio". All kinds of block I/O on a node share their cgroups.
func Kind(cgroups *ioapply.Cgroups) classes.Kind {
	return classes.Kind{
		Field:  "volumeio",
		Scopes: []classes.Scope{classes.VolumeScope},
		Single: true,
		Parse:  classes.InAnyScope(ParseConfig),
		Claims: claimedClasses(),

		OfVolumes: measures(),
		New: func(resource string, _ classes.Scope) classes.Backend {
			return &Backend{cgroups: cgroups, resource: resource, classes: map[string]class{}, devices: map[string]string{}}
		},
	}
}

func (b *Backend) resolve(config classes.BackendConfig) (*Config, iocgroup.Machine, error) {
	own, ok := config.(*Config)
	if !ok {
		return nil, iocgroup.Machine{}, fmt.Errorf("configuration is a %T, not a %T", config, own)
	}
	m, err := b.inspect()
	return own, m, err
}

// inspect inspects the machine, and records whether classes of volumes are available on it.
func (b *Backend) inspect() (iocgroup.Machine, error) {
	m, err := b.cgroups.Inspect()
	if err == nil && m.Version == 1 {
		err = &classes.Unavailable{Reason: "NoHierarchyInV1", Message: "cgroup v1 does not apply the limits of a pod's cgroup " +
			"to the pod's containers; use cgroup v2"}
	}

	if err == nil && m.CannotLimit {
		err = &classes.Unavailable{Reason: "NoThrottling", Message: iocgroup.NoThrottling}
	}

	var unavailable *classes.Unavailable
	errors.As(err, &unavailable)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unavailable = unavailable
	return m, err
}

// Check implements classes.Backend.
func (b *Backend) Check(_ context.Context, config classes.BackendConfig) error {
	_, _, err := b.resolve(config)
	return err
}

// Apply implements classes.Backend.
func (b *Backend) Apply(_ context.Context, config classes.BackendConfig) error {
	own, m, err := b.resolve(config)
	if err != nil {
		return err
	}

	defer b.cgroups.Add(b.resource, b)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.machine, b.offered = m, map[string]bool{}
	for _, class := range own.classes {
		b.classes[class.name], b.offered[class.name] = class, true
	}
	return nil
}

// Withdraw implements classes.Backend. It changes no cgroup.
func (b *Backend) Withdraw(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.offered, b.unavailable = nil, nil
	return nil
}

// Release implements classes.Backend. A released class may have left limits in cgroups. Repair removes these limits.
func (b *Backend) Release(_ context.Context, inUse func(class string) bool) error {
	b.mu.Lock()
	var unused []string
	for name := range b.classes {
		if !b.offered[name] {
			unused = append(unused, name)
		}
	}
	b.mu.Unlock()

	for _, name := range unused {
		if !inUse(name) { // may wait for a lock
			b.mu.Lock()
			delete(b.classes, name)
			b.mu.Unlock()
		}
	}
	return nil
}

// Adjust implements classes.Backend. The Adjustment is empty, because runtimes write no values to the cgroups of pods.
func (b *Backend) Adjust(_ classes.Holder, _, to string) (classes.Adjustment, error) {
	_, err := b.class(to)
	return nil, err
}

// Status implements classes.Backend.
func (b *Backend) Status() classes.BackendStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	return classes.BackendStatus{Unavailable: b.unavailable}
}

// ShareWith implements classes.Sharer.
func (b *Backend) ShareWith(holdings func(podUID string) []classes.Holding) {
	b.cgroups.ShareWith(holdings)
}

func (b *Backend) class(name string) (class, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	class, known := b.classes[name]
	if !known && name != classes.SystemDefault {
		return class, fmt.Errorf("%w %q", classes.ErrUnknownClass, name)
	}
	return class, nil
}

// Device implements classes.Locator.
func (b *Backend) Device(volumeID string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.devices[volumeID]
}

func (b *Backend) setDevices(volumeID string, disks []iocgroup.Disk) {
	numbers := make([]string, len(disks))
	for i, disk := range disks {
		numbers[i] = disk.Device.String()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.devices[volumeID] = strings.Join(numbers, ",")
}

// forgetDevices removes the devices of volumes that have ended.
func (b *Backend) forgetDevices(holdings []classes.Holding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.devices, func(id, _ string) bool {
		return !slices.ContainsFunc(holdings, func(h classes.Holding) bool { return h.ID == id })
	})
}

// find finds a volume, and checks whether a class may limit its disks.
func (b *Backend) find(f *iodisks.Finder, target classes.Holder, class class) (iodisks.Volume, error) {
	if class.limitsSharedDisks {
		return f.Find(target)
	}
	return f.FindExclusive(target)
}

// inspected returns the machine as it was last inspected. Its version is 0 before the first Apply.
func (b *Backend) inspected() iocgroup.Machine {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.machine
}

func (b *Backend) open(target classes.Holder) (iocgroup.Group, error) {
	return b.cgroups.Open(target, b.inspected())
}

// Enforce implements classes.Backend. It writes the limits of the class for each disk of the volume. If the pod or
// another volume has a lower limit on the same disk, the lower limit applies. For the system default Enforce does
// nothing, because Repair removes limits that no holder needs.
func (b *Backend) Enforce(ctx context.Context, target classes.Holder, _, to string) error {
	if to == classes.SystemDefault {
		return nil
	}
	class, err := b.class(to)
	if err != nil {
		return err
	}
	finder := b.cgroups.Finder(target)
	found, err := b.find(finder, target, class)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("enforce class %q: %w", to, ctx.Err())
	}

	defer b.cgroups.Lock(target)()
	group, err := b.open(target)
	if err != nil {
		return err
	}
	live, _, err := b.cgroups.Look(group, target, nil, b.cgroups.Known)
	if err != nil {
		return fmt.Errorf("read the limits of the pod: %w", err)
	}

	b.setDevices(target.ID, found.Disks)
	applied := b.cgroups.Locate(target, found.Disks)
	change := b.cgroups.Compare(finder, target, b.resource, found.Limit(class.limits), live, applied, ioapply.None)
	if err := b.cgroups.Apply(group, target, "", live, change); err != nil {
		return fmt.Errorf("enforce class %q in %s: %w", to, group.Dir, err)
	}
	return nil
}

// Observe implements classes.Backend. It finds the disks of the volume again, because a container may mount another filesystem. If the
// cgroup does not have the limits that it should have, the observed class is the system default.
func (b *Backend) Observe(_ context.Context, target classes.Holder, want string) (classes.Observation, error) {
	class, err := b.class(want)
	if err != nil {
		return classes.Observation{}, err
	}
	group, err := b.open(target)
	if errors.Is(err, cgroup.ErrNoCgroup) {
		return classes.Observation{}, fmt.Errorf("%w: %w", classes.ErrEnded, err)
	}
	if err != nil {
		return classes.Observation{}, err
	}

	finder := b.cgroups.Finder(target)
	found, err := finder.Find(target)
	if errors.Is(err, classes.ErrEnded) {
		return classes.Observation{}, err
	}
	if err != nil {
		return classes.Observation{Known: true}, nil //nolint:nilerr // Enforce returns the error
	}
	live, applied, err := b.cgroups.Look(group, target, nil, b.cgroups.Known)
	if err != nil {
		return classes.Observation{}, err
	}

	change := b.cgroups.Compare(finder, target, b.resource, found.Limit(class.limits), live, applied, ioapply.None)
	if len(change.Values.Remaining(live)) > 0 {
		return classes.Observation{Known: true}, nil
	}
	b.cgroups.Records.Confirm(target, change.Applied)
	b.setDevices(target.ID, found.Disks)
	return classes.Observation{Class: want, Known: true, Foreign: describeLower(change.Lower)}, nil
}

// Repair implements classes.Backend. It removes the limits of volumes that have ended or moved to another disk.
func (b *Backend) Repair(ctx context.Context) (classes.Drift, error) {
	if b.inspected().Version == 0 {
		return classes.Drift{}, nil
	}
	m, err := b.inspect()
	if err != nil {
		return classes.Drift{}, err
	}
	b.mu.Lock()
	b.machine = m
	b.mu.Unlock()

	holdings, _ := b.cgroups.Holdings("")
	b.forgetDevices(holdings)
	finder := b.cgroups.NewFinder()
	for _, h := range holdings {
		if h.Scope() != classes.PodScope || ctx.Err() != nil {
			continue
		}
		if err := b.removeUnused(finder, h.Holder); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, cgroup.ErrNoCgroup) {
			b.cgroups.Log.Warn("cannot remove the limits of a volume; retrying", "holder", h.String(), "error", err)
		}
	}
	b.cgroups.Tidy(&m)
	return classes.Drift{}, nil
}

// Remember implements classes.Rememberer.
func (b *Backend) Remember(memory classes.Memory) error { return b.cgroups.Records.Remember(memory) }

// BeginRound implements classes.RoundObserver.
func (b *Backend) BeginRound() (end func()) { return b.cgroups.BeginRound() }

var (
	_ classes.Sharer     = (*Backend)(nil)
	_ classes.Locator    = (*Backend)(nil)
	_ classes.Rememberer = (*Backend)(nil)

	_ classes.VolumeMeter = (*Backend)(nil)
)
