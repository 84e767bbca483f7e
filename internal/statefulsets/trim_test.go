// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulsets

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// TestTheControllerKeepsLittleOfEachObject uses objects of about 1 MiB that every user with the role edit can create. The controller has
// 512 MiB. It may keep 512 KiB of each, so that it has room for about 1000 of them.
func TestTheControllerKeepsLittleOfEachObject(t *testing.T) {
	const count = 20
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc) //nolint:gosec // the heap is small
	}
	for kind, create := range map[string]func(meta metav1.ObjectMeta) any{
		"claim with 10,000 requests":                 claimWithRequests,
		"claim with fields of a forged manager":      claimWithManagedFields,
		"StatefulSet with 10,000 templates":          setWithTemplates,
		"pod with 10,000 claims":                     podWithClaims,
		"object with 10,000 labels and 5,000 owners": objectWithMetadata,
	} {
		before, kept := heap(), []any{}
		for i := range count {
			trimmed := must.Get(trim(create(metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint(i)})))(t)
			kept = append(kept, trimmed)
		}
		if each := (heap() - before) / count; each > 512<<10 {
			t.Errorf("%s: the cache keeps %d KiB of it; %d of them fill 512 MiB", kind, each>>10, (512<<20)/each)
		}
		runtime.KeepAlive(kept)
	}
}

func claimWithRequests(meta metav1.ObjectMeta) any {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta}
	claim.Spec.Resources.Requests = corev1.ResourceList{"storage": resource.MustParse("1")}
	for i := range 10_000 {
		claim.Spec.Resources.Requests[corev1.ResourceName(fmt.Sprint("request-", i))] = resource.MustParse("1")
	}
	return claim
}

func claimWithManagedFields(meta metav1.ObjectMeta) any {
	fields := `{"f:spec":{"f:resources":{"f:requests":{"f:storage":{}}}},"f:metadata":"` + strings.Repeat("x", 1<<20) + `"}`
	meta.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: fieldManager, FieldsV1: metav1.NewFieldsV1(fields)}}
	return &corev1.PersistentVolumeClaim{ObjectMeta: meta}
}

func setWithTemplates(meta metav1.ObjectMeta) any {
	set := &appsv1.StatefulSet{ObjectMeta: meta}
	for i := range 10_000 {
		name := metav1.ObjectMeta{Name: fmt.Sprint("data-", i)}
		set.Spec.VolumeClaimTemplates = append(set.Spec.VolumeClaimTemplates, corev1.PersistentVolumeClaim{ObjectMeta: name})
	}
	return set
}

func podWithClaims(meta metav1.ObjectMeta) any {
	meta.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", UID: "u", Controller: new(true)}}
	pod := &corev1.Pod{ObjectMeta: meta}
	for i := range 10_000 {
		name := fmt.Sprint("data-", i)
		source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	}
	return pod
}

func objectWithMetadata(meta metav1.ObjectMeta) any {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	object.SetName(meta.Name)
	labels, owners := map[string]string{}, []metav1.OwnerReference{}
	for i := range 10_000 {
		labels[fmt.Sprint("label-", i)] = "x"
	}
	for i := range 5_000 {
		owners = append(owners, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: meta.Name, UID: "u", Controller: new(i == 0)})
	}
	object.SetLabels(labels)
	object.SetOwnerReferences(owners)
	return object
}
