// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"errors"
	"hash/maphash"
	"io/fs"
	"log/slog"
	"maps"
	"path"
	"sync"

	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// pods combines the limits of a pod's class with those of its volumes' classes, because all of them are set in one
// cgroup. A disk gets the lowest limit. pods stores no classes: it gets them from the function `holdings`.
type pods struct {
	records *ioapply.Records
	seed    maphash.Seed
	// cgroups are locks that serialize the changes of a cgroup. The hash of the cgroup's path selects the lock. If a
	// write hangs in the kernel, only the few cgroups with the same lock wait for it.
	cgroups [64]sync.Mutex

	// mu guards the fields below.
	mu       sync.Mutex
	holdings func(podUID string) []classes.Holding
	// byResource has the backends of pod scope and of volume scope whose configuration was applied.
	byResource map[string]limiter
	// round is the finder of the present round of observations. It is nil outside of a round.
	round *finder
}

// limiter is a backend of pod scope or of volume scope.
type limiter interface {
	// limitsFor returns the limits that a class sets for a holder, by device. It returns no limits if the holder has ended.
	limitsFor(f *finder, h classes.Holder, class string) (iocgroup.Values, error)
	// known returns what the classes set.
	known() ioapply.Known
}

// beginRound begins a round of observations, and returns the function that ends it.
func (p *pods) beginRound(host FS) (end func()) {
	p.setRound(newFinder(host, p.volumesOf))
	return func() { p.setRound(nil) }
}

func (p *pods) setRound(f *finder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.round = f
}

// finder returns the finder of the present round, or a new one. A target that is starting gets a new one, because the kubelet
// may have mounted its volumes after the round began.
func (p *pods) finder(host FS, target classes.Holder) *finder {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.round != nil && !target.Starting {
		return p.round
	}
	return newFinder(host, p.volumesOf)
}

// volumesOf returns the paths of the volumes of a container that have classes.
func (p *pods) volumesOf(container, podUID string) (paths []string) {
	holdings, _ := p.in(podUID)
	for _, h := range holdings {
		if h.ContainerID == container {
			paths = append(paths, h.Volume)
		}
	}
	return paths
}

func newPods(log *slog.Logger) *pods {
	return &pods{records: ioapply.NewRecords(log), seed: maphash.MakeSeed(), byResource: map[string]limiter{}}
}

func (p *pods) add(resource string, backend limiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byResource[resource] = backend
}

func (p *pods) shareWith(holdings func(podUID string) []classes.Holding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holdings = holdings
}

// lock begins a change of a pod's cgroup, and returns the function that ends it.
func (p *pods) lock(pod classes.Holder) (unlock func()) {
	lock := p.lockOf(pod)
	lock.Lock()
	return lock.Unlock
}

func (p *pods) lockOf(pod classes.Holder) *sync.Mutex {
	return &p.cgroups[maphash.String(p.seed, pod.CgroupsPath)%uint64(len(p.cgroups))]
}

// in returns the holdings of a pod, or of all pods if `podUID` is empty, and a copy of byResource.
func (p *pods) in(podUID string) ([]classes.Holding, map[string]limiter) {
	p.mu.Lock()
	holdings, byResource := p.holdings, maps.Clone(p.byResource)
	p.mu.Unlock()

	if holdings == nil {
		return nil, nil
	}
	return holdings(podUID), byResource
}

// look reads the values of a cgroup with the function `read`, and returns them with what was applied to the cgroup.
func (p *pods) look(group iocgroup.Group, target classes.Holder, weights []iocgroup.WeightFile, known func() ioapply.Known, read reader) (
	live iocgroup.Values, applied ioapply.Applied, err error,
) {
	if p.records.IsNew(target) {
		weights = group.Machine.WeightFiles
	}
	live, err = read(group, weights)
	if err != nil {
		return live, p.records.Get(target), err
	}
	return live, p.records.Look(target, live, known), nil
}

// reader reads the limits of a cgroup, and the weights in the given files.
type reader func(iocgroup.Group, []iocgroup.WeightFile) (iocgroup.Values, error)

// known returns what the classes of pods and volumes set.
func (p *pods) known() ioapply.Known {
	p.mu.Lock()
	byResource := maps.Clone(p.byResource)
	p.mu.Unlock()

	all := ioapply.Known{Classes: map[string]iocgroup.Values{}}
	for _, backend := range byResource {
		one := backend.known()
		maps.Copy(all.Classes, one.Classes)
		all.Limits = append(all.Limits, one.Limits...)
	}
	return all
}

