// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/qos-nri/qos-nri-plugin/internal/config"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// These are the first versions with which nodes can offer classes by DRA.
const (
	draKubernetes = "1.36"
	draContainerd = "2.3"
)

// checkDRA prints why the cluster cannot offer classes by DRA, one problem a line. The error has the number of
// problems. checkDRA asks the API server to create objects in dry runs, because an API server whose feature gate is off
// drops or refuses the field of the feature. It creates nothing.
func (c *cluster) checkDRA(ctx context.Context) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	problems, err := api.draGates(ctx)
	if err != nil {
		return err
	}
	nodes, err := api.core.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return explain(err)
	}
	for i := range nodes.Items {
		problems = append(problems, draProblems(&nodes.Items[i])...)
	}

	for _, problem := range problems {
		fmt.Fprintln(c.streams.Out, program.Printable(problem))
	}
	if len(problems) > 0 {
		return config.Problems(len(problems))
	}
	fmt.Fprintln(c.streams.Out, "the API server, the kubelets and the container runtimes allow classes by DRA")
	return nil
}

// draGates returns a problem for each feature that the API server does not have.
func (c *clients) draGates(ctx context.Context) (problems []string, err error) {
	off := func(feature, gate string) {
		problems = append(problems, fmt.Sprintf("%s: is off; turn on the feature gate %s in the control plane and the kubelets (on by default from Kubernetes %s)",
			feature, gate, draKubernetes))
	}
	dry, name := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}, metav1.ObjectMeta{GenerateName: "qos-check-"}

	spec := resourcev1.DeviceClassSpec{ExtendedResourceName: new(classes.Domain + "/check.check")}
	class := &resourcev1.DeviceClass{ObjectMeta: name, Spec: spec}
	class, err = c.core.ResourceV1().DeviceClasses().Create(ctx, class, dry)
	switch kubeapi.OutcomeOf(err) {
	case kubeapi.OK:
	case kubeapi.NotFound, kubeapi.NoSuchKind:
		return []string{"resource.k8s.io/v1: is not served; upgrade the control plane to Kubernetes " + draKubernetes}, nil
	default:
		return nil, explain(err)
	}
	if class.Spec.ExtendedResourceName == nil {
		off("requests by limits", "DRAExtendedResource")
	}

	slice, err := c.core.ResourceV1().ResourceSlices().Create(ctx, probeSlice(name), dry)
	if err != nil {
		return nil, explain(err)
	}
	for _, device := range slice.Spec.Devices {
		if device.AllowMultipleAllocations == nil {
			off("capacities", "DRAConsumableCapacity")
		}
		if len(device.Taints) == 0 {
			off("taints of removed classes", "DRADeviceTaints")
		}
	}

	claim := &resourcev1.ResourceClaim{ObjectMeta: name}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{
		Name: "class", FirstAvailable: []resourcev1.DeviceSubRequest{{Name: "best", DeviceClassName: "check"}},
	}}
	claim, err = c.core.ResourceV1().ResourceClaims(c.namespace).Create(ctx, claim, dry)
	switch outcome := kubeapi.OutcomeOf(err); {
	case outcome == kubeapi.Invalid, err == nil && len(claim.Spec.Devices.Requests[0].FirstAvailable) == 0:
		off("second choices in claims", "DRAPrioritizedList")
	case err != nil:
		return nil, explain(err)
	}
	return problems, nil
}

// probeSlice returns a ResourceSlice with the fields that the driver needs.
func probeSlice(name metav1.ObjectMeta) *resourcev1.ResourceSlice {
	const node = "qos-check"
	slice := &resourcev1.ResourceSlice{ObjectMeta: name}
	slice.Spec.Driver, slice.Spec.NodeName = "check."+classes.Domain, new(node)
	slice.Spec.Pool = resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1}
	slice.Spec.Devices = []resourcev1.Device{{
		Name: "check", AllowMultipleAllocations: new(true),
		Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"slots": {Value: *resource.NewQuantity(1, resource.DecimalSI)}},
		Taints:   []resourcev1.DeviceTaint{{Key: classes.Domain + "/removed", Effect: resourcev1.DeviceTaintEffectNoSchedule}},
	}}
	return slice
}

// draProblems returns a problem for each program of a node that is too old.
func draProblems(node *corev1.Node) (problems []string) {
	if node.Labels[corev1.LabelOSStable] == "windows" {
		return nil
	}
	info := node.Status.NodeInfo
	if older(info.KubeletVersion, draKubernetes) {
		problems = append(problems, fmt.Sprintf("node %s: has the kubelet %s; upgrade it to %s", node.Name, info.KubeletVersion, draKubernetes))
	}
	runtime, v, _ := strings.Cut(info.ContainerRuntimeVersion, "://")
	if runtime != "containerd" || older(v, draContainerd) {
		problems = append(problems, fmt.Sprintf("node %s: has the container runtime %s, which does not pass CDI devices to the plugin; "+
			"use containerd %s or later, or device plugins on this node", node.Name, info.ContainerRuntimeVersion, draContainerd))
	}
	return problems
}

// older reports whether the version `v` is older than the version `than`. A version that cannot be parsed counts as
// older.
func older(v, than string) bool {
	parsed, err := version.ParseGeneric(v)
	return err != nil || parsed.LessThan(version.MustParseGeneric(than))
}
