// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/invariant"
)

const goldUnit = "qos.noderesource.dev/rdt.gold"

// inCluster is the good node in a cluster: container main of pod a has a unit of gold.
func inCluster() invariant.World {
	w := good()
	pod(&w, 0).Containers[0].QosResources[0].Source = qosv1alpha1.Source_SOURCE_ALLOCATED
	main := invariant.PodContainer{Namespace: "default", Pod: "a", Container: "main"}
	w.Kubernetes = &invariant.Kubernetes{
		Devices:  map[invariant.PodContainer][]string{main: {goldUnit}},
		Requests: map[invariant.PodContainer][]string{main: {goldUnit}},
		Capacity: map[string]int64{
			goldUnit: 1, "qos.noderesource.dev/rdt.silver": 1, "qos.noderesource.dev/blockio.fast": 1, "test.example/cache.big": 1,
		},
		Resources: nodeqosv1alpha1.QOSResourceStatus{
			PodQOSResources: []nodeqosv1alpha1.QOSResourceInfo{{Name: network, Classes: []nodeqosv1alpha1.QOSResourceClassInfo{published("slow", "")}}},
			ContainerQOSResources: []nodeqosv1alpha1.QOSResourceInfo{
				{Name: rdt, Classes: []nodeqosv1alpha1.QOSResourceClassInfo{published("gold", "main"), published("bronze"), published("silver", "side")}},
				{Name: blockio, Classes: []nodeqosv1alpha1.QOSResourceClassInfo{published("fast", "main")}},
				{Name: cache, Classes: []nodeqosv1alpha1.QOSResourceClassInfo{published("big", "main")}},
			},
		},
	}

	return w
}

// published is a class of the node's object, with holders of pod a.
func published(class string, containers ...string) nodeqosv1alpha1.QOSResourceClassInfo {
	info := nodeqosv1alpha1.QOSResourceClassInfo{Name: class, InUse: int64(len(containers))}
	for _, name := range containers {
		info.Holders = append(info.Holders, nodeqosv1alpha1.Holder{Namespace: "default", Pod: "a", Container: name})
	}
	return info
}

func TestAGoodNodeInAClusterHasNoViolations(t *testing.T) {
	if diff := cmp.Diff([]string(nil), invariant.Violations(inCluster())); diff != "" {
		t.Errorf("a node without violations: %s", diff)
	}

	byAnnotation := inCluster()
	pod(&byAnnotation, 0).Containers[0].QosResources[0].Source = qosv1alpha1.Source_SOURCE_CONTAINER
	if diff := cmp.Diff([]string(nil), invariant.Violations(byAnnotation)); diff != "" {
		t.Errorf("a pod that requests its allocated class also by annotation: %s", diff)
	}
}

func TestViolationsInAClusterAreFound(t *testing.T) {
	main := invariant.PodContainer{Namespace: "default", Pod: "a", Container: "main"}
	for _, test := range []struct {
		name   string
		change func(w *invariant.World)
		want   []string
	}{
		{"a unit that the kubelet has not allocated", func(w *invariant.World) {
			w.Kubernetes.Devices = nil
		}, []string{
			"pod default/a container main requests [qos.noderesource.dev/rdt.gold], but the kubelet has allocated []",
			"pod default/a container main has allocated classes [qos.noderesource.dev/rdt.gold], but the kubelet has allocated []",
		}},
		{"a unit that nobody requests", func(w *invariant.World) {
			w.Kubernetes.Requests = nil
		}, []string{"pod default/a container main requests [], but the kubelet has allocated [qos.noderesource.dev/rdt.gold]"}},
		{"two units", func(w *invariant.World) {
			w.Kubernetes.Devices[main] = []string{goldUnit, goldUnit}
			w.Kubernetes.Requests[main] = []string{goldUnit, goldUnit}
		}, []string{"pod default/a container main has allocated classes [qos.noderesource.dev/rdt.gold], " +
			"but the kubelet has allocated [qos.noderesource.dev/rdt.gold qos.noderesource.dev/rdt.gold]"}},
		{"more holders than the node has units", func(w *invariant.World) {
			w.Kubernetes.Capacity[goldUnit] = 0
		}, []string{"1 containers have qos.noderesource.dev/rdt.gold, but the node has 0"}},
		{"another holder in the node's object", func(w *invariant.World) {
			w.Kubernetes.Resources.ContainerQOSResources[0].Classes[0] = published("gold", "side")
		}, []string{`the node's object has [default/a/side] in class "gold" of k8s.io/rdt, but the plugin reports [default/a/main]`}},
		{"another number in the node's object", func(w *invariant.World) {
			w.Kubernetes.Resources.ContainerQOSResources[0].Classes[0].InUse = 0
		}, []string{`the node's object has 0 in use of class "gold" of k8s.io/rdt, but the plugin reports 1`}},
		{"a class that the node's object lacks", func(w *invariant.World) {
			w.Kubernetes.Resources.PodQOSResources = nil
		}, []string{`the node's object has no class "slow" of vendor.example/network`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := inCluster()
			test.change(&w)
			if diff := cmp.Diff(test.want, invariant.Violations(w)); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}
