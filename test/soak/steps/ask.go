// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// ask is the request of a pod with one container, "main".
type ask struct {
	// pod are the pod's annotations; cri are CRI annotations, which the kubelet sets on the container.
	pod, cri map[string]string
	// rdt, blockIO and podIO are the requested classes; asked has the resources with a request.
	rdt, blockIO, podIO string
	asked               map[string]bool
	// never is the reason why the request is always refused; empty if it can be granted.
	never string
}

func (a ask) String() string {
	var parts []string
	for key, value := range a.pod {
		parts = append(parts, key+": "+value[:min(len(value), 60)])
	}
	for key, value := range a.cri {
		parts = append(parts, key+": "+value)
	}
	slices.Sort(parts)
	return "{" + strings.Join(parts, ", ") + "}"
}

const (
	ofMain = "container.qos.noderesource.dev/main"
	ofPod  = "qos.noderesource.dev/pod"
)

func pick(random *rand.Rand, from ...string) string { return from[random.IntN(len(from))] }

// newAsk returns a request in one of the possible forms, mostly for classes that may exist.
func newAsk(random *rand.Rand) ask {
	a := ask{pod: map[string]string{}, cri: map[string]string{}, asked: map[string]bool{}}
	class := pick(random, "gold", "gold", "silver", "bronze", "")
	switch random.IntN(15) {
	case 0, 1, 2:
		return a
	case 3:
		a.pod[ofPod] = "rdt=" + class
		a.wants(rdt, class)
	case 4:
		a.cri["allocated.qos.noderesource.dev/rdt.gold"] = rdt + "=gold"
		a.wants(rdt, "gold")
	case 5:
		a.pod["rdt.resources.beta.kubernetes.io/container.main"] = class
		a.wants(rdt, class)
	case 6, 10:
		a.pod[ofPod] = podIO + "=low"
		a.wants(podIO, "low")
	case 7, 8:
		io := pick(random, "slow", "heavy", "")
		a.pod[ofMain] = "blockio=" + io + ",rdt=" + class
		a.wants(rdt, class)
		a.wants(blockIO, io)
	case 9:
		return newWrongAsk(a, random)
	default:
		a.pod[ofMain] = "rdt=" + class
		a.wants(rdt, class)
	}
	return a
}

// newBoundedAsk returns a request that is mostly for a class with a capacity.
func newBoundedAsk(random *rand.Rand) ask {
	a := ask{asked: map[string]bool{}}
	switch random.IntN(3) {
	case 0:
		a.pod = map[string]string{ofPod: podIO + "=low"}
		a.wants(podIO, "low")
	case 1:
		a.pod = map[string]string{ofMain: "blockio=heavy"}
		a.wants(blockIO, "heavy")
	default:
		a.pod = map[string]string{ofPod: "rdt=gold"}
		a.wants(rdt, "gold")
	}
	return a
}

func (a *ask) wants(resource, class string) {
	a.asked[resource] = true
	switch resource {
	case rdt:
		a.rdt = class
	case blockIO:
		a.blockIO = class
	case podIO:
		a.podIO = class
	}
}

// newWrongAsk returns a request that is always refused.
func newWrongAsk(a ask, random *rand.Rand) ask {
	switch random.IntN(6) {
	case 0:
		a.pod[ofMain], a.never = "rdt=platinum", unknownClass
	case 1:
		a.pod[ofMain], a.never = "vendor.example/none=fast", unknownResource
	case 2:
		a.pod[ofMain], a.never = "rdt = bronze", badRequest
	case 3:
		a.pod[ofMain], a.never = podIO+"=low", badRequest
	case 4:
		a.pod[ofMain], a.never = strings.Repeat("x", 200_000), badRequest
	case 5:
		a.pod[ofMain], a.never = "rdt=bronze", contradiction
		a.cri["allocated.qos.noderesource.dev/rdt.gold"] = rdt + "=gold"
	}
	return a
}

// may returns the reasons for which a class file permits a refusal; must is whether it must be refused.
func (a ask) may(c classFile) (reasons []string, must bool) {
	if a.never != "" {
		// What is not configured is unknown, whatever else is wrong.
		return []string{a.never, unknownResource, unknownClass}, true
	}
	for resource, class := range a.classes() {
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

// classes returns the requested classes by resource.
func (a ask) classes() map[string]string {
	asked := map[string]string{rdt: a.rdt, blockIO: a.blockIO, podIO: a.podIO}
	maps.DeleteFunc(asked, func(resource, _ string) bool { return !a.asked[resource] })
	return asked
}
