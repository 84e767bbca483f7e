// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"cmp"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/qos-nri/qos-nri-plugin/internal/replicated"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Trim returns an object with only those fields that the controllers of this package and of claimdefaults read. The informers keep all
// objects, and every user can create objects of more than a megabyte.
func Trim(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Pod:
		return trimPod(o), nil
	case *corev1.PersistentVolumeClaim:
		kept := &corev1.PersistentVolumeClaim{
			ObjectMeta: replicated.IdentityOf(o),
			Spec: corev1.PersistentVolumeClaimSpec{
				VolumeName: o.Spec.VolumeName, StorageClassName: o.Spec.StorageClassName, VolumeAttributesClassName: o.Spec.VolumeAttributesClassName,
			},
			Status: corev1.PersistentVolumeClaimStatus{
				Phase: o.Status.Phase, CurrentVolumeAttributesClassName: o.Status.CurrentVolumeAttributesClassName,
			},
		}
		kept.Spec.Resources.Requests = Requested(o)
		return kept, nil
	case *corev1.PersistentVolume:
		kept := &corev1.PersistentVolume{ObjectMeta: replicated.IdentityOf(o), Spec: corev1.PersistentVolumeSpec{ClaimRef: o.Spec.ClaimRef}}
		if csi := o.Spec.CSI; csi != nil {
			kept.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: csi.Driver, VolumeHandle: csi.VolumeHandle}
		}
		kept.Spec.Local = o.Spec.Local
		return kept, nil
	case *storagev1.StorageClass:
		kept := &storagev1.StorageClass{ObjectMeta: replicated.IdentityOf(o)}
		kept.Annotations = map[string]string{
			DefaultClassAnnotation: o.Annotations[DefaultClassAnnotation], RequestsAnnotation: o.Annotations[RequestsAnnotation],
		}
		return kept, nil
	case *storagev1.VolumeAttributesClass:
		return &storagev1.VolumeAttributesClass{ObjectMeta: replicated.IdentityOf(o), DriverName: o.DriverName, Parameters: o.Parameters}, nil
	case *unstructured.Unstructured:
		return trimNode(o), nil
	}
	return object, nil
}

// trimNode removes the fields of a NodeQOSResources object that the controller does not read, e.g. the holders of classes.
func trimNode(object *unstructured.Unstructured) *unstructured.Unstructured {
	object.SetManagedFields(nil)
	if status, ok := object.Object["status"].(map[string]any); ok {
		object.Object["status"] = map[string]any{"volumes": status["volumes"], "observedGeneration": status["observedGeneration"]}
	}
	return object
}

// place is a path at which a container has the volume of a claim.
type place struct {
	container *corev1.Container
	volume    *corev1.Volume
	path      string
	isDevice  bool // true for a volume of mode Block
	rank      int  // the number of places before this one that the same claim has in the same container
}

// trimPod returns a pod with one place more than the number of places that can have limits, so that the controller can report the
// omission. The first place of each claim in each container takes precedence.
func trimPod(pod *corev1.Pod) *corev1.Pod {
	kept := &corev1.Pod{ObjectMeta: replicated.IdentityOf(pod)}
	kept.Spec.NodeName, kept.Status.Phase = pod.Spec.NodeName, pod.Status.Phase
	if pod.Spec.NodeName == "" {
		return kept
	}

	claimed := map[string]*corev1.Volume{}
	for i := range pod.Spec.Volumes {
		if volume := &pod.Spec.Volumes[i]; claimNameOf(pod, volume) != "" {
			claimed[volume.Name] = volume
		}
	}
	var places []place
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			places = append(places, placesIn(pod, &list[i], claimed)...)
		}
	}
	slices.SortStableFunc(places, func(a, b place) int { return cmp.Compare(a.rank, b.rank) })
	places = places[:min(len(places), classes.MaxVolumes+1)]

	kept.Spec.Volumes = volumesOf(places)
	kept.Spec.InitContainers = containersOf(pod.Spec.InitContainers, places)
	kept.Spec.Containers = containersOf(pod.Spec.Containers, places)
	kept.Status.InitContainerStatuses = runningOnly(pod.Status.InitContainerStatuses, kept.Spec.InitContainers)
	kept.Status.ContainerStatuses = runningOnly(pod.Status.ContainerStatuses, kept.Spec.Containers)
	return kept
}

// placesIn returns the places of a container that no other mount hides. The map `claimed` has the volumes with a claim by their names.
// If a container has several mounts at one path, e.g. /data and /data/, the runtime mounts them in the order of volumeMounts, so the
// last one is visible.
func placesIn(pod *corev1.Pod, container *corev1.Container, claimed map[string]*corev1.Volume) (places []place) {
	last := map[string]int{}
	for i, m := range container.VolumeMounts {
		last[path.Join("/", m.MountPath)] = i
	}
	ranks := map[string]int{}
	add := func(name, at string, isDevice bool) {
		if volume, ok := claimed[name]; ok {
			claim := claimNameOf(pod, volume)
			places = append(places, place{container, volume, at, isDevice, ranks[claim]})
			ranks[claim]++
		}
	}

	for i, m := range container.VolumeMounts {
		if last[path.Join("/", m.MountPath)] == i {
			add(m.Name, m.MountPath, false)
		}
	}
	for _, d := range container.VolumeDevices {
		add(d.Name, d.DevicePath, true)
	}
	return places
}

// volumesOf returns the volumes of places, without details.
func volumesOf(places []place) (kept []corev1.Volume) {
	for _, p := range places {
		if slices.ContainsFunc(kept, func(v corev1.Volume) bool { return v.Name == p.volume.Name }) {
			continue
		}
		volume := corev1.Volume{Name: p.volume.Name}
		if claim := p.volume.PersistentVolumeClaim; claim != nil {
			volume.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.ClaimName}
		} else {
			volume.Ephemeral = &corev1.EphemeralVolumeSource{}
		}
		kept = append(kept, volume)
	}
	return kept
}

// containersOf returns those containers of a list that have places. Each has only its name and its places.
func containersOf(list []corev1.Container, places []place) (kept []corev1.Container) {
	for i := range list {
		container := corev1.Container{Name: list[i].Name}
		for _, p := range places {
			switch {
			case p.container != &list[i]:
			case p.isDevice:
				container.VolumeDevices = append(container.VolumeDevices, corev1.VolumeDevice{Name: p.volume.Name, DevicePath: shortPath(p.path)})
			default:
				container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: p.volume.Name, MountPath: shortPath(p.path)})
			}
		}
		if len(container.VolumeMounts)+len(container.VolumeDevices) > 0 {
			kept = append(kept, container)
		}
	}
	return kept
}

// shortPath returns the clean form of a path. A path that is too long for limits stays too long, but is cut.
func shortPath(text string) string {
	clean := path.Join("/", text)
	return strings.Clone(clean[:min(len(clean), maxPath+1)]) // a copy, so that the rest of the text is freed
}

// runningOnly returns the statuses of those containers of a list that run, without details.
func runningOnly(statuses []corev1.ContainerStatus, containers []corev1.Container) (kept []corev1.ContainerStatus) {
	for i := range statuses {
		name := statuses[i].Name
		if statuses[i].State.Running != nil && slices.ContainsFunc(containers, func(c corev1.Container) bool { return c.Name == name }) {
			running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
			kept = append(kept, corev1.ContainerStatus{Name: name, State: running})
		}
	}
	return kept
}
