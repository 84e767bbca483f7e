// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// PrepareResourceClaims records the classes that are allocated to claims, and returns the CDI devices of the classes.
// The kubelet calls it again after a restart, and gets the same answer.
func (d *Driver) PrepareResourceClaims(_ context.Context, claims []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	d.mu.Lock()
	defer d.mu.Unlock()

	results := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	for _, claim := range claims {
		results[claim.UID] = d.prepare(claim)
	}
	return results, nil
}

func (d *Driver) prepare(claim *resourcev1.ResourceClaim) (result kubeletplugin.PrepareResult) {
	known, recorded := d.record.claims[claim.UID]
	if !recorded || !known.isOf(claim) {
		allocations, err := d.allocationsOf(claim)
		if err == nil {
			known = prepared{Namespace: claim.Namespace, Name: claim.Name, Pods: podsOf(claim), Allocations: allocations}
			err = d.record.add(claim.UID, known)
		}
		if err != nil {
			return kubeletplugin.PrepareResult{Err: fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err)}
		}
	}

	for _, a := range known.Allocations {
		result.Devices = append(result.Devices, kubeletplugin.Device{
			Requests: []string{a.Request}, PoolName: d.options.NodeName, DeviceName: a.Device, ShareID: a.ShareID,
			CDIDeviceIDs: []string{classes.CDIDevice(a.Pair)},
		})
	}
	return result
}

// isOf reports whether a claim still has the recorded allocations. A claim can be allocated again before the kubelet
// has unprepared it, e.g. if its pod was deleted by force while the node was offline.
func (p prepared) isOf(claim *resourcev1.ResourceClaim) bool {
	return slices.EqualFunc(p.Allocations, resultsOf(claim), func(a allocation, r *resourcev1.DeviceRequestAllocationResult) bool {
		sameShare := a.ShareID == r.ShareID || a.ShareID != nil && r.ShareID != nil && *a.ShareID == *r.ShareID
		return a.Request == r.Request && a.Device == r.Device && sameShare
	})
}

// resultsOf returns the allocated devices of a claim that belong to this driver.
func resultsOf(claim *resourcev1.ResourceClaim) (ours []*resourcev1.DeviceRequestAllocationResult) {
	for i := range claim.Status.Allocation.Devices.Results {
		if r := &claim.Status.Allocation.Devices.Results[i]; r.Driver == DriverName {
			ours = append(ours, r)
		}
	}
	return ours
}

// podsOf returns the pods for which a claim is reserved.
func podsOf(claim *resourcev1.ResourceClaim) []types.UID {
	var pods []types.UID
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.APIGroup == "" && consumer.Resource == "pods" {
			pods = append(pods, consumer.UID)
		}
	}
	return pods
}

// allocationsOf returns the allocations of a claim. It refuses allocations that occupy no slot of their class.
func (d *Driver) allocationsOf(claim *resourcev1.ResourceClaim) ([]allocation, error) {
	if d.options.Retire {
		return nil, errors.New("this node offers its classes by device plugins now, and the DRA driver serves only earlier claims; " +
			"delete the pod, and request the class in its limits, or use another node")
	}
	if state, _ := d.plugin.Get(); !state.Ready() || d.devices == nil {
		return nil, fmt.Errorf("qos-nri-plugin is not ready on this node, so no class can be given: %s; the kubelet tries again",
			cmp.Or(state.Problem, "the driver has just started, and has not read the classes yet"))
	}
	var list []allocation
	requests := map[string]bool{}
	for _, r := range resultsOf(claim) {
		device, offered := d.devices[r.Device]
		switch {
		case r.Pool != d.options.NodeName:
			return nil, fmt.Errorf("device %s is of node %s", r.Device, r.Pool)
		case !offered:
			return nil, fmt.Errorf("device %s is not configured on this node; delete the pod, and request another class, or use another node", r.Device)
		case device.draining:
			return nil, fmt.Errorf("class %q of %s is no longer configured on this node; delete the pod, and request another class, or use another node",
				device.Class, device.Resource)
		case r.AdminAccess != nil && *r.AdminAccess:
			return nil, fmt.Errorf("request %s has adminAccess, which takes no slot of class %q; remove adminAccess", r.Request, device.Class)
		case classOf(claim, r.Request) != device.deviceClass:
			return nil, fmt.Errorf("request %s has allocated class %q of %s by DeviceClass %q, with which neither quotas nor policies count the class; "+
				"request DeviceClass %q", r.Request, device.Class, device.Resource, classOf(claim, r.Request), device.deviceClass)
		case requests[r.Request]:
			return nil, fmt.Errorf("a container can have only one unit of a class, but request %s has more; request 1", r.Request)
		}
		requests[r.Request] = true
		list = append(list, allocation{Pair: device.Pair, Request: r.Request, Device: r.Device, ShareID: r.ShareID})
	}
	return list, nil
}

// classOf returns the DeviceClass of a request of a claim. `request` has the form "request/subrequest" if the request
// lists alternatives.
func classOf(claim *resourcev1.ResourceClaim, request string) string {
	name, alternative, _ := strings.Cut(request, "/")
	for _, r := range claim.Spec.Devices.Requests {
		if r.Name == name && r.Exactly != nil {
			return r.Exactly.DeviceClassName
		}
		for _, sub := range r.FirstAvailable {
			if r.Name == name && sub.Name == alternative {
				return sub.DeviceClassName
			}
		}
	}
	return ""
}

// UnprepareResourceClaims removes the records of claims whose pods have ended. The slots are free as soon as the
// containers have ended.
func (d *Driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	d.mu.Lock()
	defer d.mu.Unlock()

	results := make(map[types.UID]error, len(claims))
	for _, claim := range claims {
		results[claim.UID] = d.record.remove(claim.UID)
	}
	return results, nil
}
