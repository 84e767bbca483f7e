// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"testing"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/invariant"
)

// TestACapacityMayBeLoweredBelowTheHoldersOfRetries simulates a class that gains holders because the plugin retries
// earlier requests. After that, a class file lowers the capacity of the class below the number of its holders. The class
// had one holder before, and may keep more only if they were within its earlier capacity.
func TestACapacityMayBeLoweredBelowTheHoldersOfRetries(t *testing.T) {
	status := func(file string, capacity, inUse uint64) *qosv1alpha1.StatusResponse {
		return &qosv1alpha1.StatusResponse{Resources: &qosv1alpha1.ResourcesInfo{ContainerQosResources: []*qosv1alpha1.QOSResourceInfo{{
			Name:    rdt,
			Classes: []*qosv1alpha1.QOSResourceClassInfo{{Name: "gold", Description: file, Capacity: capacity, InUse: inUse}},
		}}}}
	}

	for _, test := range []struct {
		name    string
		retried *qosv1alpha1.StatusResponse
		most    uint64
	}{
		{"within the capacity", status("file 6", 3, 3), 3},
		{"above the capacity, which is a violation", status("file 6", 3, 4), 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			gold := invariant.Class{Resource: rdt, Name: "gold"}
			s := &Soak{seen: seen{file: 6, most: map[invariant.Class]uint64{gold: 1}}}
			s.noteRetries(test.retried)
			lowered := status("file 8", 2, test.retried.GetResources().GetContainerQosResources()[0].GetClasses()[0].GetInUse())
			if got := s.most(lowered)[gold]; got != test.most {
				t.Errorf("%d holders may have the class, want %d", got, test.most)
			}
		})
	}
}
