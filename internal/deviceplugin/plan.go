// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"slices"
	"time"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/pause"
)

const (
	// unlimitedDevices stand for a class without a capacity.
	unlimitedDevices = 1000
	// maxDevices bounds the messages to kubelet. No node runs as many containers.
	maxDevices = 10000
)

// class is a class that is published.
type class struct {
	resource, name string
	extended       string // name of the extended resource
	capacity       uint64 // 0 is unlimited
	podScope       bool
	draining       bool
	// others are further classes with this extended resource, which are not offered: one was renamed, say, and drains.
	others []class
}

// is whether a class of this name is this one, or one of the others.
func (c class) is(resource, name string, podScope bool) bool {
	if c.resource == resource && c.name == name && c.podScope == podScope {
		return true
	}
	return slices.ContainsFunc(c.others, func(other class) bool { return other.is(resource, name, podScope) })
}

// size is how many devices the class has as long as kubelet has not allocated more of them.
func (c class) size() int {
	switch {
	case c.draining:
		return 0
	case c.capacity == 0:
		return unlimitedDevices
	}
	return int(min(c.capacity, maxDevices)) //nolint:gosec // not above maxDevices
}

// classesOf lists the classes that have an extended resource, one of each: the first that is offered, or else the first.
func classesOf(r *qosv1alpha1.ResourcesInfo) []class {
	var list []class
	add := func(resources []*qosv1alpha1.QOSResourceInfo, podScope bool) {
		for _, resource := range resources {
			for _, c := range resource.GetClasses() {
				if c.GetExtendedResource() == "" {
					continue
				}
				list = insert(list, class{
					resource: resource.GetName(), name: c.GetName(), extended: c.GetExtendedResource(),
					capacity: c.GetCapacity(), podScope: podScope, draining: c.GetDraining(),
				})
			}
		}
	}
	add(r.GetContainerQosResources(), false)
	add(r.GetPodQosResources(), true)
	return list
}

// insert adds a class to those of other extended resources, or to the one that has its extended resource.
func insert(list []class, c class) []class {
	i := slices.IndexFunc(list, func(there class) bool { return there.extended == c.extended })
	if i < 0 {
		return append(list, c)
	}
	first, second := list[i], c
	if first.draining && !c.draining {
		first, second = c, list[i]
	}
	first.others = slices.Concat(first.others, second.others, []class{second})
	list[i] = first
	return list
}

// usage is how a class is used.
type usage struct {
	// allocated has the devices that kubelet has allocated. They stay listed. Each is there once, also when an
	// application's container took over that of an init container.
	allocated []string
	// accounted is how many devices kubelet has allocated: those of allocated, if kubelet could be asked, else as many as
	// assignments say.
	accounted int
	// granted are devices that were handed out and of which kubelet has not told, the latest first. It may have allocated
	// them to init containers; silent is to how many. After our own start it also counts those whose devices nobody knows.
	granted []string
	silent  int
	// unaccounted counts those who have the class, and of whom kubelet does not know; 0 for an unlimited class.
	unaccounted int
	// restless is whether kubelet may soon say something else without an event that tells us so.
	restless bool
}

// device is one of the devices of a class.
type device struct {
	id      string
	healthy bool
}

// plan says what is listed to kubelet for a class: all that is allocated, and free devices up to the class's capacity.
// Of these as many are healthy, and so allocatable, as kubelet may hand out altogether: what is assigned behind its
// back is taken away from the free ones with the highest numbers, and last from those that were handed out once. What is
// allocated stays healthy, because kubelet refuses its pod after its own restart if a container does not run just then.
func plan(c class, u usage) []device {
	used := u.accounted + u.silent
	healthy := max(used, c.size()-u.unaccounted)
	ids := inOrder(c, u, max(c.size(), len(u.allocated)+u.silent))
	devices := make([]device, len(ids))
	for i, id := range ids {
		devices[i] = device{id: id, healthy: i < healthy}
	}
	sortDevices(devices)
	return devices
}

// inOrder lists size devices, or all that are allocated: these first, then those handed out once, then others.
func inOrder(c class, u usage, size int) []string {
	ids := slices.Clone(u.allocated)
	slices.SortFunc(ids, compareIDs)
	ids = slices.Compact(ids)
	taken := make(map[string]bool, size)
	for _, id := range ids {
		taken[id] = true
	}
	add := func(id string) {
		if !taken[id] && len(ids) < size {
			taken[id] = true
			ids = append(ids, id)
		}
	}
	for _, id := range u.granted {
		add(id)
	}
	for number := 0; len(ids) < size; number++ {
		add(deviceID(c.extended, number))
	}
	return ids
}

// withheld is plan while nobody is to get a device: what is allocated is healthy, and nothing else.
func withheld(c class, u usage) []device {
	healthy := map[string]bool{}
	for _, id := range inOrder(c, u, len(u.allocated)+u.silent) {
		healthy[id] = true
	}
	devices := plan(c, u)
	for i := range devices {
		devices[i].healthy = healthy[devices[i].id]
	}
	return devices
}

// settle has devices that shall no longer be listed leave in two steps: they are unhealthy for linger, so that kubelet
// allocates them no more, and gone then. Kubelet chooses a device, asks us, and looks into our list again: one that
// vanished between ends the whole kubelet. leaving has when devices became unhealthy for that; it is changed.
//
// The result is the list of now, and how long it is good for; 0 is until something changes.
func settle(listed, wanted []device, leaving map[string]time.Time, now time.Time, linger time.Duration) ([]device, time.Duration) {
	list := slices.Clone(wanted)
	stays := make(map[string]bool, len(wanted))
	for _, d := range wanted {
		stays[d.id] = true
		delete(leaving, d.id)
	}
	var again time.Duration
	for _, d := range listed {
		if stays[d.id] {
			continue
		}
		since, known := leaving[d.id]
		if !known {
			since = now
			leaving[d.id] = now
		}
		left := linger - now.Sub(since)
		if left <= 0 {
			delete(leaving, d.id)
			continue
		}
		list = append(list, device{id: d.id})
		again = pause.Shortest(again, left)
	}
	sortDevices(list)
	return list, again
}

func sortDevices(devices []device) {
	slices.SortFunc(devices, func(a, b device) int { return compareIDs(a.id, b.id) })
}
