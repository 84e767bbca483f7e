// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// request is the request of a pod with one container, "main".
type request struct {
	// `pod` has the pod's annotations. `cri` has the CRI annotations, which the kubelet sets on the container.
	pod, cri map[string]string
	// `classes` has the requested classes by resource. The class "" is the system default.
	classes map[string]string
	// `device` is the path of the block device for which the request has a class of volumes. It is empty if there is none.
	device string
	// `never` is the reason why the request is always refused. It is empty if the request can be granted.
	never string
}

func (r request) String() string {
	var parts []string
	for key, value := range r.pod {
		parts = append(parts, key+": "+value[:min(len(value), 60)])
	}
	for key, value := range r.cri {
		parts = append(parts, key+": "+value)
	}
	slices.Sort(parts)
	return "{" + strings.Join(parts, ", ") + "}"
}

const (
	ofMain   = "container.qos.noderesource.dev/main"
	ofPod    = "qos.noderesource.dev/pod"
	ofVolume = "volumes.qos.noderesource.dev/main"
	disk     = "/dev/vdb" // every Site has this disk
)

func pick(random *rand.Rand, from ...string) string { return from[random.IntN(len(from))] }

// newRequest returns a request in one of the possible forms, mostly for classes that may exist.
func newRequest(random *rand.Rand) request {
	r := request{pod: map[string]string{}, cri: map[string]string{}, classes: map[string]string{}}
	class := pick(random, "gold", "gold", "silver", "bronze", "")
	switch random.IntN(18) {
	case 0, 1, 2:
		return r
	case 3:
		r.pod[ofPod] = "rdt=" + class
		r.classes[rdt] = class
	case 4:
		r.cri["allocated.qos.noderesource.dev/rdt.gold"] = rdt + "=gold"
		r.classes[rdt] = "gold"
	case 5:
		r.pod["rdt.resources.beta.kubernetes.io/container.main"] = class
		r.classes[rdt] = class
	case 6, 10:
		r.pod[ofPod] = podIO + "=low"
		r.classes[podIO] = "low"
	case 7, 8:
		io := pick(random, "slow", "heavy", "")
		r.pod[ofMain] = "blockio=" + io + ",rdt=" + class
		r.classes[rdt] = class
		r.classes[blockIO] = io
	case 9:
		return newWrongRequest(r, random)
	case 11, 12, 13:
		r.addVolume(pick(random, "calm", "few"))
		if random.IntN(2) > 0 {
			r.pod[ofPod] = podIO + "=low"
			r.classes[podIO] = "low"
		}
	default:
		r.pod[ofMain] = "rdt=" + class
		r.classes[rdt] = class
	}

	return r
}

// newBoundedRequest returns a request that is mostly for a class with a capacity.
func newBoundedRequest(random *rand.Rand) request {
	r := request{classes: map[string]string{}}
	switch random.IntN(4) {
	case 3:
		r.pod = map[string]string{}
		r.addVolume("few")
	case 0:
		r.pod = map[string]string{ofPod: podIO + "=low"}
		r.classes[podIO] = "low"
	case 1:
		r.pod = map[string]string{ofMain: "blockio=heavy"}
		r.classes[blockIO] = "heavy"
	default:
		r.pod = map[string]string{ofPod: "rdt=gold"}
		r.classes[rdt] = "gold"
	}

	return r
}

// addVolume requests a class for a block device.
func (r *request) addVolume(class string) {
	r.device, r.pod[ofVolume] = disk, disk+"="+class
	r.classes[volumeIO] = class
}

// newWrongRequest returns a request that is always refused.
func newWrongRequest(r request, random *rand.Rand) request {
	switch random.IntN(6) {
	case 0:
		r.pod[ofMain], r.never = "rdt=platinum", unknownClass
	case 1:
		r.pod[ofMain], r.never = "vendor.example/none=fast", unknownResource
	case 2:
		r.pod[ofMain], r.never = "rdt = bronze", badRequest
	case 3:
		r.pod[ofMain], r.never = podIO+"=low", badRequest
	case 4:
		r.pod[ofMain], r.never = strings.Repeat("x", 200_000), badRequest
	case 5:
		r.pod[ofMain], r.never = "rdt=bronze", contradiction
		r.cri["allocated.qos.noderesource.dev/rdt.gold"] = rdt + "=gold"
	}

	return r
}

// may returns the reasons for which the plugin may refuse the request while the class file `c` is in force. `must` is true if
// the plugin must refuse it.
func (r request) may(c classFile) (reasons []string, must bool) {
	if r.never != "" {
		// A resource or class that is not configured is refused as unknown, whatever else is wrong with the request.
		return []string{r.never, unknownResource, unknownClass}, true
	}

	for resource, class := range r.classes {
		switch known := c.classes(resource); {
		case known == nil:
			reasons, must = append(reasons, unknownResource), true
		case class != "" && !slices.Contains(known, class):
			reasons, must = append(reasons, unknownClass), true
		case c.bounded(class):
			reasons = append(reasons, classFull)
		}
	}

	return reasons, must
}
