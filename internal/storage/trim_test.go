// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// TestTheControllerKeepsLittleOfEachObject uses large objects that every user can create. The controller has 512 MiB.
func TestTheControllerKeepsLittleOfEachObject(t *testing.T) {
	const count = 20
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc) //nolint:gosec // the heap is small
	}
	for kind, create := range map[string]func(meta metav1.ObjectMeta) any{
		"claim with 250 KiB of annotations": func(meta metav1.ObjectMeta) any {
			meta.Annotations = map[string]string{"x": strings.Repeat("x", 250<<10)}
			return &corev1.PersistentVolumeClaim{ObjectMeta: meta}
		},
		"claim with 10,000 requests": func(meta metav1.ObjectMeta) any {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta}
			claim.Spec.Resources.Requests = corev1.ResourceList{"iops": resource.MustParse("1")}
			for i := range 10000 {
				claim.Spec.Resources.Requests[corev1.ResourceName(fmt.Sprint("request-", i))] = resource.MustParse("1")
			}
			return claim
		},
		"pod with 1 MiB of volumes":             func(meta metav1.ObjectMeta) any { return podWithConfigMaps(meta) },
		"pod with 5000 claims in 40 containers": func(meta metav1.ObjectMeta) any { return podWithClaims(meta) },
	} {
		before, kept := heap(), []any{}
		for i := range count {
			trimmed := must.Get(Trim(create(metav1.ObjectMeta{Name: fmt.Sprint(i)})))(t)
			kept = append(kept, trimmed)
		}
		each := (heap() - before) / count
		if each > 64<<10 {
			t.Errorf("%s: the cache keeps %d KiB of it; %d of them fill 512 MiB", kind, each>>10, (512<<20)/each)
		}
		runtime.KeepAlive(kept)
	}
}

func podWithConfigMaps(meta metav1.ObjectMeta) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "main"}}}}
	for j := range 256 {
		name := fmt.Sprint(j)
		items := []corev1.KeyToPath{{Key: "k", Path: strings.Repeat("p", 4<<10)}}
		source := corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{Items: items}}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	return pod
}

func podWithClaims(meta metav1.ObjectMeta) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: "node-1"}}
	for j := range 40 {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint(j)})
		running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: fmt.Sprint(j), State: running})
	}
	for j := range 5000 {
		name := fmt.Sprint(j)
		source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		mounts := &pod.Spec.Containers[j%40].VolumeMounts
		*mounts = append(*mounts, corev1.VolumeMount{Name: name, MountPath: "/" + strings.Repeat("p", 250) + name})
	}
	return pod
}

// TestTheFirstMountOfEachClaimIsKept uses a pod with 40 mounts of the claim data, and then one of the claim second. Only 32 mounts of a
// pod can have limits. The informer keeps one mount more, so that the controller can report an omission.
func TestTheFirstMountOfEachClaimIsKept(t *testing.T) {
	const second = "volumes: [{name: second, persistentVolumeClaim: {claimName: second}}, {name: data,"
	text := strings.Replace(podOf("a", "u9", append(paths(40), "/last")...), "volumes: [{name: data,", second, 1)
	text = strings.Replace(text, "{name: data, mountPath: \"/last\"}", "{name: second, mountPath: /last}", 1)
	claim := strings.NewReplacer("name: data", "name: second", "c-z", "c2", "pv-z", "pv-2", "namespace: z", "namespace: a").Replace(claimOf("z"))
	spec, problems := firstSpecFor(t, manifests+text+claim)
	kept := map[string]int{}
	for _, v := range spec.Volumes {
		kept[v.PodUID+v.Path]++
	}

	// These are 32 volumes of this pod, and two of the pod in the manifests.
	if len(spec.Volumes) != 34 || kept["u9/last"] != 1 || kept["u9/data/00"] != 1 || len(problems) != 1 {
		t.Errorf("the volumes are %v, want 34 with u9/last and u9/data/00; the problems are %v, want one", kept, problems)
	}
}
