// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	kubelettest "github.com/qos-nri/qos-nri-plugin/test/kubelet"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// forever is longer than any test.
const forever = time.Hour

func TestKubeletReportsTheCapacityOfEveryClassWithAnExtendedResource(t *testing.T) {
	r := newRig(t)
	r.startKubelet()
	r.run()
	if err := r.publisher.Healthy(); err == nil || !strings.Contains(err.Error(), "it has not answered yet") {
		t.Errorf("before the plugin was ready, Healthy returned %v, want an error with that reason", err)
	}

	r.plugin.ready(offered(2))
	r.awaitGold(2, 2)
	r.await(bronze, 1000, 1000)
	r.await(fast, 4, 4)
	r.soon("healthy", func() bool { return r.publisher.Healthy() == nil })
	want := `
# HELP qos_shim_device_plugins Classes with a device plugin that the kubelet watches.
# TYPE qos_shim_device_plugins gauge
qos_shim_device_plugins 3
# HELP qos_shim_registrations_total Registrations of device plugins that kubelet has accepted.
# TYPE qos_shim_registrations_total counter
qos_shim_registrations_total 3
`

	r.soon("the metrics agree", func() bool { // kubelet calls ListAndWatch before it answers the registration
		return testutil.GatherAndCompare(r.registry, strings.NewReader(want), "qos_shim_device_plugins", "qos_shim_registrations_total") == nil
	})
}

func TestNothingIsRegisteredBeforeThePluginIsReady(t *testing.T) {
	r := newRig(t)
	r.publisher.grace = time.Nanosecond
	r.startKubelet()
	r.run()
	r.plugin.away()
	r.soon("the publisher has noticed that the plugin is away", r.plugin.seenAway.Load)
	r.plugin.ready(offered(1))
	r.awaitGold(1, 1)
	if got := r.kubelet.Resource(gold); got.Registrations != 1 || got.Messages != 1 {
		t.Errorf("%d registrations and %d device lists, want one of each, after the plugin was ready", got.Registrations, got.Messages)
	}
}

func TestAKubeletThatStartsLaterOrRestartsGetsTheClasses(t *testing.T) {
	r := newRig(t)
	must.Do(t, os.MkdirAll(r.kubelet.PluginsDir(), 0o750))

	r.plugin.ready(offered(2))
	r.run()
	r.soon("the log has the missing kubelet", func() bool { return strings.Contains(r.log.String(), "kubelet does not answer") })
	r.startKubelet()
	r.awaitGold(2, 2)
	r.admit(pod("a", map[string]int{gold: 1}))
	for range 3 {
		r.kubelet.Kill()
		r.startKubelet()
		r.awaitGold(2, 2)
		r.await(bronze, 1000, 1000)
		r.await(fast, 4, 4)
	}

	r.admit(pod("b", map[string]int{gold: 1}))
	if err := r.kubelet.Admit(context.Background(), pod("c", map[string]int{gold: 1})); err == nil {
		t.Error("a third pod was admitted, although the class has only two devices")
	}
}

func TestAClassIsRegisteredAgainWhenKubeletLosesItsConnection(t *testing.T) {
	r := newRig(t)
	r.start(2)
	for range 2 {
		before := r.kubelet.Resource(gold).Registrations
		r.kubelet.Disconnect(gold)
		r.until("registered again", func() bool { return r.kubelet.Resource(gold).Registrations > before })
		r.awaitGold(2, 2)
	}
}

func TestARemovedSocketIsMadeAgainWithoutANewRegistration(t *testing.T) {
	r := newRig(t)
	r.start(2)
	before := r.traffic()
	socket := r.socketOf(gold)
	must.Do(t, os.Remove(socket))

	r.soon("the socket exists again", func() bool {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})

	r.admit(pod("a", map[string]int{gold: 1}))
	if diff := cmp.Diff(before, r.traffic()); diff != "" || r.kubelet.Resource(gold).Registrations != 1 {
		t.Errorf("kubelet was notified again (-before +after):\n%s", diff)
	}

	// at its end, the publisher removes the socket
	r.stop()
	if names := r.sockets(); len(names) > 0 {
		t.Errorf("sockets are left: %v", names)
	}
}

func (r *rig) socketOf(resource string) string {
	r.Helper()
	name := must.Get(socketName(r.kubelet.PluginsDir(), resource))(r)
	return filepath.Join(r.kubelet.PluginsDir(), name)
}

// sockets returns the names of all sockets in kubelet's directory except its own.
func (r *rig) sockets() []string {
	r.Helper()
	entries := must.Get(os.ReadDir(r.kubelet.PluginsDir()))(r)
	var names []string
	for _, entry := range entries {
		if entry.Type() == fs.ModeSocket && entry.Name() != "kubelet.sock" {
			names = append(names, entry.Name())
		}
	}
	return names
}

