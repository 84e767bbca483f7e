// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/cachetest"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

func goldAndSilver() []*qosv1alpha1.QOSResourceClassInfo {
	return []*qosv1alpha1.QOSResourceClassInfo{class("gold", 3), class("silver", 1)}
}

const goldDevice, silverDevice = "qos.noderesource.dev/class=k8s.io:rdt::gold", "qos.noderesource.dev/class=k8s.io:rdt::silver"

func TestEachRequestOfAClaimGetsTheDeviceOfItsClass(t *testing.T) {
	d := newDriver(t, t.TempDir(), state(goldAndSilver()))
	c := claim("1", "rdt-gold", "rdt-silver")
	// The driver ignores the device of another driver.
	c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{
		Request: "gpu", Driver: "gpu.example", Pool: "gpus", Device: "gpu-0",
	})
	for range 2 { // the kubelet may ask again
		devices, err := d.prepareOne(t, c)
		if diff := cmp.Diff(map[string]string{"request-0": goldDevice, "request-1": silverDevice}, devices); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	if got := d.record.counts()[classes.Pair{Resource: "k8s.io/rdt", Class: "gold"}]["rdt-gold"]; got != 1 {
		t.Errorf("%d allocations of gold are recorded, want 1", got)
	}
}

// TestAClassIsAllocatedByItsOwnDeviceClass prepares claims that got gold by another DeviceClass, e.g. by one that
// selects all devices. The driver refuses them, because quotas and policies know the class by the name of its
// DeviceClass.
func TestAClassIsAllocatedByItsOwnDeviceClass(t *testing.T) {
	for _, test := range []struct {
		deviceClass, alternative string // alternative is the allocated choice of firstAvailable, or empty
		allowed                  bool
	}{{"rdt.gold", "", true}, {"rdt.gold", "best", true}, {"all", "", false}, {"all", "best", false}, {"rdt.silver", "", false}} {
		d := newDriver(t, t.TempDir(), state(goldAndSilver()))
		c := claim("1", "rdt-gold")
		r, result := &c.Spec.Devices.Requests[0], &c.Status.Allocation.Devices.Results[0]
		r.Exactly.DeviceClassName = test.deviceClass
		if test.alternative != "" {
			r.FirstAvailable = []resourcev1.DeviceSubRequest{
				{Name: test.alternative, DeviceClassName: test.deviceClass}, {Name: "next", DeviceClassName: "rdt.silver"},
			}
			r.Exactly = nil
			result.Request += "/" + test.alternative
		}
		_, err := d.prepareOne(t, c)
		want := `request ` + result.Request + ` has allocated class "gold" of k8s.io/rdt by DeviceClass "` + test.deviceClass + `"`
		if test.allowed && err != nil || !test.allowed && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("by DeviceClass %s, alternative %q: %v", test.deviceClass, test.alternative, err)
		}
	}
}

func TestClaimsThatCannotHaveASlotAreRefusedAndNotRecorded(t *testing.T) {
	ready := state([]*qosv1alpha1.QOSResourceClassInfo{class("gold", 3), {
		Name: "old", ExtendedResource: "qos.noderesource.dev/rdt.old", Draining: true,
	}})
	away := ready
	away.NotReadySince, away.Problem = time.Now(), "it has gone"
	yes := true

	for name, test := range map[string]struct {
		away   bool
		device string
		change func(results []resourcev1.DeviceRequestAllocationResult)
		want   string
	}{
		"the plugin is not ready":  {away: true, device: "rdt-gold", want: "qos-nri-plugin is not ready on this node"},
		"an unknown class":         {device: "rdt-bronze", want: "device rdt-bronze is not configured on this node"},
		"a removed class":          {device: "rdt-old", want: `class "old" of k8s.io/rdt is no longer configured on this node`},
		"a device of another node": {device: "rdt-gold", want: "is of node node-2", change: func(r []resourcev1.DeviceRequestAllocationResult) { r[0].Pool = "node-2" }},
		"access as an administrator": {
			device: "rdt-gold", want: "remove adminAccess", change: func(r []resourcev1.DeviceRequestAllocationResult) { r[0].AdminAccess = &yes },
		},
		"two units": {device: "rdt-gold", want: "only one unit of a class", change: func(r []resourcev1.DeviceRequestAllocationResult) { r[1].Request = r[0].Request }},
	} {
		t.Run(name, func(t *testing.T) {
			s := ready
			if test.away {
				s = away
			}
			d := newDriver(t, t.TempDir(), s)
			c := claim("1", test.device, test.device)
			if test.change != nil {
				test.change(c.Status.Allocation.Devices.Results)
			}
			_, err := d.prepareOne(t, c)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "claim shop/c-1") {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
			if len(d.record.claims) > 0 {
				t.Errorf("the refused claim is recorded: %v", d.record.claims)
			}
		})
	}
}

