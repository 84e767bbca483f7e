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
	// unlimitedDevices is the number of devices of a class without capacity.
	unlimitedDevices = 1000
	// maxDevices bounds the messages to kubelet. No node runs as many containers.
	maxDevices = 10000
)

type class struct {
	resource, name string
	extended       string // name of the extended resource
	capacity       uint64 // 0 is unlimited
	podScope       bool
	draining       bool
	// others are classes with the same extended resource that are not published, e.g. a renamed class that drains.
	others []class
}

// is reports whether the names belong to the class or to one of the others.
func (c class) is(resource, name string, podScope bool) bool {
	if c.resource == resource && c.name == name && c.podScope == podScope {
		return true
	}
	return slices.ContainsFunc(c.others, func(other class) bool { return other.is(resource, name, podScope) })
}

// size returns the number of devices to list if kubelet has not allocated more.
func (c class) size() int {
	switch {
	case c.draining:
		return 0
	case c.capacity == 0:
		return unlimitedDevices
	}
	return int(min(c.capacity, maxDevices)) //nolint:gosec // not above maxDevices
}

// classesOf returns the class to publish for each extended resource: the first that is not draining, or else the first.
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

// insert adds a class to the list, or to the class with the same extended resource.
func insert(list []class, c class) []class {
	i := slices.IndexFunc(list, func(other class) bool { return other.extended == c.extended })
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

// device is a device of a class. Kubelet allocates only healthy devices.
type device struct {
	id      string
	healthy bool
}

// plan returns the devices to list: all allocated devices, and free ones up to the capacity. Each assignment that kubelet does
// not account for makes one free device unhealthy. Devices with the highest numbers are first, and devices that Allocate once
// granted are last. Allocated devices stay healthy, because after its restart kubelet fails pods with unhealthy devices.
func plan(c class, u usage) []device {
	used := u.accounted + u.unreported
	healthy := max(used, c.size()-u.unaccounted)

	ids := candidates(c, u, max(c.size(), len(u.allocated)+u.unreported))
	devices := make([]device, len(ids))
	for i, id := range ids {
		devices[i] = device{id: id, healthy: i < healthy}
	}
	sortDevices(devices)
	return devices
}

// planWithheld is plan with all free devices unhealthy.
func planWithheld(c class, u usage) []device {
	u.accounted, u.unaccounted = len(u.allocated), c.size()
	return plan(c, u)
}

// candidates returns size device IDs, or more if more are allocated: allocated ones first, then granted ones, then others.
func candidates(c class, u usage, size int) []string {
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

// phaseOut adds listed devices that are no longer wanted to the wanted ones. They are unhealthy and stay until ttl has passed:
// kubelet chooses a device, calls Allocate and looks the device up in our list again, and panics if the device is gone by then.
// leaving has the time since when each device is no longer wanted, and is updated.
//
// The second result is when to call phaseOut again; 0 is never.
func phaseOut(listed, wanted []device, leaving map[string]time.Time, now time.Time, ttl time.Duration) ([]device, time.Duration) {
	list := slices.Clone(wanted)
	stays := make(map[string]bool, len(wanted))
	for _, d := range wanted {
		stays[d.id] = true
		delete(leaving, d.id)
	}

	var recheck time.Duration
	for _, d := range listed {
		if stays[d.id] {
			continue
		}
		since, known := leaving[d.id]
		if !known {
			since = now
			leaving[d.id] = now
		}
		left := ttl - now.Sub(since)
		if left <= 0 {
			delete(leaving, d.id)
			continue
		}
		list = append(list, device{id: d.id})
		recheck = pause.Shortest(recheck, left)
	}
	sortDevices(list)
	return list, recheck
}

func sortDevices(devices []device) {
	slices.SortFunc(devices, func(a, b device) int { return compareIDs(a.id, b.id) })
}
