// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ioapply applies classes of block I/O to cgroups. It records what it applied to each cgroup, and compares
// three values of each setting, as "kubectl apply" does: the last applied value, the live value of the cgroup, and the
// value that the classes want.
package ioapply

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"log/slog"
	"maps"
	"path"
	"slices"
	"sync"

	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/iodisks"
)

// Tree finds cgroups. *cgroup.Tree implements it.
type Tree interface {
	iocgroup.Tree
	// IODir returns the directory with the target's io controller files, and the cgroup version of this directory.
	IODir(target classes.Holder) (dir string, version int, err error)
}

// Options has the dependencies of all backends of block I/O.
type Options struct {
	FS   iodisks.FS
	Tree Tree
	// Log defaults to slog.Default().
	Log *slog.Logger
}

// Cgroups applies values to the cgroups of a node, and records them. All backends of block I/O on a node share it.
//
// It combines the limits of a pod's class with those of its volumes' classes, because all of them are set in one
// cgroup. A disk gets the lowest limit. Cgroups stores no classes. It gets them from the function that ShareWith has
// set.
type Cgroups struct {
	Options
	Records *Records
	Costs   *Costs
	seed    maphash.Seed
	// `cgroups` has locks that serialize the changes of a cgroup. The hash of the cgroup's path selects the lock. If a
	// write hangs in the kernel, only the few cgroups with the same lock wait for it.
	cgroups [64]sync.Mutex

	// mu guards the fields below.
	mu       sync.Mutex
	holdings func(podUID string) []classes.Holding
	// byResource has the backends of pod scope and of volume scope whose configuration was applied.
	byResource map[string]Limiter
	// round is the finder of the present round of observations. It is nil outside of a round.
	round *iodisks.Finder
}

// New returns the cgroups of a node. It does no I/O.
func New(opts Options) *Cgroups {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	return &Cgroups{Options: opts, Records: NewRecords(opts.Log), Costs: NewCosts(opts.FS), seed: maphash.MakeSeed(), byResource: map[string]Limiter{}}
}

// Limiter is a backend of pod scope or of volume scope.
type Limiter interface {
	// LimitsFor returns the limits that a class sets for a holder, by device. It returns no limits if the holder has ended.
	LimitsFor(f *iodisks.Finder, h classes.Holder, class string) (iocgroup.Values, error)
	// Known returns the values that the classes set.
	Known() Known
}

// BeginRound begins a round of observations, and returns the function that ends it.
func (c *Cgroups) BeginRound() (end func()) {
	c.setRound(c.NewFinder())
	return func() { c.setRound(nil) }
}

// NewFinder returns a finder that has read nothing yet.
func (c *Cgroups) NewFinder() *iodisks.Finder { return iodisks.NewFinder(c.FS, c.volumesOf) }

func (c *Cgroups) setRound(f *iodisks.Finder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.round = f
}

// Finder returns the finder of the present round, or a new one. A target that is starting gets a new one, because the kubelet
// may have mounted its volumes after the round began.
func (c *Cgroups) Finder(target classes.Holder) *iodisks.Finder {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.round != nil && !target.Starting {
		return c.round
	}
	return c.NewFinder()
}

// volumesOf returns the paths of those volumes of a container that have classes.
func (c *Cgroups) volumesOf(container, podUID string) (paths []string) {
	holdings, _ := c.Holdings(podUID)
	for _, h := range holdings {
		if h.ContainerID == container {
			paths = append(paths, h.Volume)
		}
	}
	return paths
}

// Locate records the disks of a volume that is about to get its limits. It returns what was applied to the cgroup.
func (c *Cgroups) Locate(target classes.Holder, disks []iocgroup.Disk) Applied {
	holdings, _ := c.Holdings(target.PodUID)
	return c.Records.Locate(target, disks, func(volumeID string) bool {
		return slices.ContainsFunc(holdings, func(h classes.Holding) bool { return h.ID == volumeID })
	})
}

// Inspect reads the state of the machine. If it has no io controller, the error is a *classes.Unavailable.
func (c *Cgroups) Inspect() (iocgroup.Machine, error) {
	m, err := iocgroup.Inspect(c.FS, c.Tree)
	if errors.Is(err, cgroup.ErrNoIO) {
		err = &classes.Unavailable{Reason: "NoIOController", Message: err.Error()}
	}
	return m, err
}

// Open opens the cgroup of a target on a machine.
func (c *Cgroups) Open(target classes.Holder, m iocgroup.Machine) (iocgroup.Group, error) {
	dir, version, err := c.Tree.IODir(target)
	if err != nil {
		return iocgroup.Group{}, fmt.Errorf("find the cgroup: %w", err)
	}
	return iocgroup.Group{Host: c.FS, Machine: m, Version: version, Layout: iocgroup.LayoutOf(version), Dir: dir}, nil
}

// Add adds a backend of pod scope or of volume scope whose configuration was applied.
func (c *Cgroups) Add(resource string, backend Limiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byResource[resource] = backend
}

// ShareWith implements classes.Sharer.
func (c *Cgroups) ShareWith(holdings func(podUID string) []classes.Holding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holdings = holdings
}

// Lock begins a change of a pod's cgroup, and returns the function that ends it.
func (c *Cgroups) Lock(pod classes.Holder) (unlock func()) {
	lock := c.lockOf(pod)
	lock.Lock()
	return lock.Unlock
}

// TryLock works like Lock, but does not wait. `ok` is false if another change is in progress. That change may hang in
// the kernel.
func (c *Cgroups) TryLock(pod classes.Holder) (unlock func(), ok bool) {
	lock := c.lockOf(pod)
	if !lock.TryLock() {
		return nil, false
	}
	return lock.Unlock, true
}

