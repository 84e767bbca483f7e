// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package claimdefaults

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/qos-nri/qos-nri-plugin/internal/replicated"
	"github.com/qos-nri/qos-nri-plugin/internal/storage"
)

// trim returns an object with only those fields that the controller reads. The informers keep all objects of the cluster.
func trim(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.PersistentVolumeClaim:
		kept := &corev1.PersistentVolumeClaim{TypeMeta: o.TypeMeta, ObjectMeta: replicated.IdentityOf(o)}
		kept.Spec.VolumeName, kept.Spec.StorageClassName = o.Spec.VolumeName, o.Spec.StorageClassName
		kept.Spec.VolumeAttributesClassName, kept.Status.Phase = o.Spec.VolumeAttributesClassName, o.Status.Phase
		kept.Spec.Resources.Requests = storage.Requested(o)
		return kept, nil
	case *corev1.PersistentVolume:
		kept := &corev1.PersistentVolume{ObjectMeta: replicated.IdentityOf(o), Spec: corev1.PersistentVolumeSpec{ClaimRef: o.Spec.ClaimRef}}
		if o.Spec.CSI != nil {
			kept.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: o.Spec.CSI.Driver}
		}
		if o.Spec.Local != nil {
			kept.Spec.Local = &corev1.LocalVolumeSource{}
		}
		return kept, nil
	case *storagev1.StorageClass:
		kept := &storagev1.StorageClass{ObjectMeta: replicated.IdentityOf(o)}
		kept.Annotations = map[string]string{
			storage.DefaultClassAnnotation: o.Annotations[storage.DefaultClassAnnotation], RequestsAnnotation: o.Annotations[RequestsAnnotation],
		}
		return kept, nil
	case *storagev1.VolumeAttributesClass:
		return &storagev1.VolumeAttributesClass{ObjectMeta: replicated.IdentityOf(o), DriverName: o.DriverName, Parameters: o.Parameters}, nil
	}
	return object, nil
}
