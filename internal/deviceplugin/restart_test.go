// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	kubelettest "github.com/qos-nri/qos-nri-plugin/test/kubelet"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// awaitPolls waits until kubelet has answered a few more times.
func (r *rig) awaitPolls() {
	r.Helper()
	before := r.kubelet.Lists()
	r.until("kubelet has been polled again", func() bool { return r.kubelet.Lists() > before+2 })
}

func (r *rig) restartKubelet() {
	r.Helper()
	r.kubelet.Kill()
	r.startKubelet()
}

// allocateThreeThenOfferOne allocates three gold devices to the pods a, b and c, and then reduces the capacity to 1.
func (r *rig) allocateThreeThenOfferOne() {
	r.Helper()
	r.start(3)
	var pods []*qosv1alpha1.PodAssignments
	for _, name := range []string{"a", "b", "c"} {
		r.admit(pod(name, map[string]int{gold: 1}))
		pods = append(pods, podOf(name, inGold("app", "id-"+name, allocated)))
	}
	r.plugin.ready(offered(1), pods...)
	r.awaitPolls()
	r.awaitAllThree()
}

// awaitAllThree waits until the devices of the pods a, b and c are listed and healthy, although only one device is offered.
func (r *rig) awaitAllThree() {
	r.Helper()
	r.awaitGold(3, 3)
}

// readmitOneByOne admits pods again, and checks that all three devices of gold stay healthy.
func (r *rig) readmitOneByOne(names ...string) {
	r.Helper()
	r.awaitAllThree()
	for _, name := range names {
		r.awaitPolls()
		r.readmit(name)
	}
	r.awaitPolls()
	r.awaitAllThree()
}

func TestARestartedKubeletAdmitsAllItsPodsOneByOne(t *testing.T) {
	for name, startup := range map[string]time.Duration{"during its startup": forever, "after its startup time": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.publisher.timing.startup = startup
			r.allocateThreeThenOfferOne()
			r.restartKubelet()
			r.readmitOneByOne("b", "c", "a")
		})
	}
}

func TestAPodWithoutARunningContainerKeepsItsDeviceWhileKubeletStarts(t *testing.T) {
	r := newRig(t)
	r.publisher.timing.startup = forever // during the whole test, kubelet may still have to report pods
	r.allocateThreeThenOfferOne()
	r.restartKubelet()
	r.awaitAllThree()
	r.plugin.ready(offered(1)) // the runtime has removed all containers
	r.awaitPolls()
	r.readmit("c", "b", "a")
}

func TestAShimThatStartsWithKubeletKeepsAllAllocatedDevices(t *testing.T) {
	r := newRig(t)
	r.allocateThreeThenOfferOne()
	r.stop()
	r.replacePublisher()
	r.publisher.timing.startup = forever // during the whole test, kubelet may still have to report pods
	r.restartKubelet()
	r.run()
	r.readmitOneByOne("c", "a", "b")
}

// TestAKubeletThatRestartsBeforeTheShimIsRegisteredKeepsAllAllocatedDevices restarts the kubelet long after the start of the shim. The
// shim has no stream whose end would show the restart, because it could not register.
func TestAKubeletThatRestartsBeforeTheShimIsRegisteredKeepsAllAllocatedDevices(t *testing.T) {
	r := newRig(t)
	r.allocateThreeThenOfferOne()
	r.stop()
	must.Do(t, os.Remove(filepath.Join(r.kubelet.PluginsDir(), kubeletSocket))) // the next shim cannot register

	r.replacePublisher()
	var later atomic.Int64
	begin := time.Now()
	r.publisher.timing = timing{
		now: func() time.Time { return begin.Add(time.Duration(later.Load())) }, debounce: time.Millisecond, deviceTTL: time.Millisecond,
		startup: time.Minute, poll: forever, pollMax: forever,
	}
	r.plugin.ready(offered(1)) // the runtime has removed all containers
	r.run()
	r.soon("the shim has read the allocations", r.publisher.published.Load)

	later.Store(int64(time.Hour))
	r.restartKubelet()
	r.awaitAllThree()
	r.readmit("c", "b", "a")
}

func TestTheDeviceOfAnEndedPodIsRemoved(t *testing.T) {
	r := newRig(t)
	r.allocateThreeThenOfferOne()
	r.restartKubelet()
	r.awaitAllThree()
	r.readmit("a")
	r.kubelet.Remove("default", "b")
	r.kubelet.Remove("default", "c")
	r.plugin.ready(offered(1), podOf("a", inGold("app", "id-a", allocated)))
	r.awaitGold(1, 1)
}