func (c *Cgroups) lockOf(pod classes.Holder) *sync.Mutex {
	return &c.cgroups[maphash.String(c.seed, pod.CgroupsPath)%uint64(len(c.cgroups))]
}

// Holdings returns the holdings of a pod, or of all pods if `podUID` is empty, and a copy of byResource.
func (c *Cgroups) Holdings(podUID string) ([]classes.Holding, map[string]Limiter) {
	c.mu.Lock()
	holdings, byResource := c.holdings, maps.Clone(c.byResource)
	c.mu.Unlock()

	if holdings == nil {
		return nil, nil
	}
	return holdings(podUID), byResource
}

// Look reads the limits of a cgroup and the settings in the given files, and returns them with what was applied to the cgroup.
func (c *Cgroups) Look(group iocgroup.Group, target classes.Holder, files []iocgroup.File, known func() Known) (
	live iocgroup.Values, applied Applied, err error,
) {
	if c.Records.IsNew(target) {
		files = group.Machine.Files
	}
	live, err = group.Read(files)
	if err != nil {
		return live, c.Records.Get(target), err
	}
	return live, c.Records.Look(target, live, known), nil
}

// Known returns the values that the classes of pods and volumes set.
func (c *Cgroups) Known() Known {
	c.mu.Lock()
	byResource := maps.Clone(c.byResource)
	c.mu.Unlock()

	all := Known{Classes: map[string]iocgroup.Values{}}
	for _, backend := range byResource {
		one := backend.Known()
		maps.Copy(all.Classes, one.Classes)
		all.Limits = append(all.Limits, one.Limits...)
	}
	return all
}

// limitsOfOthers returns the limits that the pod's cgroup needs for the classes of other holders in the pod, and for
// the target's classes of other resources. It leaves out the target's class of the given resource. `ofVolumes` has the
// limits of volumes. `unfound` has the holders whose limits cannot be found, e.g. because the container hides the
// mount.
func (c *Cgroups) limitsOfOthers(f *iodisks.Finder, target classes.Holder, resource string) (limits, ofVolumes iocgroup.Values, unfound []classes.Holder) {
	holdings, byResource := c.Holdings(target.PodUID)
	limits, ofVolumes = iocgroup.Values{}, iocgroup.Values{}
	for _, h := range holdings {
		if h.CgroupsPath != target.CgroupsPath {
			continue
		}
		for _, a := range h.Assignments {
			backend, own := byResource[a.Resource], h.ID == target.ID && a.Resource == resource
			if backend == nil || own || a.Class == classes.SystemDefault {
				continue
			}
			found, err := backend.LimitsFor(f, h.Holder, a.Class)
			limits = limits.Lowest(found)
			if err != nil {
				unfound = append(unfound, h.Holder)
			}
			if h.Scope() == classes.VolumeScope {
				ofVolumes = ofVolumes.Merge(found)
			}
		}
	}
	return limits, ofVolumes, unfound
}

// Compare compares the cgroup of a pod with what it should have: the target's own values (`own`), and the limits of
// other classes on the same disks. The lowest limit wins. On the disks of volumes with limits, this can be a limit of
// another program. Compare also looks at other applied settings for which `owns` returns true.
//
// While a volume cannot be found, Compare neither removes nor raises a limit that was applied to the last known disks
// of the volume.
func (c *Cgroups) Compare(f *iodisks.Finder, target classes.Holder, resource string, own, live iocgroup.Values, applied Applied,
	owns func(iocgroup.Setting) bool,
) Change {
	limits, ofVolumes, unfound := c.limitsOfOthers(f, target, resource)
	mayLimit := func(s iocgroup.Setting) bool { return applied.mayLimit(s, unfound) }
	limits = limits.Lowest(applied.Ours(live).Only(mayLimit))
	wanted := own.Lowest(limits.Only(func(s iocgroup.Setting) bool { return own.Has(s) || owns(s) && applied.Has(s) }))

	return applied.Compare(live, wanted, owns, func(s iocgroup.Setting) bool {
		return mayLimit(s) || ofVolumes.Has(s) || target.Scope() == classes.VolumeScope
	})
}

// All returns true for every setting.
func All(iocgroup.Setting) bool { return true }

// None returns false for every setting.
func None(iocgroup.Setting) bool { return false }

// Apply makes a change of a cgroup, and records it. `class` is the class of the container or pod, or empty for a
// volume.
func (c *Cgroups) Apply(group iocgroup.Group, target classes.Holder, class string, live iocgroup.Values, change Change) error {
	rest := change.Values.Remaining(live)
	if len(rest) > 0 {
		c.Records.Begin(target, class, &change, rest)
		if err := group.Apply(rest, live, change.Values); err != nil {
			return err
		}
	}
	c.Records.Confirm(target, change.Applied)
	return nil
}

// Tidy saves the records that have changed, and removes those of cgroups that are gone.
func (c *Cgroups) Tidy(m *iocgroup.Machine) {
	held := map[string]bool{}
	holdings, _ := c.Holdings("")
	for _, h := range holdings {
		held[h.CgroupsPath] = true
	}
	c.Records.Prune(func(cgroupsPath string) bool {
		below, err := cgroup.Path(cgroupsPath)
		if held[cgroupsPath] || err != nil {
			return held[cgroupsPath]
		}
		_, err = c.FS.Readlink(path.Join(m.Root, below))
		return !errors.Is(err, fs.ErrNotExist)
	})
	c.Records.Save()
}
