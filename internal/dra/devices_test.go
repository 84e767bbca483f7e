// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
)

// slicesOf returns the devices that are published, as "name=slots" and their taints.
func slicesOf(s nodecache.State, prepared preparedCounts, withheld bool) (list []string) {
	for _, slice := range pool(s, devicesOf(s.Status.GetResources(), nil), prepared, withheld).Slices {
		for _, d := range slice.Devices {
			text := d.Name
			if c, limited := d.Capacity[Slots]; limited {
				text += "=" + c.Value.String()
			}
			for _, taint := range d.Taints {
				text += " " + taint.Key + ":" + string(taint.Effect)
			}
			list = append(list, text)
		}
	}
	return list
}

// TestSlotsThatAreInUseWithoutAClaimAreNotPublished: the driver publishes the capacity of a class without the slots that
// are in use without a claim. The scheduler itself subtracts one slot for each claim. A class whose slots are all in use
// without a claim is not published.
func TestSlotsThatAreInUseWithoutAClaimAreNotPublished(t *testing.T) {
	const allocated, container, standard = qosv1alpha1.Source_SOURCE_ALLOCATED, qosv1alpha1.Source_SOURCE_CONTAINER, qosv1alpha1.Source_SOURCE_DEFAULT
	gold := []*qosv1alpha1.QOSResourceClassInfo{class("gold", 3), class("bronze", 0)}
	removed := class("silver", 2)
	removed.Draining = true

	for name, test := range map[string]struct {
		state    nodecache.State
		prepared int // claims of gold
		withheld bool
		want     []string
	}{
		"all slots are free":                              {state: state(gold), want: []string{"rdt-gold=3", "rdt-bronze"}},
		"a container with a claim":                        {state: state(gold, has("gold", allocated)), prepared: 1, want: []string{"rdt-gold=3", "rdt-bronze"}},
		"a claim without a container":                     {state: state(gold), prepared: 1, want: []string{"rdt-gold=3", "rdt-bronze"}},
		"a container with an annotation":                  {state: state(gold, has("gold", container), has("bronze", standard)), want: []string{"rdt-gold=2", "rdt-bronze"}},
		"an annotation and an unused claim":               {state: state(gold, has("gold", container)), prepared: 1, want: []string{"rdt-gold=2", "rdt-bronze"}},
		"two containers with one claim":                   {state: state(gold, has("gold", allocated), has("gold", allocated)), prepared: 1, want: []string{"rdt-gold=2", "rdt-bronze"}},
		"a container with a device of a device plugin":    {state: state(gold, hasDevice("gold")), want: []string{"rdt-gold=2", "rdt-bronze"}},
		"a device of a device plugin and an unused claim": {state: state(gold, hasDevice("gold")), prepared: 1, want: []string{"rdt-gold=2", "rdt-bronze"}},
		"annotations for all slots":                       {state: state(gold, has("gold", container), has("gold", container), has("gold", container)), want: []string{"rdt-bronze"}},
		"a removed class":                                 {state: state([]*qosv1alpha1.QOSResourceClassInfo{removed}), want: []string{"rdt-silver=2 qos.noderesource.dev/removed:NoSchedule"}},
		"the plugin is not ready for too long":            {state: state(gold), withheld: true, want: []string{"rdt-gold=3 qos.noderesource.dev/not-ready:NoSchedule", "rdt-bronze qos.noderesource.dev/not-ready:NoSchedule"}},
	} {
		t.Run(name, func(t *testing.T) {
			prepared := preparedCounts{{Resource: "k8s.io/rdt", Class: "gold"}: {"rdt-gold": test.prepared}}
			if diff := cmp.Diff(test.want, slicesOf(test.state, prepared, test.withheld)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestAPodWithAClaimAndAnAnnotationTakesOneSlot has a pod with a class of pod scope, which needs both: the annotation
// requests the class, and the claim counts the slot for the scheduler.
func TestAPodWithAClaimAndAnAnnotationTakesOneSlot(t *testing.T) {
	net := &qosv1alpha1.QOSResourceClassInfo{Name: "fast", Capacity: 2, ExtendedResource: "qos.noderesource.dev/net.fast"}
	s := state(nil, &qosv1alpha1.PodAssignments{QosResources: []*qosv1alpha1.Assignment{
		{Name: "qos.noderesource.dev/net", Class: "fast", Source: qosv1alpha1.Source_SOURCE_POD},
	}})
	s.Status.Resources.PodQosResources = []*qosv1alpha1.QOSResourceInfo{{
		Name: "qos.noderesource.dev/net", Classes: []*qosv1alpha1.QOSResourceClassInfo{net},
	}}
	d := newDriver(t, t.TempDir(), s)
	slots := func(want string) {
		t.Helper()
		if diff := cmp.Diff([]string{want}, slicesOf(s, d.record.counts(), false)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}

	slots("net-fast=1") // the annotation alone takes one of the two slots

	c := claim("1", "net-fast")
	devices, err := d.prepareOne(t, c)
	if want := "qos.noderesource.dev/class=qos.noderesource.dev:net::fast"; err != nil || devices["request-0"] != want {
		t.Errorf("the devices are %v, %v, want %s", devices, err, want)
	}
	slots("net-fast=2") // the scheduler itself subtracts the slot of the claim

	if err := d.unprepareOne(t, c); err != nil {
		t.Error(err)
	}
	slots("net-fast=1") // without the claim, the annotation takes the slot again
}

// TestPodsOfARemovedClassAreDeletedOnRequest checks that this needs both a class file with onClassRemoved: evict, and a
// driver with --no-execute.
func TestPodsOfARemovedClassAreDeletedOnRequest(t *testing.T) {
	removed := class("gold", 3)
	removed.Draining = true
	s := state([]*qosv1alpha1.QOSResourceClassInfo{removed, class("silver", 1)})
	for _, test := range []struct {
		flag, evicts bool // --no-execute, and onClassRemoved: evict
		want         resourcev1.DeviceTaintEffect
	}{
		{flag: true, evicts: true, want: resourcev1.DeviceTaintEffectNoExecute},
		{flag: true, want: resourcev1.DeviceTaintEffectNoSchedule},
		{evicts: true, want: resourcev1.DeviceTaintEffectNoSchedule},
	} {
		s.Assignments.Evictions = nil
		if test.evicts {
			s.Assignments.Evictions = []*qosv1alpha1.Eviction{{Resource: "k8s.io/rdt", Class: "gold"}}
		}
		d := newDriver(t, t.TempDir(), s)
		d.options.NoExecute = test.flag
		for _, published := range devicesBy(t, d, s) {
			if published.Name == "rdt-gold" && (len(published.Taints) != 1 || published.Taints[0].Effect != test.want) {
				t.Errorf("flag %t, evicts %t: the taints are %v, want %s", test.flag, test.evicts, published.Taints, test.want)
			}
			if published.Name != "rdt-gold" && len(published.Taints) > 0 {
				t.Errorf("%s has the taints %v", published.Name, published.Taints)
			}
		}
	}
}

// TestAClaimCannotRequestAnotherAmountThanOneSlot checks the policy of the capacity. Without it, a claim could request 0 slots.
func TestAClaimCannotRequestAnotherAmountThanOneSlot(t *testing.T) {
	s := state([]*qosv1alpha1.QOSResourceClassInfo{class("gold", 3)})
	policy := devicesBy(t, newDriver(t, t.TempDir(), s), s)[0].Capacity[Slots].RequestPolicy
	if policy == nil || policy.Default.String() != "1" || len(policy.ValidValues) != 1 || policy.ValidValues[0].String() != "1" || policy.ValidRange != nil {
		t.Errorf("the policy is %+v, want 1 as the default and as the only value", policy)
	}
}

func TestADeviceDescribesItsClass(t *testing.T) {
	gold := class("gold", 3)
	gold.Description = strings.Repeat("x", 63) + "é, and more" // a value has at most 64 bytes, and é has two
	s := state([]*qosv1alpha1.QOSResourceClassInfo{gold})
	s.Status.Resources.PodQosResources = []*qosv1alpha1.QOSResourceInfo{{
		Name: "vendor.example/net", Kind: "external", Classes: []*qosv1alpha1.QOSResourceClassInfo{{Name: "fast", ExtendedResource: "vendor.example/net.fast"}},
	}}
	var seen []string
	for _, d := range devicesBy(t, newDriver(t, t.TempDir(), s), s) {
		a := d.Attributes
		text := fmt.Sprint(*a[attributeResource].StringValue, " ", *a[attributeClass].StringValue, " ", *a[attributeScope].StringValue, " ",
			*a[attributeMutable].BoolValue, " ", *a[attributeKind].StringValue)
		if description, described := a[attributeDescription]; described {
			text += " " + *description.StringValue
		}
		seen = append(seen, text)
	}
	want := []string{"k8s.io/rdt gold container true rdt " + strings.Repeat("x", 63), "vendor.example/net fast pod false external"}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNamesOfDevicesAreUniqueLabels(t *testing.T) {
	seen := map[string]string{}
	for _, extended := range []string{
		"qos.noderesource.dev/rdt.gold", "qos.noderesource.dev/rdt.Gold", "qos.noderesource.dev/rdt.high-prio", "qos.noderesource.dev/rdt-high.prio",
		"qos.noderesource.dev/rdt.a_b", "qos.noderesource.dev/rdt.a.b", "vendor.example/rdt.gold", "vendor.example/" + strings.Repeat("x", 63),
		"qos.noderesource.dev/" + strings.Repeat("x", 30) + "." + strings.Repeat("y", 32),
	} {
		name := deviceName(extended)
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			t.Errorf("%s has the device name %s: %v", extended, name, problems)
		}
		if other, used := seen[name]; used {
			t.Errorf("%s and %s have the device name %s", extended, other, name)
		}
		seen[name] = extended
	}
	// Only simple names stay readable: rdt.high-prio and rdt-high.prio would both be rdt-high-prio.
	if seen["rdt-gold"] != "qos.noderesource.dev/rdt.gold" {
		t.Errorf("the devices are %v", seen)
	}
	if !regexp.MustCompile(`^rdt-high-prio-[0-9a-f]{8}$`).MatchString(deviceName("qos.noderesource.dev/rdt.high-prio")) {
		t.Error("a name with a hyphen has no digest")
	}
}