func TestAKubeletDirectoryThatIsMadeAgainIsUsed(t *testing.T) {
	r := newRig(t)
	r.start(2)
	r.kubelet.Kill()
	// RemoveAll fails if the publisher creates a socket in the directory at the same time.
	r.soon("the directory is gone", func() bool { return os.RemoveAll(r.kubelet.PluginsDir()) == nil })
	r.soon("the log names the flag", func() bool { return strings.Contains(r.log.String(), "--kubelet-dir") })
	r.startKubelet()
	r.awaitGold(2, 2)
}

func TestAClassIsAddedChangedAndRemovedWithoutMessagesForOthers(t *testing.T) {
	r := newRig(t)
	r.start(2)
	before := r.traffic()

	r.plugin.ready(offered(5))
	r.awaitGold(5, 5)
	r.plugin.ready(offered(3))
	r.awaitGold(3, 3)
	if got := r.kubelet.Resource(gold).Registrations; got != 1 {
		t.Errorf("gold was registered %d times, want once", got)
	}

	with := offered(3)
	silver := "qos.noderesource.dev/rdt.silver"
	with.ContainerQosResources[0].Classes = append(with.ContainerQosResources[0].Classes,
		&qosv1alpha1.QOSResourceClassInfo{Name: "silver", Capacity: 1, ExtendedResource: silver})
	r.plugin.ready(with)
	r.await(silver, 1, 1)

	r.plugin.ready(offered(3))
	r.until("silver is gone", func() bool { return !r.kubelet.Resource(silver).Followed })
	if got := r.kubelet.Resource(silver); got.Capacity != 0 || got.Messages != 3 {
		t.Errorf("after silver was removed, kubelet has %+v; want no devices, and 3 device lists: healthy, unhealthy, empty", got)
	}

	// The sockets of gold, bronze and fast are left.
	r.soon("the socket of silver is gone", func() bool { return len(r.sockets()) == 3 })
	r.plugin.ready(with) // a class that was removed can be added again
	r.await(silver, 1, 1)
	if diff := cmp.Diff(before, r.traffic()); diff != "" {
		t.Errorf("device lists of other classes were sent again (-before +after):\n%s", diff)
	}
}

func TestADrainingClassKeepsItsAllocatedDevicesUntilKubeletFreesThem(t *testing.T) {
	r := newRig(t)
	r.start(2)
	r.admit(pod("a", map[string]int{gold: 1}))
	draining := offered(2)
	draining.ContainerQosResources[0].Classes[0].Draining = true
	r.plugin.ready(draining)
	r.awaitGold(1, 1)
	r.kubelet.Remove("default", "a")
	r.awaitGold(0, 0)
}

func TestAllocateAnswersWithTheClassAndRefusesMoreThanOneUnit(t *testing.T) {
	r := newRig(t)
	r.start(3)
	p := pod("a", map[string]int{gold: 1, fast: 1, bronze: 1})
	p.InitContainers = []kubelettest.Container{{Name: "setup", Limits: map[string]int{gold: 1}}}
	r.admit(p)
	fastKey := annotationKey(fast)
	want := map[string]string{
		"allocated.qos.noderesource.dev/rdt.gold":   "k8s.io/rdt=gold",
		"allocated.qos.noderesource.dev/rdt.bronze": "k8s.io/rdt=bronze",
		fastKey: "vendor.example/net=fast",
	}

	if diff := cmp.Diff(want, r.kubelet.Annotations("default", "a", "app")); diff != "" {
		t.Errorf("annotations differ (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff(r.kubelet.Devices("default", "a", "setup", gold), r.kubelet.Devices("default", "a", "app", gold)); diff != "" {
		t.Errorf("the container has another device than its init container:\n%s", diff)
	}

	err := r.kubelet.Admit(context.Background(), pod("greedy", map[string]int{gold: 2}))
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "request 1 of "+gold) {
		t.Errorf("a container that requests two devices of a class: got %v, want a refusal with the remedy", err)
	}

	// the granted ones are those of the container setup, and of app for three classes
	metric := `
# HELP qos_shim_allocations_total Allocate requests of kubelet, by outcome: granted or refused.
# TYPE qos_shim_allocations_total counter
qos_shim_allocations_total{outcome="granted"} 4
qos_shim_allocations_total{outcome="refused"} 1
`

	if err := testutil.GatherAndCompare(r.registry, strings.NewReader(metric), "qos_shim_allocations_total"); err != nil {
		t.Error(err)
	}
}

