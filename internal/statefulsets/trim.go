// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulsets

import (
	"math"
	"regexp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/replicated"
)

// maxTemplates is the maximum number of claim templates of a StatefulSet, and of claims of a pod. A node cannot attach
// so many volumes.
const maxTemplates = 256

// maxOwners is the maximum number of owners that the controller keeps of an object. A user can add any number of
// owners with the name of the StatefulSet.
const maxOwners = 16

var largeExponent = regexp.MustCompile(`[eE]\+?[0-9]{3,}$`)

// trim returns an object with only those fields that the controller reads. The informers keep all objects of the cluster.
func trim(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Pod:
		return trimPod(o), nil
	case *corev1.PersistentVolumeClaim:
		kept := &corev1.PersistentVolumeClaim{TypeMeta: o.TypeMeta, ObjectMeta: replicated.IdentityOf(o), Status: o.Status}
		kept.Spec.StorageClassName, kept.Spec.VolumeAttributesClassName = o.Spec.StorageClassName, o.Spec.VolumeAttributesClassName
		if storage, ok := o.Spec.Resources.Requests[corev1.ResourceStorage]; ok {
			kept.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: bounded(storage)}
		}
		kept.Status.AccessModes = nil
		if requestedHere(o) {
			fields := metav1.NewFieldsV1(`{"f:spec":{"f:resources":{"f:requests":{"f:storage":{}}}}}`)
			kept.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: fieldManager, FieldsV1: fields}}
		}
		return kept, nil
	case *appsv1.StatefulSet:
		kept := &appsv1.StatefulSet{TypeMeta: o.TypeMeta, ObjectMeta: replicated.IdentityOf(o)}
		kept.Annotations = annotationsOf(o, requestsVolumes)
		kept.Spec.Replicas, kept.Spec.Ordinals, kept.Spec.PodManagementPolicy = o.Spec.Replicas, o.Spec.Ordinals, o.Spec.PodManagementPolicy
		for i := range min(len(o.Spec.VolumeClaimTemplates), maxTemplates+1) {
			name := metav1.ObjectMeta{Name: o.Spec.VolumeClaimTemplates[i].Name}
			kept.Spec.VolumeClaimTemplates = append(kept.Spec.VolumeClaimTemplates, corev1.PersistentVolumeClaim{ObjectMeta: name})
		}
		kept.Status.ObservedGeneration, kept.Status.UpdateRevision = o.Status.ObservedGeneration, o.Status.UpdateRevision
		return kept, nil
	case *storagev1.StorageClass:
		return &storagev1.StorageClass{ObjectMeta: replicated.IdentityOf(o), AllowVolumeExpansion: o.AllowVolumeExpansion}, nil
	case *unstructured.Unstructured:
		return trimObject(o), nil
	}
	return object, nil
}

// trimObject keeps those owners that can be the StatefulSet with the name of the object.
func trimObject(o *unstructured.Unstructured) *unstructured.Unstructured {
	kept := &unstructured.Unstructured{Object: map[string]any{}}
	for _, field := range []string{"spec", "status"} {
		if content, ok := o.Object[field]; ok {
			kept.Object[field] = content
		}
	}
	kept.SetGroupVersionKind(o.GroupVersionKind())
	kept.SetNamespace(o.GetNamespace())
	kept.SetName(o.GetName())
	kept.SetUID(o.GetUID())
	kept.SetResourceVersion(o.GetResourceVersion())
	kept.SetGeneration(o.GetGeneration())
	kept.SetDeletionTimestamp(o.GetDeletionTimestamp())
	kept.SetAnnotations(annotationsOf(o, func(key string) bool {
		return key == nodeqosv1alpha1.AppliedAnnotation || key == nodeqosv1alpha1.CreatedAnnotation
	}))
	owners := slices.DeleteFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.Name != o.GetName() })
	kept.SetOwnerReferences(owners[:min(len(owners), maxOwners)])
	return kept
}

// bounded returns a size. It replaces a size with a large exponent by the maximum of Kubernetes, because comparing
// 1e10000000 takes seconds.
func bounded(size resource.Quantity) resource.Quantity {
	if largeExponent.MatchString(size.String()) {
		return *resource.NewQuantity(math.MaxInt64, resource.BinarySI)
	}
	return size
}

// annotationsOf returns the annotations of an object that are read, or nil.
func annotationsOf(object metav1.Object, read func(key string) bool) map[string]string {
	var kept map[string]string
	for key, value := range object.GetAnnotations() {
		if !read(key) {
			continue
		}
		if kept == nil {
			kept = map[string]string{}
		}
		kept[key] = value
	}
	return kept
}

// trimPod keeps only the identity of a pod that belongs to no StatefulSet.
func trimPod(pod *corev1.Pod) *corev1.Pod {
	kept := &corev1.Pod{ObjectMeta: replicated.IdentityOf(pod)}
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "StatefulSet" {
		return kept
	}

	kept.OwnerReferences = []metav1.OwnerReference{*owner}
	const revision = appsv1.ControllerRevisionHashLabelKey
	kept.Labels = map[string]string{revision: pod.Labels[revision]}
	for i := range pod.Spec.Volumes {
		if claim := pod.Spec.Volumes[i].PersistentVolumeClaim; claim != nil && len(kept.Spec.Volumes) < maxTemplates {
			source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.ClaimName}}
			kept.Spec.Volumes = append(kept.Spec.Volumes, corev1.Volume{Name: pod.Spec.Volumes[i].Name, VolumeSource: source})
		}
	}
	kept.Status.Phase = pod.Status.Phase
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			kept.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return kept
}