// limitsOfOthers returns the limits that the pod's cgroup needs for the classes of other holders in the pod, and for the
// target's classes of other resources. It leaves out the target's class of the given resource. ofVolumes are those of volumes.
// foundAll is false if it cannot find the disks of a holder, e.g. because the container hides the mount.
func (p *pods) limitsOfOthers(f *finder, target classes.Holder, resource string) (limits, ofVolumes iocgroup.Values, foundAll bool) {
	holdings, byResource := p.in(target.PodUID)
	limits, ofVolumes, foundAll = iocgroup.Values{}, iocgroup.Values{}, true
	for _, h := range holdings {
		if h.CgroupsPath != target.CgroupsPath {
			continue
		}
		for _, a := range h.Assignments {
			backend, own := byResource[a.Resource], h.ID == target.ID && a.Resource == resource
			if backend == nil || own || a.Class == classes.SystemDefault {
				continue
			}
			found, err := backend.limitsFor(f, h.Holder, a.Class)
			limits, foundAll = limits.Lowest(found), foundAll && err == nil
			if h.Scope() == classes.VolumeScope {
				ofVolumes = ofVolumes.Merge(found)
			}
		}
	}
	return limits, ofVolumes, foundAll
}

// compare compares the cgroup of a pod with what it should have: the values in `own` of the target, and the limits of other
// classes on the same disks. The lowest limit wins. Where a volume is limited, this can be a limit of another program. compare
// also looks at other settings that were applied, if `owns` returns true.
//
// While the disks of a volume are unknown, no limit that was applied is removed or raised.
func (p *pods) compare(f *finder, target classes.Holder, resource string, own, live iocgroup.Values, applied ioapply.Applied,
	owns func(iocgroup.Setting) bool,
) ioapply.Change {
	limits, ofVolumes, foundAll := p.limitsOfOthers(f, target, resource)
	if !foundAll {
		limits = limits.Lowest(applied.Ours(live))
	}
	wanted := own.Lowest(limits.Only(func(s iocgroup.Setting) bool { return own.Has(s) || owns(s) && applied.Has(s) }))

	return applied.Compare(live, wanted, owns, func(s iocgroup.Setting) bool {
		return !foundAll || ofVolumes.Has(s) || target.Scope() == classes.VolumeScope
	})
}

// all and none are the functions that return true or false for every setting.
func all(iocgroup.Setting) bool { return true }

func none(iocgroup.Setting) bool { return false }

// apply makes a change of a cgroup, and records it. class is the class of the container or pod, or empty for a volume.
func (p *pods) apply(group iocgroup.Group, target classes.Holder, class string, live iocgroup.Values, change ioapply.Change) error {
	rest := change.Values.Remaining(live)
	if len(rest) > 0 {
		p.records.Begin(target, class, &change, rest)
		if err := group.Apply(rest, live, change.Values); err != nil {
			return err
		}
	}
	p.records.Confirm(target, change.Applied)
	return nil
}

// tidy saves the records that have changed, and removes those of cgroups that are gone.
func (p *pods) tidy(host FS, m *iocgroup.Machine) {
	held := map[string]bool{}
	holdings, _ := p.in("")
	for _, h := range holdings {
		held[h.CgroupsPath] = true
	}
	p.records.Prune(func(cgroupsPath string) bool {
		below, err := cgroup.Path(cgroupsPath)
		if held[cgroupsPath] || err != nil {
			return held[cgroupsPath]
		}
		_, err = host.Readlink(path.Join(m.Root, below))
		return !errors.Is(err, fs.ErrNotExist)
	})
	p.records.Save()
}

func (b *Backend) limitsFor(_ *finder, _ classes.Holder, class string) (iocgroup.Values, error) {
	values, err := b.live.Load().valuesOf(class)
	return values.Only(iocgroup.Setting.IsLimit), err
}

// known implements limiter.
func (b *Backend) known() ioapply.Known {
	all := map[string]iocgroup.Values{}
	for name, class := range b.live.Load().classes {
		all[name] = class.values
	}
	return ioapply.Known{Classes: all}
}

// BeginRound implements classes.RoundObserver.
func (b *Backend) BeginRound() (end func()) {
	if b.pods == nil {
		return func() {}
	}
	return b.pods.beginRound(b.opts.FS)
}

// BeginRound implements classes.RoundObserver.
func (b *VolumeBackend) BeginRound() (end func()) { return b.pods.beginRound(b.opts.FS) }

// ShareWith implements classes.Sharer.
func (b *Backend) ShareWith(holdings func(podUID string) []classes.Holding) {
	b.shared.shareWith(holdings)
}
