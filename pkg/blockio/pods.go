// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"errors"
	"hash/maphash"
	"maps"
	"slices"
	"sync"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// pods combines the limits of a pod's class with those of its volumes' classes, because all of them are set in one
// cgroup. A disk gets the lowest limit. pods stores no classes: it gets them from the function `holdings`.
type pods struct {
	seed maphash.Seed
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
	// classLimits returns the limits of all classes, including those of former configurations.
	classLimits() []iocgroup.Value
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

func newPods() *pods { return &pods{seed: maphash.MakeSeed(), byResource: map[string]limiter{}} }

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

// limitsOfOthers returns the limits that the pod's cgroup needs for the classes of other holders in the pod, and for the
// target's classes of other resources. It leaves out the target's class of the given resource.
// `state` has the present limits of the cgroup. If limitsOfOthers cannot find the disks of a holder, e.g. because the
// container hides the mount, the result also includes all limits in state, so that no limit is lost.
func (p *pods) limitsOfOthers(f *finder, target classes.Holder, resource string, state iocgroup.Values) iocgroup.Values {
	holdings, byResource := p.in(target.PodUID)
	limits, foundAll := iocgroup.Values{}, true
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
		}
	}

	if !foundAll {
		limits = limits.Lowest(state.Only(iocgroup.Setting.IsLimit))
	}
	return limits
}

// tighten returns change, but lowers its limits to those that limitsOfOthers returns. `state` has the present limits of
// the cgroup.
func (p *pods) tighten(f *finder, target classes.Holder, resource string, change, state iocgroup.Values) iocgroup.Values {
	others := p.limitsOfOthers(f, target, resource, state)
	return change.Lowest(others.Only(change.Has))
}

// shared returns the change that sets the limits of a volume's disks. Each limit is the lowest of three: the limit in own,
// the limit of another class in the pod, and the limit that another program has set. `foreign` has the limits of other
// programs that are lower than the first two. A limit in state is from another program if no class has or had this limit.
func (p *pods) shared(f *finder, target classes.Holder, resource string, own, state iocgroup.Values) (change, foreign iocgroup.Values) {
	change, foreign = p.tighten(f, target, resource, own, state), iocgroup.Values{}
	known := p.classLimits()
	for s, limits := range state.Only(change.Has) {
		ours := change[s]
		change[s] = ours.Lowest(limits.ForeignTo(append(known, ours)))
		if change[s] != ours {
			foreign[s] = change[s].ForeignTo([]iocgroup.Value{ours})
		}
	}
	return change, foreign
}

// without returns the values that a pod's cgroup would have without two kinds of limits: those that limitsOfOthers returns,
// and those that ended volumes have left. `state` has the present values, and wanted the values of the target's own class.
//
//   - If the present limits of a device are the lowest of wanted and of these two kinds, the device gets the limits in `wanted`.
//   - If they are the lowest of these two kinds alone, the device gets no limits.
//   - All other values are those in state.
func (p *pods) without(f *finder, target classes.Holder, resource string, state, wanted iocgroup.Values) iocgroup.Values {
	alone, others := maps.Clone(state), p.limitsOfOthers(f, target, resource, state)
	ofVolumes := p.volumeLimits()
	for s, limits := range state.Only(iocgroup.Setting.IsLimit) {
		candidates := append(slices.Clone(ofVolumes), others[s])
		hasWanted := wanted.Has(s) && limits.Lowest(wanted[s]) == limits
		switch {
		case hasWanted && isLowestOf(limits, append(candidates, wanted[s])):
			alone[s] = wanted[s]
		case isLowestOf(limits, candidates):
			delete(alone, s)
		}
	}
	return alone
}

func (b *Backend) limitsFor(_ *finder, _ classes.Holder, class string) (iocgroup.Values, error) {
	return b.live.Load().classes[class].values.Only(iocgroup.Setting.IsLimit), nil
}

// classLimits implements limiter.
func (b *Backend) classLimits() (all []iocgroup.Value) {
	for _, class := range b.live.Load().classes {
		all = slices.AppendSeq(all, maps.Values(class.touched.Only(iocgroup.Setting.IsLimit)))
	}
	return all
}

// classLimits returns the limits of all present and former classes of pods and volumes.
func (p *pods) classLimits() (all []iocgroup.Value) {
	p.mu.Lock()
	byResource := maps.Clone(p.byResource)
	p.mu.Unlock()

	for _, backend := range byResource {
		all = append(all, backend.classLimits()...)
	}
	return all
}

// volumeLimits returns the limits of all present and former volume classes of all resources, because each limit in a
// cgroup may come from a class of any resource.
func (p *pods) volumeLimits() (all []iocgroup.Value) {
	p.mu.Lock()
	byResource := maps.Clone(p.byResource)
	p.mu.Unlock()

	for _, backend := range byResource {
		if volumes, ok := backend.(*VolumeBackend); ok {
			all = append(all, volumes.classLimits()...)
		}
	}
	return all
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
	if b.pods != nil {
		b.pods.shareWith(holdings)
	}
}

func (b *VolumeBackend) limitsFor(f *finder, target classes.Holder, name string) (iocgroup.Values, error) {
	class, err := b.class(name)
	if err != nil {
		return nil, err
	}
	found, err := b.find(f, target, class)
	if errors.Is(err, classes.ErrEnded) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return found.limit(class.limits), nil
}

// isLowestOf reports whether limits are the lowest values of one or more candidates.
func isLowestOf(limits iocgroup.Value, candidates []iocgroup.Value) bool {
	var lowest iocgroup.Value
	for _, candidate := range candidates {
		if limits.Lowest(candidate) == limits { // the candidate is not below the limits
			lowest = lowest.Lowest(candidate)
		}
	}
	return lowest == limits
}
