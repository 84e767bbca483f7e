// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
)

// withVolume returns the state of a node with a volume on a device. The parameter `since` is the time at which the
// volume's limits came into force, or nil.
func withVolume(device string, since *timestamppb.Timestamp) nodecache.State {
	s := &qosv1alpha1.StatusResponse{Resources: &qosv1alpha1.ResourcesInfo{VolumeQosResources: []*qosv1alpha1.QOSResourceInfo{
		{Name: "volume-io", Classes: []*qosv1alpha1.QOSResourceClassInfo{{Name: "silver", InUse: 1}}},
	}}}
	volumes := []*qosv1alpha1.VolumeAssignments{
		{Path: "/data", Device: device, InForceSince: since, QosResources: []*qosv1alpha1.Assignment{{Name: "volume-io", Class: "silver"}}},
		{Path: "/lost", QosResources: []*qosv1alpha1.Assignment{{Name: "volume-io"}}},
	}
	return nodecache.State{Status: s, Latest: s, Assignments: &qosv1alpha1.ListAssignmentsResponse{Pods: []*qosv1alpha1.PodAssignments{
		{Uid: "db", Namespace: "a", Name: "db", Containers: []*qosv1alpha1.ContainerAssignments{{Name: "main", Volumes: volumes}}},
	}}}
}

func TestLowerLimitsOfAVolumeAreForeignSettings(t *testing.T) {
	state := withVolume("253:3", nil)
	state.Assignments.Pods[0].Containers[0].Volumes[0].QosResources[0].Foreign = "lower limits on 253:3 rbps=100"
	status, _ := desiredStatus(state, nodeqosv1alpha1.NodeQOSResourcesStatus{}, at(9, 0, 0))
	want := []nodeqosv1alpha1.ForeignSetting{{Namespace: "a", Pod: "db", Container: "main", Setting: "volume /data: lower limits on 253:3 rbps=100"}}
	if diff := cmp.Diff(want, status.QOSResources.VolumeQOSResources[0].Foreign); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if holders := status.QOSResources.VolumeQOSResources[0].Classes[0].Holders; len(holders) != 1 {
		t.Errorf("holders are %v", holders)
	}
}

// TestAVolumeIsListedAsAHolderWithItsDevice: after a restart, the plugin does not know since when the limits are in force. The published
// time stays, unless the volume is now on another device.
func TestAVolumeIsListedAsAHolderWithItsDevice(t *testing.T) {
	eight := metav1.NewTime(at(8, 0, 0))
	want := nodeqosv1alpha1.Holder{Namespace: "a", Pod: "db", Container: "main", Volume: "/data", Device: "253:3", Since: &eight}
	first, _ := desiredStatus(withVolume("253:3", timestamppb.New(at(8, 0, 0))), nodeqosv1alpha1.NodeQOSResourcesStatus{}, at(9, 0, 0))
	if diff := cmp.Diff([]nodeqosv1alpha1.Holder{want}, holdersOf(first)); diff != "" {
		t.Errorf("holders (-want +got):\n%s", diff)
	}

	again, _ := desiredStatus(withVolume("253:3", nil), first, at(9, 0, 0))
	if diff := cmp.Diff([]nodeqosv1alpha1.Holder{want}, holdersOf(again)); diff != "" {
		t.Errorf("holders after a restart of the plugin (-want +got):\n%s", diff)
	}

	want.Device, want.Since = "7:0", nil
	moved, _ := desiredStatus(withVolume("7:0", nil), first, at(9, 0, 0))
	if diff := cmp.Diff([]nodeqosv1alpha1.Holder{want}, holdersOf(moved)); diff != "" {
		t.Errorf("holders on another device (-want +got):\n%s", diff)
	}
}

func holdersOf(s nodeqosv1alpha1.NodeQOSResourcesStatus) []nodeqosv1alpha1.Holder {
	return s.QOSResources.VolumeQOSResources[0].Classes[0].Holders
}