func TestOnlyStaleSocketsOfTheShimAreRemoved(t *testing.T) {
	r := newRig(t)
	dir := r.kubelet.PluginsDir()
	must.Do(t, os.MkdirAll(dir, 0o750))

	stale := filepath.Join(dir, "qos-shim-rdt.old-01234567.sock")
	foreign := filepath.Join(dir, "gpu.sock")
	files := []string{filepath.Join(dir, "qos-shim-notes.txt"), filepath.Join(dir, "qos-shim-a-01234567.sock")} // not sockets
	for _, path := range []string{stale, foreign, r.socketOf(gold)} {
		leaveSocket(t, path)
	}

	for _, path := range files {
		must.Do(t, os.WriteFile(path, nil, 0o600))
	}

	r.plugin.ready(offered(1))
	r.run()
	r.soon("the socket of a class that is gone is removed", func() bool {
		_, err := os.Lstat(stale)
		return err != nil
	})

	// These are the sockets of gold, bronze and fast, and gpu.sock.
	r.soon("the sockets of the classes are there", func() bool { return len(r.sockets()) == 4 })
	for _, path := range append(files, foreign) {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("another program's file was removed: %v", err)
		}
	}

	// The stale socket of gold was replaced. Only root may connect to the new one.
	if info, err := os.Lstat(r.socketOf(gold)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("gold's socket has the mode %v and the error %v, want mode 0600", info.Mode(), err)
	}
}

// leaveSocket creates a socket file that no process serves. A killed process leaves such a file behind.
func leaveSocket(t *testing.T, path string) {
	t.Helper()
	l := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))(t)
	l.SetUnlinkOnClose(false)
	_ = l.Close()
}

func TestARestartedPublisherRegistersItsClassesAgain(t *testing.T) {
	r := newRig(t)
	r.start(2)
	r.admit(pod("a", map[string]int{gold: 1}))
	r.stop()
	r.until("kubelet has no healthy device", func() bool { return r.kubelet.Resource(gold).Allocatable == 0 })
	r.replacePublisher()
	r.run()
	r.awaitGold(2, 2)
}

func TestAWrongDirectoryIsLoggedOnceWithTheRemedy(t *testing.T) {
	r := newRig(t)
	r.plugin.ready(offered(1))
	r.run()
	r.soon("the problem is logged", func() bool { return strings.Contains(r.log.String(), "set --kubelet-dir") })
	if err := r.publisher.Healthy(); err == nil || !strings.Contains(err.Error(), r.kubelet.PluginsDir()) {
		t.Errorf("Healthy returned %v, want an error that names the missing directory", err)
	}
	r.startKubelet()
	r.awaitGold(1, 1)
	if n := strings.Count(r.log.String(), r.kubelet.PluginsDir()+" does not exist;"); n != 1 {
		t.Errorf("the problem was logged %d times:\n%s", n, r.log)
	}
}

// TestWithoutPodResourcesAnAllocatedClassIsAccountedFor has the pod a, whose class kubelet allocated, and the pod b with an annotation. One
// of the three devices is unhealthy because of b.
func TestWithoutPodResourcesAnAllocatedClassIsAccountedFor(t *testing.T) {
	r := newRig(t)
	r.kubelet.HidePodResources(true)
	r.start(3)
	r.admit(pod("a", map[string]int{gold: 1}))
	r.plugin.ready(offered(3), podOf("a", inGold("app", "1", allocated)), podOf("b", inGold("app", "2", annotated)))
	r.awaitGold(3, 2)
	if n := strings.Count(r.log.String(), "mount its pod-resources directory"); n != 1 {
		t.Errorf("the remedy was logged %d times:\n%s", n, r.log)
	}

	// after a restart, kubelet serves its PodResources API
	r.kubelet.Kill()
	r.kubelet.HidePodResources(false)
	r.startKubelet()
	r.soon("kubelet is polled again", func() bool { return strings.Contains(r.log.String(), "API answers again") })
	r.awaitGold(3, 2)
}

// TestDevicePluginsWaitWhileTheDRADriverOffersTheClasses checks that the publisher registers nothing before the driver has ended, and that
// it keeps what is registered when a driver starts later, because that driver waits.
func TestDevicePluginsWaitWhileTheDRADriverOffersTheClasses(t *testing.T) {
	r := newRig(t)
	dir := filepath.Join(r.kubelet.Root(), "plugins", "qos.noderesource.dev")
	must.Do(t, os.MkdirAll(dir, 0o750))
	startDriver := func() net.Listener {
		t.Helper()
		driver := must.Get((&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, "dra.sock")))(t)
		driver.(*net.UnixListener).SetUnlinkOnClose(false) // as a driver that was killed
		return driver
	}
	driver := startDriver()

	r.startKubelet()
	r.plugin.ready(offered(2))
	r.run()
	r.soon("the publisher says why it waits", func() bool {
		err := r.publisher.Healthy()
		return err != nil && strings.Contains(err.Error(), "qos-dra-driver offers the classes of the node") && strings.Contains(err.Error(), "--retire")
	})
	if got := r.kubelet.Resource(gold); got.Registrations != 0 {
		t.Errorf("%d registrations beside the driver", got.Registrations)
	}
	_ = driver.Close()
	r.awaitGold(2, 2)

	must.Do(t, os.Remove(filepath.Join(dir, "dra.sock")))
	defer startDriver().Close()
	r.plugin.ready(offered(3))
	r.awaitGold(3, 3)
}
