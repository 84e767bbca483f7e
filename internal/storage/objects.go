// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/podspec"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

// DefaultClassAnnotation is an annotation of a StorageClass. Its value names the VolumeAttributesClass for those claims of
// the StorageClass that name none themselves.
const DefaultClassAnnotation = classes.Domain + "/default-volume-attributes-class"

// RequestsAnnotation is an annotation of a StorageClass, for "qos-storage defaults". With the value ByRequests, a claim that requests iops or
// throughput gets the VolumeAttributesClass that has these values as its parameters.
const RequestsAnnotation = classes.Domain + "/claim-requests"

// ByRequests is the value of RequestsAnnotation.
const ByRequests = "choose-class"

// LocalDriver is the driver of local volumes, as their StorageClass names it.
const LocalDriver = "kubernetes.io/no-provisioner"

// maxProblem is the maximum length of the problem of a claim in the object, in bytes. The event on the claim has up to replicated.MaxNote bytes of
// the problem.
const maxProblem = 256

// objects are the objects of the cluster that decide on limits.
type objects struct {
	claims         corelisters.PersistentVolumeClaimLister
	volumes        corelisters.PersistentVolumeLister
	classes        storagelisters.VolumeAttributesClassLister
	storageClasses storagelisters.StorageClassLister
	// drivers has the names of the drivers whose volumes get limits.
	drivers []string
}

// problem is the reason why a claim does not have the class that it requests.
type problem struct {
	claim *corev1.PersistentVolumeClaim
	err   error
}

// mount is a mount of a volume whose claim has a class.
type mount struct {
	nodeqosv1alpha1.ClaimedVolume
	claim *corev1.PersistentVolumeClaim
	class *classLimits
}

// classLimits has the limits of a class.
type classLimits struct {
	nodeqosv1alpha1.VolumeClass
	former bool // true if the VolumeAttributesClass is no longer valid, so that the limits are those in the node's present spec
}

// specOf returns the spec of a node with these pods, in a stable order, and the problems of their claims. The parameter
// `before` is the present spec of the node. If the node has more volumes than the spec may have, the volumes of the
// present spec take precedence.
func (o *objects) specOf(
	pods []*corev1.Pod, before nodeqosv1alpha1.NodeQOSResourcesSpec,
) (spec nodeqosv1alpha1.NodeQOSResourcesSpec, problems []problem) {
	mounts, problems := o.mountsOn(pods, before)
	slices.SortStableFunc(mounts, func(a, b mount) int { return compare(a.ClaimedVolume, b.ClaimedVolume) })
	mounts = slices.CompactFunc(mounts, func(a, b mount) bool { return compare(a.ClaimedVolume, b.ClaimedVolume) == 0 })
	mounts, invalid := withinPods(mounts, before.Volumes)
	mounts, omitted := withinNode(mounts)

	spec.Written, spec.VolumesOmitted = true, int64(len(omitted))
	for _, m := range mounts {
		spec.Volumes = append(spec.Volumes, m.ClaimedVolume)
	}
	slices.SortFunc(spec.Volumes, compare)
	spec.VolumeClasses = limitsOfMounts(mounts)
	return spec, slices.Concat(problems, invalid, omitted)
}

// mountsOn returns the mounts of volumes that have a class. It leaves out the mounts of ended pods.
func (o *objects) mountsOn(pods []*corev1.Pod, before nodeqosv1alpha1.NodeQOSResourcesSpec) (mounts []mount, problems []problem) {
	for _, pod := range pods {
		if podspec.Finished(pod) {
			continue
		}
		for _, volume := range pod.Spec.Volumes {
			claim := o.claimOf(pod, volume)
			if claim == nil {
				continue
			}
			class, err := o.classOf(claim, before)
			if err != nil {
				problems = append(problems, problem{claim, err})
			} else if o.ignoresRequests(claim) {
				problems = append(problems, problem{claim, errRequestsIgnored})
			}
			if class != nil {
				mounts = append(mounts, mountsOf(pod, volume.Name, claim, class, err)...)
			}
		}
	}
	return mounts, problems
}

func compare(a, b nodeqosv1alpha1.ClaimedVolume) int {
	return cmp.Or(strings.Compare(a.PodUID, b.PodUID), strings.Compare(a.Container, b.Container), strings.Compare(a.Path, b.Path))
}

// claimNameOf returns the name of the claim of a pod's volume, or "" for a volume without a claim.
func claimNameOf(pod *corev1.Pod, volume *corev1.Volume) string {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName
	case volume.Ephemeral != nil:
		return pod.Name + "-" + volume.Name
	}
	return ""
}

// claimOf returns the claim of a pod's volume, or nil for a volume without a claim. If the claim was removed, claimOf
// returns an unbound claim with the same name.
func (o *objects) claimOf(pod *corev1.Pod, volume corev1.Volume) *corev1.PersistentVolumeClaim {
	name := claimNameOf(pod, &volume)
	if name == "" {
		return nil
	}
	claim, err := o.claims.PersistentVolumeClaims(pod.Namespace).Get(name)
	if err != nil { // a user has removed the claim's finalizer
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: name}}
	}
	return claim
}

// mountsOf returns the mounts of a pod's volume in its containers. The parameter `problem` is the reason why the volume
// does not have the class that the claim requests, or nil.
func mountsOf(
	pod *corev1.Pod, volume string, claim *corev1.PersistentVolumeClaim, class *classLimits, problem error,
) (mounts []mount) {
	text := ""
	if problem != nil {
		text = printable.Text(problem.Error(), maxProblem)
	}

	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for _, at := range pathsOf(&list[i], volume) {
				mounts = append(mounts, mount{nodeqosv1alpha1.ClaimedVolume{
					PodUID: string(pod.UID), Container: list[i].Name, Path: path.Join("/", at),
					Claim: claim.Namespace + "/" + claim.Name, Class: class.Name, Problem: text,
				}, claim, class})
			}
		}
	}
	return mounts
}

