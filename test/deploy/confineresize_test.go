// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
)

// claimPatch returns a request that changes a claim.
func claimPatch(change func(*corev1.PersistentVolumeClaim)) request {
	before := &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "data-db-0", Labels: map[string]string{"app": "db"}, Finalizers: []string{"kubernetes.io/pvc-protection"},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("grows"), VolumeName: "pv", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	after := before.DeepCopy()
	change(after)
	return request{"persistentvolumeclaims", "", before, after}
}

// write is a write of a claim, and the messages with which it is refused.
type write struct {
	request
	want []string
}

// confines sends writes as a service account, and then as another one, which the policy must not confine.
func (c *confinement) confines(t *testing.T, account string, writes map[string]write) {
	t.Helper()
	for name, test := range writes {
		t.Run(name, func(t *testing.T) {
			if got := c.refusals(t, &user.DefaultInfo{Name: "system:serviceaccount:qos-system:" + account}, test.request); !slices.Equal(got, test.want) {
				t.Errorf("refusals are %q, want %q", got, test.want)
			}
			if got := c.refusals(t, &user.DefaultInfo{Name: "system:serviceaccount:qos-system:default"}, test.request); len(got) > 0 {
				t.Errorf("another user is refused: %q", got)
			}
		})
	}
}

// TestResizeMayChangeOnlySizeAndClassOfClaims sends writes as qos-storage resize, which can patch all claims of the cluster.
func TestResizeMayChangeOnlySizeAndClassOfClaims(t *testing.T) {
	const (
		otherField = "qos-storage resize may change only the requested storage and the VolumeAttributesClass of a claim"
		metadata   = "qos-storage resize may not change labels, annotations, finalizers or owners of a claim"
		noPatch    = "qos-storage resize may not create claims or write their status"
	)
	confinement := newConfinement(t, renderAt(t, "deploy/storage-statefulsets"))
	status, created := claimPatch(func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }), claimPatch(func(*corev1.PersistentVolumeClaim) {})
	status.subresource, created.before = "status", runtime.Object(nil)

	confinement.confines(t, "qos-storage-resize", map[string]write{
		"the size": {claimPatch(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("20Gi")
		}), nil},
		"the first class":    {claimPatch(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = new("gold") }), nil},
		"the managed fields": {claimPatch(func(c *corev1.PersistentVolumeClaim) { c.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}} }), nil},
		"another request": {claimPatch(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Resources.Requests["iops"] = resource.MustParse("1")
		}), []string{otherField}},
		"no request": {claimPatch(func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = nil }), []string{otherField}},
		"a limit": {claimPatch(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")}
		}), []string{otherField}},
		"the volume":                 {claimPatch(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "theirs" }), []string{otherField}},
		"no volume":                  {claimPatch(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "" }), []string{otherField}},
		"the StorageClass":           {claimPatch(func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("theirs") }), []string{otherField}},
		"a new field":                {claimPatch(func(c *corev1.PersistentVolumeClaim) { c.Spec.Selector = &metav1.LabelSelector{} }), []string{otherField}},
		"a label":                    {claimPatch(func(c *corev1.PersistentVolumeClaim) { c.Labels["app"] = "theirs" }), []string{metadata}},
		"an annotation":              {claimPatch(func(c *corev1.PersistentVolumeClaim) { c.Annotations = map[string]string{"a": "b"} }), []string{metadata}},
		"no finalizer":               {claimPatch(func(c *corev1.PersistentVolumeClaim) { c.Finalizers = nil }), []string{metadata}},
		"an owner":                   {claimPatch(func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = []metav1.OwnerReference{{Name: "theirs"}} }), []string{metadata}},
		"the status":                 {status, []string{noPatch}},
		"a claim that is new":        {created, []string{noPatch}},
		"no finalizer and no volume": {claimPatch(func(c *corev1.PersistentVolumeClaim) { c.Finalizers, c.Spec.VolumeName = nil, "" }), []string{otherField, metadata}},
	})
}
