// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"slices"
	"time"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/pause"
)

const (
	// unlimitedDevices is the number of devices that are listed for a class without a capacity.
	unlimitedDevices = 1000
	// maxDevices is the largest size of a class. It limits the size of the messages to kubelet, and is larger than the
	// number of containers on any node.
	maxDevices = 10000
)

type class struct {
	resource, name string
	extended       string // name of the extended resource
	capacity       uint64 // 0 if the class has no limit
	podScope       bool
	draining       bool
	// others has the other classes with the same extended resource, e.g. a draining class that was renamed. No
	// devices are published for them.
	others []class
}

// is reports whether `c` or one of c.others has the given resource, name and scope.
func (c class) is(resource, name string, podScope bool) bool {
	if c.resource == resource && c.name == name && c.podScope == podScope {
		return true
	}
	return slices.ContainsFunc(c.others, func(other class) bool { return other.is(resource, name, podScope) })
}

// size returns how many devices are listed for the class. If kubelet has allocated more, all allocated devices are
// listed.
func (c class) size() int {
	switch {
	case c.draining:
		return 0
	case c.capacity == 0:
		return unlimitedDevices
	}
	return int(min(c.capacity, maxDevices)) //nolint:gosec // not above maxDevices
}

// classesOf returns one class for each extended resource. If several classes have the same extended resource,
// classesOf chooses the first class that is not draining. If all of them drain, it chooses the first.
func classesOf(r *qosv1alpha1.ResourcesInfo) []class {
	var list []class
	for _, c := range nodecache.RequestableClasses(r) {
		list = insert(list, class{
			resource: c.Resource.GetName(), name: c.GetName(), extended: c.GetExtendedResource(),
			capacity: c.GetCapacity(), podScope: c.PodScope, draining: c.GetDraining(),
		})
	}
	return list
}

// insert adds `c` to a list. If the list already has a class with the same extended resource, only one of the two
// classes stays in the list, and insert adds the other class to the field `others` of that class.
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

// plan returns the devices to list: all allocated devices, and free devices up to the capacity. For each assignment
// that kubelet does not account for, plan makes one free device unhealthy. It picks the devices with the highest numbers
// first, and devices that Allocate has granted last.
//
// Allocated devices stay healthy, because a kubelet that has restarted fails pods whose devices are unhealthy.
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

// planWithheld lists the same devices as plan. All free devices are unhealthy, so kubelet allocates none of them.
func planWithheld(c class, u usage) []device {
	u.accounted, u.unaccounted = len(u.allocated), c.size()
	return plan(c, u)
}

// candidates returns the IDs of the given number of devices, or of all allocated devices if these are more. Allocated
// devices come first, then devices that Allocate has granted, then other devices.
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

// phaseOut returns the wanted devices and, as unhealthy devices, the listed devices that became unwanted less than `ttl`
// ago. These devices must stay listed for a while: after a call of Allocate, kubelet looks up the device in its list
// again, and panics if the device is missing.
//
// phaseOut records in `leaving` the time at which each device became unwanted. The second result is the time after which
// phaseOut must be called again. 0 means that no call is needed.
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
