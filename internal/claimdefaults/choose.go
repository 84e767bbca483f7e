// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package claimdefaults

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/qos-nri/qos-nri-plugin/internal/storage"
)

// surroundings has the objects that determine the class of a claim. Each is nil if it does not exist.
type surroundings struct {
	volume       *corev1.PersistentVolume
	storageClass *storagev1.StorageClass
	classes      []*storagev1.VolumeAttributesClass
}

// mayGetClass reports whether a claim names no class, and may get one. The API server refuses classes of claims that are not bound. To
// Kubernetes, "" is the same as no class.
func mayGetClass(claim *corev1.PersistentVolumeClaim) bool {
	name := claim.Spec.VolumeAttributesClassName
	return (name == nil || *name == "") && claim.DeletionTimestamp == nil && claim.Status.Phase == corev1.ClaimBound
}

// choose returns the name of the class that a claim should get, or "" if the claim should stay as it is. `problem` is
// the reason if the claim does not get the class that it requests, or the class that its StorageClass names.
func choose(claim *corev1.PersistentVolumeClaim, around surroundings, drivers []string) (name string, problem error) {
	if !mayGetClass(claim) || around.storageClass == nil || around.volume == nil || !storage.IsBound(claim, around.volume) {
		return "", nil
	}
	driver := storage.DriverOf(around.volume)
	if !slices.Contains(drivers, driver) {
		return "", nil
	}

	offered := slices.DeleteFunc(slices.Clone(around.classes), func(c *storagev1.VolumeAttributesClass) bool { return c.DriverName != driver })
	requested := storage.Requested(claim)
	if around.storageClass.Annotations[storage.RequestsAnnotation] == storage.ByRequests && len(requested) > 0 {
		name, problem = withParameters(requested, offered)
	}
	if name != "" {
		return name, nil
	}

	byDefault := around.storageClass.Annotations[storage.DefaultClassAnnotation]
	if byDefault == "" {
		return "", problem
	}
	if !slices.ContainsFunc(offered, func(c *storagev1.VolumeAttributesClass) bool { return c.Name == byDefault }) {
		return "", fmt.Errorf("StorageClass %q names the default VolumeAttributesClass %q, which does not exist or is not for driver %s",
			around.storageClass.Name, byDefault, driver)
	}
	return byDefault, problem
}

// withParameters returns the first class, by name, whose limits are equal to the requests of a claim.
func withParameters(requested corev1.ResourceList, offered []*storagev1.VolumeAttributesClass) (name string, problem error) {
	var text []string
	parameters := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(requested)) {
		quantity := requested[key]
		parameters[string(key)] = quantity.String()
		text = append(text, string(key)+": "+quantity.String())
	}
	limits, err := storage.ParseLimits(parameters)
	if err != nil {
		return "", fmt.Errorf("the requests of the claim (%s) cannot be honoured: %w", strings.Join(text, ", "), err)
	}

	var names []string
	for _, class := range offered {
		has, err := storage.LimitsOf(class)
		if err == nil && has.VolumeLimits == limits {
			return class.Name, nil
		}
		names = append(names, class.Name)
	}
	remedy := "name one of these: " + strings.Join(names, ", ")
	if len(names) == 0 {
		remedy = "there is none for the driver of its volume"
	}
	return "", fmt.Errorf("no VolumeAttributesClass has what the claim requests (%s); %s", strings.Join(text, ", "), remedy)
}
