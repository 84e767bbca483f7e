// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package claimdefaults

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/qos-nri/qos-nri-plugin/internal/storage"
)

// newClaim returns a claim that is bound to the volume of newVolume, and whose StorageClass is that of newStorageClass.
func newClaim() *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "u", ResourceVersion: "1"}}
	claim.Spec.VolumeName, claim.Spec.StorageClassName, claim.Status.Phase = "pv", new("disks"), corev1.ClaimBound
	return claim
}

func requesting(iops string) *corev1.PersistentVolumeClaim {
	claim := newClaim()
	claim.Spec.Resources.Requests = corev1.ResourceList{"storage": resource.MustParse("1Gi"), "iops": resource.MustParse(iops)}
	return claim
}

func newVolume() *corev1.PersistentVolume {
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	volume.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d"}
	volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "data", UID: "u"}
	return volume
}

// newStorageClass returns a StorageClass with a default class, and with an annotation that says whether requests choose a
// class. Each can be empty.
func newStorageClass(byDefault, requests string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{
		Name: "disks", Annotations: map[string]string{storage.DefaultClassAnnotation: byDefault, storage.RequestsAnnotation: requests},
	}}
}

func newClass(name, driver, iops string) *storagev1.VolumeAttributesClass {
	return &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: driver, Parameters: map[string]string{"iops": iops}}
}

// catalog has classes of the driver d, for which the controller chooses, and one of another driver.
func catalog() []*storagev1.VolumeAttributesClass {
	return []*storagev1.VolumeAttributesClass{newClass("foreign", "other", "1000"), newClass("gold", "d", "1000"), newClass("silver", "d", "500")}
}

// TestAClaimGetsTheClassOfItsRequestsOrTheDefaultClass has an empty `want` where the claim gets no class.
func TestAClaimGetsTheClassOfItsRequestsOrTheDefaultClass(t *testing.T) {
	elsewhere, another := newVolume(), newVolume()
	elsewhere.Spec.CSI.Driver = "other"
	another.Spec.ClaimRef.UID = "other"
	change := func(set func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		claim := newClaim()
		set(claim)
		return claim
	}
	for name, c := range map[string]struct {
		claim         *corev1.PersistentVolumeClaim
		volume        *corev1.PersistentVolume
		storageClass  *storagev1.StorageClass
		want, problem string
	}{
		"the default":                                {storageClass: newStorageClass("silver", ""), want: "silver"},
		"no default":                                 {storageClass: newStorageClass("", "")},
		"a default that does not exist":              {storageClass: newStorageClass("bronze", ""), problem: `"bronze", which does not exist`},
		"a default of another driver":                {storageClass: newStorageClass("foreign", ""), problem: "is not for driver d"},
		"a volume of a driver not listed":            {volume: elsewhere, storageClass: newStorageClass("silver", "")},
		"a volume of another claim":                  {volume: another, storageClass: newStorageClass("silver", "")},
		"an empty class counts as no class":          {claim: change(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = new("") }), storageClass: newStorageClass("silver", ""), want: "silver"},
		"a class of the claim stays":                 {claim: change(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = new("gold") }), storageClass: newStorageClass("silver", "")},
		"a claim that is not bound":                  {claim: change(func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending }), storageClass: newStorageClass("silver", "")},
		"a claim that is deleted":                    {claim: change(func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = new(metav1.Now()) }), storageClass: newStorageClass("silver", "")},
		"requests choose a class":                    {claim: requesting("1k"), storageClass: newStorageClass("silver", storage.ByRequests), want: "gold"},
		"requests that are not honoured":             {claim: requesting("1k"), storageClass: newStorageClass("silver", ""), want: "silver"},
		"requests that no class has":                 {claim: requesting("700"), storageClass: newStorageClass("silver", storage.ByRequests), want: "silver", problem: "(iops: 700); name one of these: gold, silver"},
		"requests that no class has, and no default": {claim: requesting("700"), storageClass: newStorageClass("", storage.ByRequests), problem: "no VolumeAttributesClass has"},
		"requests that cannot be a limit":            {claim: requesting("-1"), storageClass: newStorageClass("silver", storage.ByRequests), want: "silver", problem: "cannot be honoured"},
		"no requests of I/O":                         {claim: newClaim(), storageClass: newStorageClass("", storage.ByRequests)},
	} {
		t.Run(name, func(t *testing.T) {
			claim, around := c.claim, surroundings{volume: c.volume, storageClass: c.storageClass, classes: catalog()}
			if claim == nil {
				claim = newClaim()
			}
			if around.volume == nil {
				around.volume = newVolume()
			}
			got, problem := choose(claim, around, []string{"d"})
			text := ""
			if problem != nil {
				text = problem.Error()
			}
			if got != c.want || !strings.Contains(text, c.problem) || c.problem == "" && text != "" {
				t.Errorf("class %q, problem %q; want %q, %q", got, text, c.want, c.problem)
			}
		})
	}
}
