// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestWhileThePluginDoesNotAnswerFreeDevicesBecomeUnhealthyAfterTheGrace(t *testing.T) {
	const grace = 300 * time.Millisecond
	r := newRig(t)
	r.publisher.grace = grace
	r.start(2)
	r.admit(pod("a", map[string]int{gold: 1}))
	away := time.Now()
	r.plugin.away()
	r.awaitGold(2, 1)
	if passed := time.Since(away); passed < grace {
		t.Errorf("devices became unhealthy after %v, want at least the grace period %v", passed, grace)
	}

	r.await(bronze, 1000, 0)
	if err := r.kubelet.Admit(context.Background(), pod("b", map[string]int{gold: 1})); err == nil {
		t.Error("a pod was admitted while the plugin was away")
	}

	// an allocated device stays healthy until its pod ends
	r.kubelet.Remove("default", "a")
	r.awaitGold(2, 0)
	r.plugin.ready(offered(2))
	r.awaitGold(2, 2)
	r.await(bronze, 1000, 1000)
	if got := r.kubelet.Resource(gold).Registrations; got != 1 {
		t.Errorf("gold was registered %d times, want once", got)
	}
}

func TestAPluginThatIsBackWithinTheGraceChangesNothing(t *testing.T) {
	r := newRig(t)
	r.start(2)
	before := r.traffic()
	r.plugin.away()
	r.soon("the publisher has noticed that the plugin is away", r.plugin.seenAway.Load)
	r.plugin.ready(offered(3)) // another capacity shows when kubelet has the state of the plugin that is back
	r.awaitGold(3, 3)
	if got := r.kubelet.Resource(gold); got.Messages != 2 {
		t.Errorf("kubelet got %d device lists of gold, want two: first with 2 devices, then with 3", got.Messages)
	}
	if diff := cmp.Diff(before, r.traffic()); diff != "" {
		t.Errorf("device lists of other classes were sent again (-before +after):\n%s", diff)
	}
}

// TestAnUnaccountedAssignmentMakesADeviceUnhealthy has a static pod, for which kubelet allocates no device. The device is healthy again when
// the static pod has ended.
func TestAnUnaccountedAssignmentMakesADeviceUnhealthy(t *testing.T) {
	r := newRig(t)
	r.start(3)
	static := podOf("static", inGold("app", "1", annotated))
	r.plugin.ready(offered(3), static)
	r.awaitGold(3, 2)
	want := `
# HELP qos_shim_devices Devices that the shim lists for kubelet, by health.
# TYPE qos_shim_devices gauge
qos_shim_devices{health="healthy",resource="qos.noderesource.dev/rdt.bronze"} 1000
qos_shim_devices{health="healthy",resource="qos.noderesource.dev/rdt.gold"} 2
qos_shim_devices{health="healthy",resource="vendor.example/net.fast"} 4
qos_shim_devices{health="unhealthy",resource="qos.noderesource.dev/rdt.bronze"} 0
qos_shim_devices{health="unhealthy",resource="qos.noderesource.dev/rdt.gold"} 1
qos_shim_devices{health="unhealthy",resource="vendor.example/net.fast"} 0
# HELP qos_shim_unaccounted_assignments Assignments without a device from kubelet, in classes with a capacity; the shim withholds one free device for each assignment.
# TYPE qos_shim_unaccounted_assignments gauge
qos_shim_unaccounted_assignments{resource="qos.noderesource.dev/rdt.bronze"} 0
qos_shim_unaccounted_assignments{resource="qos.noderesource.dev/rdt.gold"} 1
qos_shim_unaccounted_assignments{resource="vendor.example/net.fast"} 0
`

	if err := testutil.GatherAndCompare(r.registry, strings.NewReader(want), "qos_shim_devices", "qos_shim_unaccounted_assignments"); err != nil {
		t.Error(err)
	}

	r.admit(pod("a", map[string]int{gold: 1}))
	r.plugin.ready(offered(3), podOf("a", inGold("app", "2", allocated)), static)
	r.admit(pod("b", map[string]int{gold: 1}))
	if err := r.kubelet.Admit(context.Background(), pod("c", map[string]int{gold: 1})); err == nil {
		t.Error("a device of a static pod was allocated")
	}

	r.plugin.ready(offered(3), podOf("a", inGold("app", "2", allocated)), podOf("b", inGold("app", "3", allocated)))
	r.awaitGold(3, 3)
}

// TestNoDeviceVanishesWhileKubeletAllocatesIt reduces the capacity from 3 to 1 while kubelet allocates the third device. The device first
// stays listed as unhealthy, and is healthy after the allocation.
func TestNoDeviceVanishesWhileKubeletAllocatesIt(t *testing.T) {
	r := newRig(t)
	r.publisher.timing.deviceTTL = forever
	r.start(3)
	r.admit(pod("a", map[string]int{gold: 1}))
	r.admit(pod("b", map[string]int{gold: 1}))
	r.kubelet.DuringAllocate = func() {
		r.plugin.ready(offered(1))
		r.awaitGold(3, 2)
	}
	r.admit(pod("c", map[string]int{gold: 1})) // the test kubelet fails if the device is no longer listed
	r.awaitGold(3, 3)
}

func TestKubeletIsPolledAfterAnAllocation(t *testing.T) {
	r := newRig(t)
	r.publisher.timing.poll, r.publisher.timing.pollMax = forever, forever
	r.start(10)
	for i := range 10 { // registrations may have caused the first poll
		name := fmt.Sprintf("pod-%d", i)
		r.admit(pod(name, map[string]int{gold: 1}))
		r.until("kubelet has listed the pod", func() bool { return r.kubelet.Listed("default", name) > 0 })
	}
}

// TestKubeletIsPolledWhileMoreDevicesAreAllocatedThanTheCapacity reduces the capacity to 1 while two devices are allocated, so both stay
// listed. Kubelet sends no event when it frees one, so only polling finds this.
func TestKubeletIsPolledWhileMoreDevicesAreAllocatedThanTheCapacity(t *testing.T) {
	r := newRig(t)
	r.start(2)
	r.admit(pod("a", map[string]int{gold: 1}))
	r.admit(pod("b", map[string]int{gold: 1}))
	r.plugin.ready(offered(1))
	r.until("kubelet has been polled", func() bool { return r.kubelet.Lists() > 3 })
	r.kubelet.Remove("default", "a")
	r.awaitGold(1, 1)
}
