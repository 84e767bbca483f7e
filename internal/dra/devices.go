// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"regexp"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// These are the names of a device's attributes and of its capacity, all in the domain of the driver.
const (
	attributeResource, attributeClass, attributeScope     = "resource", "class", "scope"
	attributeKind, attributeDescription, attributeMutable = "kind", "description", "mutable"

	// Slots is the name of the capacity. Each allocation consumes one slot.
	Slots = "slots"
	// maxSlots limits the value of the capacity.
	maxSlots = 1 << 31
)

// These are the keys of the taints of devices.
const (
	taintRemoved  = classes.Domain + "/removed"
	taintNotReady = classes.Domain + "/not-ready"
)

// device is the device of a class, for the whole node or for one domain of the node.
type device struct {
	classes.Pair

	domain      *domain // nil for the whole node
	divided     bool    // true for a class with a device for each domain
	kind        string  // of the resource, e.g. "rdt"
	name        string  // of the device in the ResourceSlice
	extended    string  // name of the extended resource
	deviceClass string  // name of the DeviceClass, or "" if Kubernetes allows none
	description string
	podScope    bool
	mutable     bool
	draining    bool
	evicts      bool   // true for a draining class if Kubernetes must delete its pods with claims
	capacity    uint64 // of the class on the node, or on the domain of the device; 0 if the class has no limit
}

// markEvicting marks the devices of classes whose pods the plugin requests to evict.
func markEvicting(list []device, evictions []*qosv1alpha1.Eviction) {
	for i := range list {
		list[i].evicts = slices.ContainsFunc(evictions, func(e *qosv1alpha1.Eviction) bool {
			return e.GetResource() == list[i].Resource && e.GetClass() == list[i].Class
		})
	}
}

// maxReadable is the maximum length of the readable part of a device's name. It leaves room for a digest and the suffix
// of a domain in a DNS label.
const maxReadable = validation.DNS1123LabelMaxLength - len("-01234567") - maxSuffix

// readableName matches the names of extended resources that need no digest to be unique as the name of a device.
var readableName = regexp.MustCompile(`^[a-z0-9]+\.[a-z0-9]+$`)

// deviceName returns the name of the device for an extended resource, e.g. rdt-gold for qos.noderesource.dev/rdt.gold. A device name is a
// DNS label, so most names get a digest, which keeps them unique.
func deviceName(extended string) string {
	name, ours := strings.CutPrefix(extended, classes.Domain+"/")
	if ours && readableName.MatchString(name) && len(name) <= maxReadable {
		return strings.Replace(name, ".", "-", 1)
	}

	readable := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name[strings.LastIndexByte(name, '/')+1:]))
	sum := sha256.Sum256([]byte(extended))
	return strings.Trim(readable[:min(len(readable), maxReadable)], "-") + "-" + hex.EncodeToString(sum[:4])
}

// devicesOf returns a device for each class that pods can request. A device is `divided` if `perDomain` has the name or
// the short name of its resource, or if the values of its class differ between caches. If several classes need the same
// device name, the first one that is not draining gets it.
func devicesOf(r *qosv1alpha1.ResourcesInfo, perDomain []string) []device {
	var list, draining []device
	for _, c := range nodecache.RequestableClasses(r) {
		deviceClass, _ := classes.DeviceClass(c.GetExtendedResource())
		d := device{
			Pair: classes.Pair{Resource: c.Resource.GetName(), Class: c.GetName()}, kind: c.Resource.GetKind(),
			name: deviceName(c.GetExtendedResource()), extended: c.GetExtendedResource(), deviceClass: deviceClass,
			description: c.GetDescription(), podScope: c.PodScope, mutable: c.Resource.GetMutable(),
			draining: c.GetDraining(), capacity: c.GetCapacity(),
			divided: differs(c.GetValues()) || slices.ContainsFunc(perDomain, func(name string) bool {
				return classes.CanonicalResource(name) == c.Resource.GetName()
			}),
		}
		if d.draining {
			draining = append(draining, d)
		} else {
			list = append(list, d)
		}
	}

	names := map[string]bool{}
	return slices.DeleteFunc(append(list, draining...), func(d device) bool {
		known := names[d.name]
		names[d.name] = true
		return known
	})
}