// pathsOf returns the paths at which a container has a volume: mountPaths, or devicePaths of a volume of mode Block.
func pathsOf(container *corev1.Container, volume string) (paths []string) {
	for _, m := range container.VolumeMounts {
		if m.Name == volume {
			paths = append(paths, m.MountPath)
		}
	}
	for _, d := range container.VolumeDevices {
		if d.Name == volume {
			paths = append(paths, d.DevicePath)
		}
	}
	return paths
}

// classOf returns the class of a claim, or nil if the claim has none.
//
// If the requested class is invalid, classOf returns an error and the next valid class of candidates. If no candidate is valid, it returns
// the error and the class that the claim has in the present spec (the parameter `before`). Therefore, a wrong class name does not remove
// limits.
//
// A claim that is not bound gets the class that it has in the present spec. No pod can start with such a claim. If a running pod has
// one, its former claim was removed, or replaced by another claim with the same name.
func (o *objects) classOf(
	claim *corev1.PersistentVolumeClaim, before nodeqosv1alpha1.NodeQOSResourcesSpec,
) (class *classLimits, problem error) {
	volume := o.volumeOf(claim)
	switch {
	case volume == nil:
		return o.formerClass(claim, anyDriver, before), nil
	case !slices.Contains(o.drivers, DriverOf(volume)):
		return nil, nil //nolint:nilnil // a volume of a driver that is not listed has no class
	}

	for i, name := range o.candidates(claim) {
		class, err := o.class(name, DriverOf(volume))
		if i == 0 {
			problem = err
		}
		if err == nil {
			return class, problem
		}
	}
	if problem != nil {
		class = o.formerClass(claim, DriverOf(volume), before)
	}
	return class, problem
}

// errRequestsIgnored is reported for a claim in the form of KEP-3751's first revision. The API server accepts such
// requests, but only "qos-storage defaults" reads them, and then sets the class of the claim.
var errRequestsIgnored = errors.New("the requests of iops and throughput have no effect, because the claim has no VolumeAttributesClass; " +
	"set volumeAttributesClassName")

// ignoresRequests reports whether a claim requests iops or throughput and names no class.
func (o *objects) ignoresRequests(claim *corev1.PersistentVolumeClaim) bool {
	name := claim.Spec.VolumeAttributesClassName
	if name != nil && *name != "" || len(Requested(claim)) == 0 {
		return false
	}
	volume := o.volumeOf(claim)
	return volume != nil && slices.Contains(o.drivers, DriverOf(volume))
}

// volumeOf returns the volume to which a claim is bound, or nil if the claim is not bound. Every user may set the volume name of a
// claim, so the volume must name the claim, too.
func (o *objects) volumeOf(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	volume, err := o.volumes.Get(claim.Spec.VolumeName)
	if err != nil { // the only error is that the volume does not exist
		return nil
	}
	if !IsBound(claim, volume) {
		return nil
	}
	return volume
}

// IsBound reports whether a claim and a volume name each other.
func IsBound(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) bool {
	of := volume.Spec.ClaimRef
	return of != nil && of.Namespace == claim.Namespace && of.Name == claim.Name && of.UID == claim.UID && claim.Spec.VolumeName == volume.Name
}

// formerClass returns the class that a claim has in the spec of a node, or nil if it has none there. If the class is no longer
// valid, formerClass returns the limits in the spec.
func (o *objects) formerClass(
	claim *corev1.PersistentVolumeClaim, driver string, spec nodeqosv1alpha1.NodeQOSResourcesSpec,
) *classLimits {
	i := slices.IndexFunc(spec.Volumes, func(v nodeqosv1alpha1.ClaimedVolume) bool { return v.Claim == claim.Namespace+"/"+claim.Name })
	if i < 0 {
		return nil
	}
	name := spec.Volumes[i].Class
	if class, err := o.class(name, driver); err == nil {
		return class
	}

	i = slices.IndexFunc(spec.VolumeClasses, func(c nodeqosv1alpha1.VolumeClass) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &classLimits{VolumeClass: spec.VolumeClasses[i], former: true}
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

// anyDriver stands for the driver of a volume that is not known.
const anyDriver = ""

// class returns the limits of a VolumeAttributesClass. An error means that a volume of the driver cannot have the class.
func (o *objects) class(name, driver string) (*classLimits, error) {
	class, err := o.classes.Get(name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("VolumeAttributesClass %q does not exist", name)
	case err != nil:
		return nil, err
	case class.DriverName != driver && driver != anyDriver:
		return nil, invalidClass{fmt.Errorf("VolumeAttributesClass %q is for driver %s, but the volume has driver %s", name, class.DriverName, driver)}
	}

	limits, err := LimitsOf(class)
	if err != nil {
		return nil, invalidClass{err}
	}
	return &classLimits{VolumeClass: limits}, nil
}

// invalidClass is the reason why a claim can never have a class.
type invalidClass struct{ error }

// DriverOf returns the name of the driver of a volume, or "" if it has none.
func DriverOf(volume *corev1.PersistentVolume) string {
	switch {
	case volume.Spec.CSI != nil:
		return volume.Spec.CSI.Driver
	case volume.Spec.Local != nil:
		return LocalDriver
	}
	return ""
}

// oneLine returns the text of joined errors as one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