// TestAPreparedClaimStaysUntilItIsUnprepared prepares a claim again after restarts of the driver, when its class has been removed,
// and when the plugin has not answered yet.
func TestAPreparedClaimStaysUntilItIsUnprepared(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t, dir, state(goldAndSilver()))
	c := claim("1", "rdt-gold")
	must.Get(d.prepareOne(t, c))(t)
	for _, again := range []*Driver{
		newDriver(t, dir, state([]*qosv1alpha1.QOSResourceClassInfo{class("silver", 1)})),
		newDriver(t, dir, nodecache.State{}),
	} {
		if devices, err := again.prepareOne(t, c); err != nil || devices["request-0"] != goldDevice {
			t.Errorf("the devices are %v, %v", devices, err)
		}
	}
	if spec := readFile(t, filepath.Join(dir, cdiFile)); !strings.Contains(spec, "k8s.io:rdt::gold") {
		t.Errorf("the runtime does not know the device of the claim any more:\n%s", spec)
	}

	last := newDriver(t, dir, state(goldAndSilver()))
	for range 2 { // the kubelet may ask again
		if err := last.unprepareOne(t, c); err != nil {
			t.Error(err)
		}
	}
	if after := newDriver(t, dir, state(goldAndSilver())); len(after.record.claims) > 0 {
		t.Errorf("the claim is still recorded: %v", after.record.claims)
	}
}

// TestEachPodOfASharedClaimTakesASlot prepares a claim for a pod, and again for a second pod. The scheduler counts one slot
// for the claim, so the driver publishes one slot fewer for the second pod.
func TestEachPodOfASharedClaimTakesASlot(t *testing.T) {
	gold := []*qosv1alpha1.QOSResourceClassInfo{class("gold", 3)}
	d := newDriver(t, t.TempDir(), state(gold))
	c := claim("1", "rdt-gold")
	var pods []*qosv1alpha1.PodAssignments
	slots := func(want string) {
		t.Helper()
		if diff := cmp.Diff([]string{want}, slicesOf(state(gold, pods...), d.record.counts(), false)); diff != "" {
			t.Errorf("with %d pods (-want +got):\n%s", len(pods), diff)
		}
	}

	for i, want := range []string{"rdt-gold=3", "rdt-gold=2"} {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", UID: types.UID(rune('a' + i))})
		if devices, err := d.prepareOne(t, c); err != nil || devices["request-0"] != goldDevice {
			t.Errorf("the devices are %v, %v", devices, err)
		}
		pods = append(pods, has("gold", qosv1alpha1.Source_SOURCE_ALLOCATED))
		slots(want)
	}
	pods = pods[1:] // the first pod has ended
	slots("rdt-gold=3")
}

// TestAClaimThatIsAllocatedAgainGetsItsPresentClass prepares a claim whose allocation has changed since the driver recorded it: first
// the device, then only the share of the device. The kubelet did not unprepare the claim before.
func TestAClaimThatIsAllocatedAgainGetsItsPresentClass(t *testing.T) {
	d := newDriver(t, t.TempDir(), state(goldAndSilver()))
	for _, step := range []struct {
		device, share string
		want          string
	}{{"rdt-gold", "share-1", goldDevice}, {"rdt-silver", "share-1", silverDevice}, {"rdt-silver", "share-2", silverDevice}} {
		c := claim("1", step.device)
		share := types.UID(step.share)
		c.Status.Allocation.Devices.Results[0].ShareID = &share
		c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", UID: "pod of " + share}}
		devices, err := d.prepareOne(t, c)
		if known := d.record.claims["1"]; err != nil || devices["request-0"] != step.want || *known.Allocations[0].ShareID != share {
			t.Errorf("devices %v, error %v, record %+v, want %s of %s", devices, err, known, step.want, share)
		}
	}

	// The record does not replace the check of a new allocation.
	if devices, err := d.prepareOne(t, claim("1", "rdt-bronze")); err == nil {
		t.Errorf("the claim of a class that does not exist gets the devices %v, want an error", devices)
	}
}

func TestADriverThatHasJustStartedRefusesClaimsWithTheReason(t *testing.T) {
	d := newDriver(t, t.TempDir(), nodecache.State{})
	d.plugin = cachetest.New(state(goldAndSilver()))
	if _, err := d.prepareOne(t, claim("1", "rdt-gold")); err == nil || !strings.Contains(err.Error(), "the driver has just started") {
		t.Errorf("the error is %v", err)
	}
}

func TestAClaimThatCannotBeRecordedIsNotPrepared(t *testing.T) {
	d := newDriver(t, t.TempDir(), state(goldAndSilver()))
	d.record.path = filepath.Join(t.TempDir(), "missing", "claims.json")
	if devices, err := d.prepareOne(t, claim("1", "rdt-gold")); err == nil || len(devices) > 0 || len(d.record.claims) > 0 {
		t.Errorf("devices %v, error %v, record %v; want only an error", devices, err, d.record.claims)
	}
}

func TestADamagedRecordIsAnErrorWithTheRemedy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "claims.json")
	must.Do(t, os.WriteFile(path, []byte("{"), 0o600))
	if _, err := openRecord(path); err == nil || !strings.Contains(err.Error(), "drain the node, and remove the file") {
		t.Errorf("the error is %v", err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data := must.Get(os.ReadFile(path))(t)
	return string(data)
}