// publishable reports whether the attributes of the device fit into a ResourceSlice.
func (d *device) publishable() bool {
	return max(len(d.Resource), len(d.Class)) <= resourcev1.DeviceAttributeMaxValueLength
}

// owners has the numbers of containers and pods that have a class.
type owners struct {
	allocated int // those that have the class by a claim, and pods with a class of pod scope
	others    int
}

// ownersOf counts the containers and pods of each class.
func ownersOf(assignments *qosv1alpha1.ListAssignmentsResponse) map[classes.Pair]owners {
	all := map[classes.Pair]owners{}
	count := func(list []*qosv1alpha1.Assignment, podScope bool) {
		for _, a := range list {
			p := classes.Pair{Resource: a.GetName(), Class: a.GetClass()}
			o := all[p]
			// A pod gets its class by an annotation, even if the class is allocated to one of its containers.
			if podScope || a.GetSource() == qosv1alpha1.Source_SOURCE_ALLOCATED && classes.AllocatedByClaim(a.GetRequestedBy()) {
				o.allocated++
			} else {
				o.others++
			}
			all[p] = o
		}
	}

	for _, pod := range assignments.GetPods() {
		count(pod.GetQosResources(), true)
		for _, container := range pod.GetContainers() {
			count(container.GetQosResources(), false)
		}
	}
	return all
}

// pool returns the ResourceSlices of the node. `withheld` is true if no pod may get a class now.
func pool(state nodecache.State, list []device, prepared preparedCounts, withheld bool) resourceslice.Pool {
	slots := slotsOf(list, ownersOf(state.Assignments), prepared)
	var devices []resourcev1.Device
	for i := range list {
		d := &list[i]
		if !d.publishable() || d.capacity > 0 && slots[i] == 0 { // Kubernetes allows no capacity of 0 with a default of 1
			continue
		}
		devices = append(devices, d.published(slots[i], withheld))
	}

	var p resourceslice.Pool
	for part := range slices.Chunk(devices, resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures) {
		p.Slices = append(p.Slices, resourceslice.Slice{Devices: part})
	}
	if len(p.Slices) == 0 {
		p.Slices = []resourceslice.Slice{{}} // shows that the driver runs
	}
	return p
}

// published returns the device for a ResourceSlice. A device without a capacity can be allocated any number of times.
func (d *device) published(slots int64, withheld bool) resourcev1.Device {
	scope := string(classes.ContainerScope)
	if d.podScope {
		scope = string(classes.PodScope)
	}
	text := func(s string) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{StringValue: &s} }
	published := resourcev1.Device{
		Name: d.name, AllowMultipleAllocations: new(true),
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			attributeResource: text(d.Resource), attributeClass: text(d.Class), attributeKind: text(d.kind),
			attributeScope: text(scope), attributeMutable: {BoolValue: &d.mutable},
		},
	}
	if d.description != "" {
		published.Attributes[attributeDescription] = text(kubeapi.Cut(d.description, resourcev1.DeviceAttributeMaxValueLength, ""))
	}
	if d.domain != nil {
		maps.Copy(published.Attributes, d.domain.attributes())
	}
	if d.capacity > 0 {
		one := *resource.NewQuantity(1, resource.DecimalSI)
		published.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{Slots: {
			Value: *resource.NewQuantity(slots, resource.DecimalSI),
			// A claim gets one slot, even if it requests no capacity.
			RequestPolicy: &resourcev1.CapacityRequestPolicy{Default: &one, ValidValues: []resource.Quantity{one}},
		}}
	}

	taint := func(key string, effect resourcev1.DeviceTaintEffect) {
		published.Taints = append(published.Taints, resourcev1.DeviceTaint{Key: key, Effect: effect})
	}
	switch {
	case d.draining && d.evicts:
		taint(taintRemoved, resourcev1.DeviceTaintEffectNoExecute)
	case d.draining:
		taint(taintRemoved, resourcev1.DeviceTaintEffectNoSchedule)
	}
	if withheld {
		taint(taintNotReady, resourcev1.DeviceTaintEffectNoSchedule)
	}
	return published
}
