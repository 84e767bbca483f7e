// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// DefaultClassAnnotation is an annotation of a StorageClass. Its value is the VolumeAttributesClass of claims that name
// no VolumeAttributesClass.
const DefaultClassAnnotation = classes.Domain + "/default-volume-attributes-class"

// LocalDriver is the driver of local volumes, as their StorageClass names it.
const LocalDriver = "kubernetes.io/no-provisioner"

// maxVolumes is the maximum number of volumes of a node, as the CRD has it.
const maxVolumes = 1000

// objects are the objects of the cluster that decide on limits.
type objects struct {
	claims         corelisters.PersistentVolumeClaimLister
	volumes        corelisters.PersistentVolumeLister
	classes        storagelisters.VolumeAttributesClassLister
	storageClasses storagelisters.StorageClassLister
	// drivers has the names of the drivers whose volumes get limits.
	drivers []string
}

// problem is why a claim does not have the class that it requests.
type problem struct {
	claim *corev1.PersistentVolumeClaim
	err   error
}

// specOf returns the spec of a node with these pods, in a stable order, and the problems of their claims.
func (o *objects) specOf(pods []*corev1.Pod) (spec nodeqosv1alpha1.NodeQOSResourcesSpec, problems []problem) {
	limits := map[string]nodeqosv1alpha1.VolumeClass{}
	for _, pod := range pods {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, volume := range pod.Spec.Volumes {
			claim := o.claimOf(pod, volume)
			if claim == nil {
				continue
			}
			class, err := o.classOf(claim)
			if err != nil {
				problems = append(problems, problem{claim, err})
			}
			if class == nil {
				continue
			}
			if mounted := mountsOf(pod, volume.Name, claim, class.Name); len(mounted) > 0 {
				limits[class.Name] = *class
				spec.Volumes = append(spec.Volumes, mounted...)
			}
		}
	}

	for _, class := range limits {
		spec.VolumeClasses = append(spec.VolumeClasses, class)
	}
	slices.SortFunc(spec.VolumeClasses, func(a, b nodeqosv1alpha1.VolumeClass) int { return strings.Compare(a.Name, b.Name) })
	// A container may mount /data and /data/, which are the same path. The first volume of its pod counts.
	slices.SortStableFunc(spec.Volumes, func(a, b nodeqosv1alpha1.ClaimedVolume) int {
		return cmp.Or(strings.Compare(a.PodUID, b.PodUID), strings.Compare(a.Container, b.Container), strings.Compare(a.Path, b.Path))
	})
	spec.Volumes = slices.CompactFunc(spec.Volumes, func(a, b nodeqosv1alpha1.ClaimedVolume) bool { return ownerOf(a) == ownerOf(b) })
	spec.Volumes = spec.Volumes[:min(len(spec.Volumes), maxVolumes)]
	return spec, problems
}

// ownerOf returns the key of a volume, which is unique in the object.
func ownerOf(v nodeqosv1alpha1.ClaimedVolume) classes.Owner {
	return classes.Owner{PodUID: v.PodUID, Container: v.Container, Volume: v.Path}
}

// claimNameOf returns the name of the claim of a pod's volume, or "" if it has none.
func claimNameOf(pod *corev1.Pod, volume *corev1.Volume) string {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName
	case volume.Ephemeral != nil:
		return pod.Name + "-" + volume.Name
	}
	return ""
}

func (o *objects) claimOf(pod *corev1.Pod, volume corev1.Volume) *corev1.PersistentVolumeClaim {
	name := claimNameOf(pod, &volume)
	if name == "" {
		return nil
	}
	claim, err := o.claims.PersistentVolumeClaims(pod.Namespace).Get(name)
	if err != nil {
		return nil // it does not exist any more
	}
	return claim
}

// mountsOf returns the volumes of a pod's containers that are mounts of a volume of the pod.
func mountsOf(pod *corev1.Pod, volume string, claim *corev1.PersistentVolumeClaim, class string) (mounted []nodeqosv1alpha1.ClaimedVolume) {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for _, mount := range list[i].VolumeMounts {
				if mount.Name == volume {
					mounted = append(mounted, nodeqosv1alpha1.ClaimedVolume{
						PodUID: string(pod.UID), Container: list[i].Name, Path: path.Join("/", mount.MountPath),
						Claim: claim.Namespace + "/" + claim.Name, Class: class,
					})
				}
			}
		}
	}
	return mounted
}

// classOf returns the class of a claim, or nil if it has none. If the requested class is invalid, classOf returns the
// error and the first valid class of the other candidates, so that a wrong class name does not lift limits.
func (o *objects) classOf(claim *corev1.PersistentVolumeClaim) (class *nodeqosv1alpha1.VolumeClass, problem error) {
	volume, err := o.volumes.Get(claim.Spec.VolumeName)
	if claim.Spec.VolumeName == "" || err != nil || !slices.Contains(o.drivers, driverOf(volume)) {
		return nil, nil //nolint:nilnil,nilerr // an unbound claim, or a driver that is not listed, has no class
	}

	for i, name := range o.candidates(claim) {
		class, err := o.class(name, driverOf(volume))
		if i == 0 {
			problem = err
		}
		if err == nil {
			return class, problem
		}
	}
	return nil, problem
}

// candidates returns the names of the classes that a claim may have, the best first: the class that it requests, the class that it had
// before, and the default of its StorageClass.
func (o *objects) candidates(claim *corev1.PersistentVolumeClaim) (names []string) {
	byDefault := ""
	if name := claim.Spec.StorageClassName; name != nil {
		if class, err := o.storageClasses.Get(*name); err == nil { // claims need no StorageClass
			byDefault = class.Annotations[DefaultClassAnnotation]
		}
	}

	for _, name := range []*string{claim.Spec.VolumeAttributesClassName, claim.Status.CurrentVolumeAttributesClassName, &byDefault} {
		if name != nil && *name != "" {
			names = append(names, *name)
		}
	}
	return names
}

func (o *objects) class(name, driver string) (*nodeqosv1alpha1.VolumeClass, error) {
	class, err := o.classes.Get(name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("VolumeAttributesClass %q does not exist", name)
	case err != nil:
		return nil, err
	case class.DriverName != driver:
		return nil, fmt.Errorf("VolumeAttributesClass %q is for driver %s, but the volume has driver %s", name, class.DriverName, driver)
	}

	limits, err := limitsOf(class)
	if err != nil {
		return nil, err
	}
	return &limits, nil
}

// driverOf returns the name of the driver of a volume, or "" if it has none.
func driverOf(volume *corev1.PersistentVolume) string {
	switch {
	case volume.Spec.CSI != nil:
		return volume.Spec.CSI.Driver
	case volume.Spec.Local != nil:
		return LocalDriver
	}
	return ""
}

// oneLine is an error whose text is one line.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }

func (e oneLine) Unwrap() error { return e.error }
