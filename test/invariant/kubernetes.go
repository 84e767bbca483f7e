// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// Kubernetes is the state of a node in the kubelet and the Kubernetes API.
type Kubernetes struct {
	// Devices has the units that the kubelet has allocated to each container.
	Devices map[PodContainer][]string
	// Requests has the units in the limits of each container on the node.
	Requests map[PodContainer][]string
	// Capacity has the capacity in the node's status, in units.
	Capacity map[string]int64
	// Resources is the status of the NodeQOSResources object.
	Resources nodeqosv1alpha1.QOSResourceStatus
}

// PodContainer names a container of a pod.
type PodContainer struct{ Namespace, Pod, Container string }

func (p PodContainer) String() string {
	return fmt.Sprintf("pod %s/%s container %s", p.Namespace, p.Pod, p.Container)
}

// domain is the prefix of the names of extended resources.
const domain = "qos.noderesource.dev/"

// unitOf returns the extended resource of a class.
func unitOf(resource, class string) string {
	if name, ours := strings.CutPrefix(resource, "k8s.io/"); ours {
		resource = domain + name
	}
	return resource + "." + class
}

// DevicesOf lists the devices that the kubelet has allocated to containers.
func DevicesOf(ctx context.Context, kubelet podresources.PodResourcesListerClient) (map[PodContainer][]string, error) {
	list, err := kubelet.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list pods of the kubelet: %w", err)
	}

	devices := map[PodContainer][]string{}
	for _, pod := range list.GetPodResources() {
		for _, ctr := range pod.GetContainers() {
			of := PodContainer{Namespace: pod.GetNamespace(), Pod: pod.GetName(), Container: ctr.GetName()}
			for _, device := range ctr.GetDevices() {
				if strings.HasPrefix(device.GetResourceName(), domain) {
					devices[of] = append(devices[of], slices.Repeat([]string{device.GetResourceName()}, len(device.GetDeviceIds()))...)
				}
			}
		}
	}

	return devices, nil
}

// kubernetes compares the plugin's reports with the kubelet and the Kubernetes API.
func (c *check) kubernetes() {
	if c.Kubernetes == nil {
		return
	}
	c.devices()
	c.published()
}

// devices compares three things: the units that containers request, the units that the kubelet has allocated, and the
// containers' allocated classes.
func (c *check) devices() {
	assigned, allocated := map[PodContainer][]string{}, map[PodContainer][]string{}
	for _, h := range c.holders {
		of := PodContainer{Namespace: h.pod.GetNamespace(), Pod: h.pod.GetName(), Container: h.container}
		for _, a := range h.classes {
			if a.GetClass() == "" || h.container == "" {
				continue
			}
			unit := unitOf(a.GetName(), a.GetClass())
			assigned[of] = append(assigned[of], unit)
			if isAllocated(a.GetSource(), unit, c.Kubernetes.Devices[of]) {
				allocated[of] = append(allocated[of], unit)
			}
		}
	}

	used := map[string]int64{}
	for _, ctr := range c.Live.Containers {
		of := PodContainer{Namespace: ctr.PodNamespace, Pod: ctr.PodName, Container: ctr.Name}
		devices := c.Kubernetes.Devices[of]
		if requests := c.Kubernetes.Requests[of]; !sameUnits(requests, devices) {
			c.wrong("%s requests %v, but the kubelet has allocated %v", of, requests, devices)
		}
		if !sameUnits(allocated[of], devices) {
			c.wrong("%s has allocated classes %v, but the kubelet has allocated %v", of, allocated[of], devices)
		}
		for _, unit := range assigned[of] {
			used[unit]++
		}
	}

	for _, unit := range slices.Sorted(maps.Keys(used)) {
		if capacity := c.Kubernetes.Capacity[unit]; used[unit] > capacity {
			c.wrong("%d containers have %s, but the node has %d", used[unit], unit, capacity)
		}
	}
}

// isAllocated reports whether the kubelet has allocated a class. If the pod also requests the class by an annotation,
// as the policies require, the source of the class is the annotation.
func isAllocated(source qosv1alpha1.Source, unit string, devices []string) bool {
	switch source {
	case qosv1alpha1.Source_SOURCE_ALLOCATED:
		return true
	case qosv1alpha1.Source_SOURCE_CONTAINER, qosv1alpha1.Source_SOURCE_POD:
		return slices.Contains(devices, unit)
	default:
		return false
	}
}

func sameUnits(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// published compares the node's object with the plugin's report.
func (c *check) published() {
	holders := map[Class][]string{}
	for _, h := range c.holders {
		for _, a := range h.classes {
			if a.GetClass() != "" {
				of := Class{Resource: a.GetName(), Name: a.GetClass()}
				holders[of] = append(holders[of], h.pod.GetNamespace()+"/"+h.pod.GetName()+"/"+h.container)
			}
		}
	}

	objects := map[string]map[string]nodeqosv1alpha1.QOSResourceClassInfo{}
	for _, r := range slices.Concat(c.Kubernetes.Resources.ContainerQOSResources, c.Kubernetes.Resources.PodQOSResources) {
		objects[r.Name] = map[string]nodeqosv1alpha1.QOSResourceClassInfo{}
		for _, class := range r.Classes {
			objects[r.Name][class.Name] = class
		}
	}

	for _, resource := range slices.Sorted(maps.Keys(c.offered)) {
		for _, class := range c.offered[resource].GetClasses() {
			object, there := objects[resource][class.GetName()]
			if !there {
				c.wrong("the node's object has no class %q of %s", class.GetName(), resource)
				continue
			}
			published := []string{}
			for _, h := range object.Holders {
				published = append(published, h.Namespace+"/"+h.Pod+"/"+h.Container)
			}
			want := holders[Class{Resource: resource, Name: class.GetName()}]
			if object.HoldersOmitted == 0 && !sameUnits(want, published) {
				c.wrong("the node's object has %v in class %q of %s, but the plugin reports %v", published, class.GetName(), resource, want)
			}
			if object.InUse != int64(class.GetInUse()) {
				c.wrong("the node's object has %d in use of class %q of %s, but the plugin reports %d", object.InUse, class.GetName(), resource, class.GetInUse())
			}
		}
	}
}
