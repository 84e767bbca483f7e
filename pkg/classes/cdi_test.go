// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"errors"
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// cdiName is what CDI allows as the name of a device (SPEC.md, "CDI JSON Specification").
var cdiName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$`)

func TestTheNameOfACDIDeviceSaysWhichClassItIs(t *testing.T) {
	for _, p := range []Pair{{RDTResource, "gold"}, {"vendor.example/xyz-qos", "a_b-c.d"}, {"qos.noderesource.dev/pod-blockio", "1"}} {
		name := CDIName(p)
		if !cdiName.MatchString(name) {
			t.Errorf("CDI does not allow the name %q", name)
		}
		if got, ours := ParseCDIDevice(CDIDevice(p)); !ours || got != p {
			t.Errorf("device %q is of %v (%t), want %v", CDIDevice(p), got, ours, p)
		}
	}
	if _, ours := ParseCDIDevice("vendor.example/gpu=k8s.io:rdt::gold"); ours {
		t.Error("a device of another vendor allocates a class")
	}
}

func TestCDIDevicesBecomeAnnotationsOfAllocatedClasses(t *testing.T) {
	gold := Pair{RDTResource, "gold"}
	got := WithDevices(map[string]string{"a": "b"}, []string{"vendor.example/gpu=0", CDIDevice(gold)})
	if diff := cmp.Diff(map[string]string{"a": "b", "allocated.qos.noderesource.dev/k8s.io:rdt::gold": "k8s.io/rdt=gold"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWithDevicesDoesNotChangeTheAnnotationsOfTheRuntime(t *testing.T) {
	annotations := map[string]string{"a": "b"}
	WithDevices(annotations, []string{CDIDevice(Pair{RDTResource, "gold"})})
	if want := map[string]string{"a": "b"}; !maps.Equal(annotations, want) {
		t.Errorf("the annotations are now %v, want %v", annotations, want)
	}
}

// TestAVariableForAClassThatNoCDIDeviceAllocatesIsRefused gives a container the CDI device of gold. A runtime that does
// not report CDI devices to NRI shows only the variable; the container would run without its class.
func TestAVariableForAClassThatNoCDIDeviceAllocatesIsRefused(t *testing.T) {
	gold, silver := Pair{RDTResource, "gold"}, Pair{RDTResource, "silver"}
	h := Holder{PodUID: "1", Container: "main", ContainerAnnotations: WithDevices(nil, []string{CDIDevice(gold)})}
	if err := h.CheckDevices([]string{"PATH=/bin", CDIEnvironment(gold)}); err != nil {
		t.Errorf("an allocated class is refused: %v", err)
	}
	err := h.CheckDevices([]string{CDIEnvironment(silver)})
	if !errors.Is(err, ErrBadRequest) || !strings.Contains(err.Error(), "not allocated") {
		t.Errorf("the error for a class that is only in the environment is %v", err)
	}
}
