// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/replicated"
	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

// errNoVolume means that no PersistentVolume with the given driver and volume handle is bound to a claim.
var errNoVolume = errors.New("volume not found")

// claimsOfHandle returns the claims that are bound to the CSI volume with this driver and volume handle. Several PersistentVolumes can
// have the same handle, e.g. to share a volume between namespaces.
func (o *objects) claimsOfHandle(driver, handle string) (claims []*corev1.PersistentVolumeClaim, err error) {
	volumes, err := o.volumes.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	for _, v := range volumes {
		if v.Spec.CSI == nil || v.Spec.CSI.Driver != driver || v.Spec.CSI.VolumeHandle != handle || v.Spec.ClaimRef == nil {
			continue
		}
		claim, err := o.claims.PersistentVolumeClaims(v.Spec.ClaimRef.Namespace).Get(v.Spec.ClaimRef.Name)
		if err == nil && o.volumeOf(claim) == v {
			claims = append(claims, claim)
		}
	}
	if len(claims) == 0 {
		return nil, fmt.Errorf("%w: no PersistentVolume of driver %s with the handle %q is bound to a claim", errNoVolume, driver, handle)
	}
	return claims, nil
}

// checkVolume checks the claims of a CSI volume. It returns nil if at least one claim requests the limits, and if the limits are in
// force for each claim that requests the limits. Otherwise, it returns a reason. The reason does not name a claim, because the claims
// may be in several namespaces.
func (c *controller) checkVolume(driver, handle string, limits qos.VolumeLimits) error {
	claims, err := c.objects.claimsOfHandle(driver, handle)
	if err != nil {
		return err
	}

	requested, problem := false, errors.New("no claim of the volume requests these limits")
	for _, claim := range claims {
		class, err := c.objects.classOf(claim, nodeqosv1alpha1.NodeQOSResourcesSpec{})
		switch {
		case err != nil:
			problem = err
			continue
		case class == nil || class.VolumeLimits != limits:
			continue
		}
		if err := c.checkInForce(claim, limits); err != nil {
			return err
		}
		requested = true
	}
	if requested {
		return nil
	}
	return problem
}

// checkInForce returns nil if the limits of a claim's volume are in force: all running containers with this volume have the limits,
// and containers that start later on the nodes of the volume's pods will have them. Otherwise, checkInForce returns the first reason.
func (c *controller) checkInForce(claim *corev1.PersistentVolumeClaim, limits qos.VolumeLimits) error {
	pods, err := c.pods.GetIndexer().ByIndex(byClaim, claim.Namespace+"/"+claim.Name)
	if err != nil {
		return err
	}
	for _, object := range pods {
		pod, ok := object.(*corev1.Pod)
		if !ok || pod.Spec.NodeName == "" {
			continue
		}
		if err := c.checkPod(pod, claim, limits); err != nil {
			return fmt.Errorf("pod %s/%s on node %s: %w", pod.Namespace, pod.Name, pod.Spec.NodeName, err)
		}
	}
	return nil
}

// checkPod returns the reason why a pod does not have the limits, or nil.
func (c *controller) checkPod(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim, limits qos.VolumeLimits) error {
	object, exists, err := c.nodes.GetStore().GetByKey(pod.Spec.NodeName)
	switch {
	case err != nil:
		return err
	case !exists:
		return errors.New("the node has no NodeQOSResources object; run qos-nri-plugin and its publisher on the node")
	}
	node, err := nodeIn(object)
	if err != nil {
		return err
	}

	mounts, _ := c.objects.mountsOn([]*corev1.Pod{pod}, node.Spec) // the controller reports the problems as events of the claims
	for _, m := range mounts {
		if m.claim.UID != claim.UID {
			continue
		}
		if err := checkMount(pod, m.ClaimedVolume, limits, node); err != nil {
			return fmt.Errorf("volume %s of container %s: %w", m.Path, m.Container, err)
		}
	}
	return nil
}

func checkMount(
	pod *corev1.Pod, volume nodeqosv1alpha1.ClaimedVolume, limits qos.VolumeLimits, node nodeqosv1alpha1.NodeQOSResources,
) error {
	specified := slices.ContainsFunc(node.Spec.Volumes, func(v nodeqosv1alpha1.ClaimedVolume) bool {
		return v.Subject() == volume.Subject() && slices.ContainsFunc(node.Spec.VolumeClasses, func(class nodeqosv1alpha1.VolumeClass) bool {
			return class.Name == v.Class && class.VolumeLimits == limits
		})
	})
	switch {
	case !specified:
		return errors.New("the limits are not in the NodeQOSResources object yet; if this lasts, read the events of the claim")
	case node.Status.ObservedGeneration != node.Generation:
		return errors.New("the node has not applied the NodeQOSResources object yet; if this lasts, check the publisher and the plugin on the node")
	}

	i := slices.IndexFunc(node.Status.Volumes, func(v nodeqosv1alpha1.VolumeStatus) bool { return v.Subject() == volume.Subject() })
	if i < 0 {
		return errors.New("the node does not report the volume")
	}
	status := node.Status.Volumes[i]
	switch {
	case status.State == nodeqosv1alpha1.VolumeInForce:
		return nil
	case status.Reason == nodeqosv1alpha1.ReasonNotRunning && !runs(pod, volume.Container):
		return nil // a container that does not run gets the limits when it starts
	}
	return fmt.Errorf("%s: %s", status.Reason, printable.Text(status.Message, replicated.MaxNote))
}

// runs reports whether a container runs, according to the status of its pod.
func runs(pod *corev1.Pod, container string) bool {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if list[i].Name == container {
				return list[i].State.Running != nil
			}
		}
	}
	return false
}