func TestWhileThePluginDoesNotAnswerARestartedKubeletAdmitsOnlyItsPods(t *testing.T) {
	r := newRig(t)
	r.publisher.grace = 10 * time.Millisecond
	r.publisher.timing.startup = forever // during the whole test, kubelet may still have to report pods
	r.start(3)
	r.admit(pod("a", map[string]int{gold: 1}))
	r.plugin.ready(offered(3), podOf("a", inGold("app", "1", allocated)))
	r.awaitA()
	r.plugin.away()
	r.awaitGold(3, 1) // after the grace time, only the device of pod a is healthy
	r.restartKubelet()
	r.awaitGold(3, 1)
	r.awaitPolls()
	r.readmit("a")
	if err := r.kubelet.Admit(context.Background(), pod("b", map[string]int{gold: 1})); err == nil {
		t.Error("a new pod was admitted while the plugin was away")
	}
}

// awaitA waits until kubelet has reported the pod a in an answer.
func (r *rig) awaitA() {
	r.Helper()
	r.until("a was listed", func() bool { return r.kubelet.Listed("default", "a") > 0 })
}

// TestTheDeviceOfAnEndedInitContainerBecomesUnhealthyLast: kubelet has allocated one of three devices to the init container of pod a, but
// does not report this device. Two other containers have class gold by annotation and have no device, so two devices become unhealthy.
// The healthy one must be that of the init container.
func TestTheDeviceOfAnEndedInitContainerBecomesUnhealthyLast(t *testing.T) {
	r := newRig(t)
	r.start(3)
	for _, name := range []string{"x", "y"} { // so that the device of pod a has a higher number
		r.admit(pod(name, map[string]int{gold: 1}))
	}

	p := pod("a", nil)
	p.InitContainers = []kubelettest.Container{{Name: "setup", Limits: map[string]int{gold: 1}}}
	r.admit(p)
	r.awaitA()
	r.kubelet.Remove("default", "x")
	r.kubelet.Remove("default", "y")
	r.plugin.ready(offered(3), podOf("a"), podOf("static", inGold("app", "1", annotated)), podOf("other", inGold("app", "2", annotated)))
	r.awaitGold(3, 1)
	if got, want := r.kubelet.Resource(gold).Healthy, r.kubelet.Devices("default", "a", "setup", gold); !slices.Equal(got, want) {
		t.Errorf("the healthy devices are %v, want that of the init container, %v", got, want)
	}

	// A restarted kubelet admits the pod again only if its device is healthy.
	r.restartKubelet()
	r.awaitGold(3, 1)
	r.readmit("a")
}

// TestARenamedClassIsPublishedOnce renames the class old to gold. Until old is empty, both have the extended resource.
func TestARenamedClassIsPublishedOnce(t *testing.T) {
	for name, at := range map[string]int{"gold first": 0, "old first": 1} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			both := offered(3) // old keeps the capacity 3, and gold has 2
			classes := both.ContainerQosResources[0].Classes
			classes[0].Name, classes[0].Draining = "old", true
			classes = slices.Insert(classes, at, &qosv1alpha1.QOSResourceClassInfo{Name: "gold", Capacity: 2, ExtendedResource: gold})
			both.ContainerQosResources[0].Classes = classes
			r.startKubelet()
			inOld := inGold("app", "1", annotated)
			inOld.QosResources[0].Class = "old"
			r.plugin.ready(both, podOf("static", inOld))
			r.run()
			r.awaitGold(2, 1) // one device is unhealthy, because the container in old has no device
			r.admit(pod("a", map[string]int{gold: 1}))
			r.awaitPolls()
			key := annotationKey(gold)
			if got := r.kubelet.Annotations("default", "a", "app")[key]; got != "k8s.io/rdt=gold" {
				t.Errorf("Allocate answered with %q, want k8s.io/rdt=gold", got)
			}

			// If both classes were published, each would replace the devices of the other one, with a message at each poll.
			if got := r.kubelet.Resource(gold); got.Registrations != 1 || got.Messages > 3 {
				t.Errorf("kubelet was notified repeatedly: %+v", got)
			}
		})
	}
}

func TestADrainingClassIsRefusedWithTheReason(t *testing.T) {
	r := newRig(t)
	r.publisher.timing.deviceTTL = forever
	r.start(1)
	r.plugin.ready(&qosv1alpha1.ResourcesInfo{}) // gold is removed, and its device stays listed as unhealthy
	r.awaitGold(1, 0)
	draining := goldClass(1)
	draining.draining = true
	removed := r.publisher.sorted()[1].look().class // gold, after bronze
	for name, c := range map[string]class{"drains": draining, "was removed": removed} {
		_, _, err := answer(c, nil)
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "no longer configured on this node") {
			t.Errorf("the answer for a class that %s is %v, want a refusal with the reason", name, err)
		}
	}
}
