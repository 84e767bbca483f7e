// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// These are the names of the attributes that only devices of a domain have.
const (
	attributeNUMANode, attributeCacheL3ID = "numaNode", "cacheL3ID"

	// attributeOfCPUs is the attribute of dra-driver-cpu for the L3 cache of a CPU. Kubernetes 1.37 has no standard
	// name for it.
	attributeOfCPUs resourcev1.QualifiedName = "dra.cpu/cacheL3ID"
)

// domain is the set of CPUs of a NUMA node that share an L3 cache. A NUMA node can have several caches, and a cache can
// be in several NUMA nodes.
type domain struct{ numaNode, cacheL3 int64 }

// suffix returns the end of the name of a domain's device, after the name of the class. It has at most maxSuffix bytes.
func (d domain) suffix() string { return fmt.Sprintf("-numa%d-l3-%d", d.numaNode, d.cacheL3) }

// maxSuffix is the length of the longest suffix. Linux has at most 1024 NUMA nodes, and IDs of caches have at most 32 bits.
const maxSuffix = len("-numa1023-l3-4294967295")

// attributes returns the attributes of a device of the domain. The standard attribute is a number, because lists need a
// feature gate that is off by default in Kubernetes 1.37.
func (d domain) attributes() map[resourcev1.QualifiedName]resourcev1.DeviceAttribute {
	numaNode, cacheL3 := resourcev1.DeviceAttribute{IntValue: &d.numaNode}, resourcev1.DeviceAttribute{IntValue: &d.cacheL3}
	return map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
		attributeNUMANode: numaNode, deviceattribute.StandardDeviceAttributeNUMANode: numaNode,
		attributeCacheL3ID: cacheL3, attributeOfCPUs: cacheL3,
	}
}

// readDomains returns the domains of the online CPUs, or none if the kernel reports no L3 caches or no NUMA nodes. `sys` is
// the kernel's sysfs.
func readDomains(sys fs.FS) ([]domain, error) {
	levels, err := fs.Glob(sys, "devices/system/cpu/cpu[0-9]*/cache/index[0-9]*/level")
	if err != nil {
		return nil, err
	}
	found := map[domain]struct{}{}
	for _, file := range levels {
		level, err := readNumber(sys, file)
		if err == nil && level != 3 {
			continue
		}
		cache := path.Dir(file)
		id, idErr := readNumber(sys, path.Join(cache, "id"))
		if err := errors.Join(err, idErr); errors.Is(err, fs.ErrNotExist) { // the CPU has gone offline, or the caches have no IDs
			continue
		} else if err != nil {
			return nil, fmt.Errorf("read the L3 caches: %w", err)
		}

		nodes, err := fs.Glob(sys, path.Join(cache, "../../node[0-9]*"))
		if err != nil {
			return nil, err
		}
		for _, node := range nodes {
			number, err := strconv.ParseInt(strings.TrimPrefix(path.Base(node), "node"), 10, 32)
			if err != nil {
				return nil, fmt.Errorf("read the NUMA nodes: %w", err)
			}
			found[domain{number, id}] = struct{}{}
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b domain) int {
		return cmp.Or(cmp.Compare(a.numaNode, b.numaNode), cmp.Compare(a.cacheL3, b.cacheL3))
	}), nil
}

func readNumber(sys fs.FS, file string) (int64, error) {
	data, err := fs.ReadFile(sys, file)
	if err != nil {
		return 0, err
	}
	number, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return number, nil
}

// differs reports whether the values of a class differ between L3 caches, e.g. {"L3": "0=ff;1=f"}.
func differs(values map[string]string) bool {
	for _, schema := range []string{"L3", "L3CODE", "L3DATA", "MB"} { // the bandwidth of memory has the IDs of the L3 caches
		first, others, _ := strings.Cut(values[schema], ";")
		_, want, _ := strings.Cut(first, "=")
		for other := range strings.SplitSeq(others, ";") {
			if _, value, found := strings.Cut(other, "="); found && value != want {
				return true
			}
		}
	}
	return false
}

// divide replaces each `divided` device by one for each domain, and divides its slots evenly. The first domains get the
// remaining slots. It leaves out domains without a slot. It changes nothing if there is only one domain.
func divide(list []device, domains []domain) []device {
	if len(domains) < 2 {
		return list
	}
	var all []device
	for _, d := range list {
		if !d.divided {
			all = append(all, d)
			continue
		}
		for i := range domains {
			part, n := d, uint64(len(domains))
			part.domain, part.name = &domains[i], d.name+domains[i].suffix()
			if part.capacity = d.capacity / n; uint64(i) < d.capacity%n { //nolint:gosec // not negative
				part.capacity++
			}
			if d.capacity == 0 || part.capacity > 0 {
				all = append(all, part)
			}
		}
	}
	return all
}

// preparedCounts has the number of prepared allocations, by class and device name.
type preparedCounts map[classes.Pair]map[string]int

// slotsOf returns the number of slots of each device that the scheduler may allocate. It subtracts slots that are
// occupied without an allocation of a published device: by an annotation, a static pod, an earlier device plugin, a
// second container with the same claim, or the claim of a device that is no longer published.
//
// These slots belong to no domain. slotsOf subtracts them from the last domains with free slots. The scheduler allocates only
// the slots that remain, so its allocations do not change from which domains slotsOf subtracts.
func slotsOf(list []device, assigned map[classes.Pair]owners, prepared preparedCounts) []int64 {
	slots := make([]int64, len(list))
	for start := 0; start < len(list); {
		end := start + 1
		for end < len(list) && list[end].Pair == list[start].Pair { // the domains of a class follow one another
			end++
		}
		class := list[start].Pair
		copy(slots[start:end], slotsOfClass(list[start:end], assigned[class], prepared[class]))
		start = end
	}
	return slots
}

// slotsOfClass returns the result of slotsOf for the devices of one class.
func slotsOfClass(devices []device, assigned owners, prepared map[string]int) []int64 {
	all := 0
	for _, n := range prepared {
		all += n
	}
	outside, surplus := int64(assigned.others+max(0, assigned.allocated-all)+all), int64(0)
	slots, free := make([]int64, len(devices)), make([]int64, len(devices))
	for i := range devices {
		given := int64(prepared[devices[i].name])
		slots[i] = int64(min(devices[i].capacity, maxSlots)) //nolint:gosec // not above maxSlots
		free[i] = max(0, slots[i]-given)
		outside -= given // allocations of published devices
		surplus += max(0, given-slots[i])
	}

	// If more slots of a domain are allocated than it has, because the capacity was lowered, the other domains get
	// fewer.
	rest := outside + surplus - take(slots, free, outside+surplus)
	take(slots, slices.Clone(slots), min(rest, outside))
	return slots
}

// take subtracts `n` slots from the devices, beginning with the last one, and at most `available` from each. It returns
// the number of subtracted slots.
func take(slots, available []int64, n int64) (taken int64) {
	for i := len(slots) - 1; i >= 0; i-- {
		part := min(n-taken, available[i])
		slots[i] -= part
		taken += part
	}
	return taken
}
