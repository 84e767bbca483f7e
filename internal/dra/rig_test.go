// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/test/cachetest"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

const node = "node-1"

// state returns the state of a plugin with these classes of k8s.io/rdt and assignments.
func state(classes []*qosv1alpha1.QOSResourceClassInfo, pods ...*qosv1alpha1.PodAssignments) nodecache.State {
	status := &qosv1alpha1.StatusResponse{Resources: &qosv1alpha1.ResourcesInfo{
		ContainerQosResources: []*qosv1alpha1.QOSResourceInfo{{Name: "k8s.io/rdt", Kind: "rdt", Mutable: true, Classes: classes}},
	}}
	return nodecache.State{Status: status, Latest: status, Assignments: &qosv1alpha1.ListAssignmentsResponse{Pods: pods}}
}

// class returns a class of k8s.io/rdt.
func class(name string, capacity uint64) *qosv1alpha1.QOSResourceClassInfo {
	return &qosv1alpha1.QOSResourceClassInfo{Name: name, Capacity: capacity, ExtendedResource: "qos.noderesource.dev/rdt." + name}
}

// has returns a pod whose container has a class of k8s.io/rdt. If its source is an allocation, a claim has allocated it.
func has(class string, source qosv1alpha1.Source) *qosv1alpha1.PodAssignments {
	assignment := &qosv1alpha1.Assignment{Name: "k8s.io/rdt", Class: class, Source: source}
	if source == qosv1alpha1.Source_SOURCE_ALLOCATED {
		assignment.RequestedBy = "allocated.qos.noderesource.dev/k8s.io:rdt::" + class
	}
	return &qosv1alpha1.PodAssignments{Containers: []*qosv1alpha1.ContainerAssignments{{
		Name: "main", QosResources: []*qosv1alpha1.Assignment{assignment},
	}}}
}

// hasDevice returns a pod to whose container a device plugin has allocated a class of k8s.io/rdt.
func hasDevice(class string) *qosv1alpha1.PodAssignments {
	pod := has(class, qosv1alpha1.Source_SOURCE_ALLOCATED)
	pod.Containers[0].QosResources[0].RequestedBy = "allocated.qos.noderesource.dev/rdt." + class
	return pod
}

// newDriver returns a driver that has published the classes of a state. The parameter `dir` has its files.
func newDriver(t *testing.T, dir string, s nodecache.State) *Driver {
	t.Helper()
	d := New(cachetest.New(s), fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}),
		Options{NodeName: node, CDIDir: dir, Grace: time.Minute}, slog.New(slog.DiscardHandler))
	d.record = must.Get(openRecord(filepath.Join(dir, "claims.json")))(t)
	if s.Status != nil {
		must.Get(d.update(s, false))(t)
	}
	return d
}

// claim returns a claim that has allocated devices of the driver. Each has a request of its own, request-0 and so on, which names the
// DeviceClass of the device.
func claim(uid types.UID, devices ...string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c-" + string(uid), UID: uid}}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for i, device := range devices {
		request, name := "request-"+string(rune('0'+i)), strings.Split(device, "-")
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, resourcev1.DeviceRequest{
			Name: request, Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: name[0] + "." + name[1]},
		})
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{
			Request: request, Driver: DriverName, Pool: node, Device: device,
		})
	}
	return c
}

// ofWeb returns a claim like claim, which is reserved for the pod of web.
func ofWeb(uid types.UID, devices ...string) *resourcev1.ResourceClaim {
	c := claim(uid, devices...)
	c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "web", UID: "pod-uid"}}
	return c
}

// prepareOne prepares a claim, and returns the CDI devices of its requests, or the error.
func (d *Driver) prepareOne(t *testing.T, c *resourcev1.ResourceClaim) (map[string]string, error) {
	t.Helper()
	results, err := d.PrepareResourceClaims(t.Context(), []*resourcev1.ResourceClaim{c})
	if err != nil || len(results) != 1 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	devices := map[string]string{}
	for _, device := range results[c.UID].Devices {
		if device.PoolName != node || len(device.Requests) != 1 || len(device.CDIDeviceIDs) != 1 {
			t.Errorf("device %+v", device)
		}
		devices[device.Requests[0]] = device.CDIDeviceIDs[0]
	}
	return devices, results[c.UID].Err
}

func (d *Driver) unprepareOne(t *testing.T, c *resourcev1.ResourceClaim) error {
	t.Helper()
	results, err := d.UnprepareResourceClaims(t.Context(), []kubeletplugin.NamespacedObject{{UID: c.UID}})
	if _, answered := results[c.UID]; err != nil || !answered {
		t.Fatalf("results %v, %v", results, err)
	}
	return results[c.UID]
}
