// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
)

const (
	// replicasEach is the number of replicas of each StatefulSet. QOS_STATEFULSETS is the number of StatefulSets; its default is manySets.
	replicasEach, manySets = 10, 1000
	// growing is the number of StatefulSets whose volumes grow.
	growing = 100
	// maxResizeMemory is in MiB, for 1,000 StatefulSets with 10,000 claims and pods.
	maxResizeMemory = 256
)

// fleet has many StatefulSets, which exist only in the API: the test stops their controller, and simulates the driver.
type fleet struct {
	*node
	sets    int
	core    kubernetes.Interface
	objects dynamic.ResourceInterface
}

// TestResizeOfManyStatefulSets measures "qos-storage resize" with 1,000 StatefulSets and 10,000 claims. It fails if the controller
// uses more than maxResizeMemory, or has written more often since its start than the maps allow.
func TestResizeOfManyStatefulSets(t *testing.T) {
	skipNightly(t)
	n := cluster(t)
	n.reportFailure(t)
	f := newFleet(t, n)
	start := time.Now()
	f.create(t)
	t.Logf("%d StatefulSets with %d replicas each are created in %.0f s", f.sets, replicasEach, time.Since(start).Seconds())

	start = time.Now()
	controller := n.startController(t, "resize")
	f.ready(t, f.sets, 1)
	f.measured(t, controller, start, "after its start", map[string]int{"patch statefulsetvolumes/status": f.sets})

	start = time.Now()
	before := f.counted(t)
	f.grow(t)
	f.ready(t, growing, 2)

	// The status of an object changes when its claims are patched, when the driver has to expand the volumes, and with each volume that is
	// ready.
	f.measured(t, controller, start, fmt.Sprintf("%d of them grow", growing), map[string]int{
		"patch persistentvolumeclaims":    growing * replicasEach,
		"patch statefulsetvolumes/status": before["patch statefulsetvolumes/status"] + growing*(replicasEach+2),
	})
}

func newFleet(t *testing.T, n *node) *fleet {
	t.Helper()
	f := &fleet{node: n, sets: max(numberFrom(t, "QOS_STATEFULSETS", manySets), growing)}
	n.applyResize(t)
	must(t, n.cluster.controllers.end(syscall.SIGTERM))
	t.Cleanup(func() { n.cluster.controllers.mustStart(t) })
	n.kubectl(t, "create", "namespace", "fleet")
	n.kubectl(t, "-n", "fleet", "create", "serviceaccount", "default")
	n.apply(t, `{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: fleet}, provisioner: none.example, allowVolumeExpansion: true}`)

	f.core, f.objects = n.client(t), n.clientOf(t, nodeqosv1alpha1.StatefulSetVolumesPlural).Namespace("fleet")
	t.Cleanup(func() { f.remove(t) })
	return f
}

// each calls a function with the name of each of the first `sets` StatefulSets, some calls concurrently.
func (f *fleet) each(t *testing.T, sets int, do func(ctx context.Context, name string) error) {
	t.Helper()
	each(t, sets, func(ctx context.Context, i int) error { return do(ctx, fmt.Sprintf("db-%d", i)) })
}

func (f *fleet) create(t *testing.T) {
	t.Helper()
	f.each(t, f.sets, func(ctx context.Context, name string) error {
		set, err := f.createSet(ctx, name)
		if err != nil {
			return err
		}
		for i := range replicasEach {
			if err := f.createReplica(ctx, set, fmt.Sprintf("%s-%d", name, i)); err != nil {
				return err
			}
		}
		return f.request(ctx, name, "10Gi")
	})
}

func (f *fleet) createSet(ctx context.Context, name string) (*appsv1.StatefulSet, error) {
	app := map[string]string{"app": name}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	set.Spec.Replicas, set.Spec.PodManagementPolicy, set.Spec.Selector = new(int32(replicasEach)), appsv1.ParallelPodManagement, &metav1.LabelSelector{MatchLabels: app}
	set.Spec.Template.Labels = app
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "none"}}
	claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: claimSpec()}
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claim}
	return created(ctx, f.core.AppsV1().StatefulSets("fleet"), set, func(set *appsv1.StatefulSet) {
		set.Status = appsv1.StatefulSetStatus{ObservedGeneration: set.Generation, Replicas: replicasEach, UpdateRevision: "new"}
	})
}

func claimSpec() corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		StorageClassName: new("fleet"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}},
	}
}

// createReplica creates a pod that is ready, and its claim, which is bound.
func (f *fleet) createReplica(ctx context.Context, set *appsv1.StatefulSet, name string) error {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-" + name}, Spec: claimSpec()}
	claim.Spec.VolumeName = claim.Name
	if _, err := created(ctx, f.core.CoreV1().PersistentVolumeClaims("fleet"), claim, setBound); err != nil {
		return err
	}

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: "new"}}}
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	pod.Spec.SchedulerName, pod.Spec.Containers = "nobody", []corev1.Container{{Name: "main", Image: "none"}}
	source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: source}}
	_, err := created(ctx, f.core.CoreV1().Pods("fleet"), pod, func(pod *corev1.Pod) {
		setRunning(pod)
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	})
	return err
}

// request creates or changes a StatefulSetVolumes object.
func (f *fleet) request(ctx context.Context, name, size string) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": nodeqosv1alpha1.GroupVersion.String(), "kind": nodeqosv1alpha1.StatefulSetVolumesKind, "metadata": map[string]any{"name": name},
		"spec": map[string]any{"volumeClaimTemplates": []any{map[string]any{"name": "data", "storage": size}}},
	})
	if err != nil {
		return err
	}
	_, err = f.objects.Patch(ctx, name, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "test"})
	return err
}

// grow requests a larger size for some StatefulSets. When their claims request it, grow gives the volumes the size, as a driver does.
func (f *fleet) grow(t *testing.T) {
	t.Helper()
	f.each(t, growing, func(ctx context.Context, name string) error { return f.request(ctx, name, "20Gi") })
	wanted := resource.MustParse("20Gi")
	claims := f.core.CoreV1().PersistentVolumeClaims("fleet")
	grown := map[string]bool{}
	until(t, "all claims request the size", func() (bool, string) {
		list, err := claims.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		for i := range list.Items {
			claim := &list.Items[i]
			if grown[claim.Name] || claim.Spec.Resources.Requests.Storage().Cmp(wanted) != 0 {
				continue
			}
			claim.Status.Capacity = claim.Spec.Resources.Requests
			if _, err := claims.UpdateStatus(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
				return false, err.Error()
			}
			grown[claim.Name] = true
		}
		return len(grown) == growing*replicasEach, fmt.Sprint(len(grown))
	})
}

// ready waits until at least `objects` objects are ready in a generation.
func (f *fleet) ready(t *testing.T, objects int, generation int64) {
	t.Helper()
	until(t, "the objects are ready", func() (bool, string) {
		list, err := f.objects.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		count := 0
		for i := range list.Items {
			if isReady(&list.Items[i], generation) {
				count++
			}
		}
		return count >= objects, fmt.Sprint(count)
	})
}

func isReady(content *unstructured.Unstructured, generation int64) bool {
	object := nodeqosv1alpha1.StatefulSetVolumes{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(content.Object, &object) != nil || object.Status.ObservedGeneration != generation {
		return false
	}
	for _, c := range object.Status.Conditions {
		if c.Type == nodeqosv1alpha1.ConditionVolumesReady {
			return c.Status == metav1.ConditionTrue
		}
	}
	return false
}

// counted returns the number of the controller's writes of each kind.
func (f *fleet) counted(t *testing.T) map[string]int {
	t.Helper()
	return countEach(f.writesOf(t, "qos-storage-resize"))
}

// measured reports the resources that the controller has used so far, and compares them with the limits.
func (f *fleet) measured(t *testing.T, controller *process, start time.Time, what string, most map[string]int) {
	t.Helper()
	took, counts := time.Since(start), f.counted(t)
	resident, peak := memory(t, controller)
	t.Logf("%s: %.0f s, %s of CPU in all, %.0f MiB resident, %.0f MiB at most; writes in all: %v", what, took.Seconds(), cpuTime(t, controller), resident, peak, counts)
	if peak > maxResizeMemory {
		t.Errorf("the controller has used %.0f MiB, want at most %d", peak, maxResizeMemory)
	}
	for write, count := range counts {
		if limit, limited := most[write]; limited && count > limit {
			t.Errorf("%s: %d writes, want at most %d", write, count, limit)
		}
	}
}

// remove deletes everything, before the controllers of Kubernetes run again.
func (f *fleet) remove(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	all, now := metav1.ListOptions{}, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	must(t, f.objects.DeleteCollection(ctx, now, all))
	must(t, f.core.AppsV1().StatefulSets("fleet").DeleteCollection(ctx, now, all))
	must(t, f.core.CoreV1().Pods("fleet").DeleteCollection(ctx, now, all))
	claims := f.core.CoreV1().PersistentVolumeClaims("fleet")
	must(t, claims.DeleteCollection(ctx, now, all))
	list, err := claims.List(ctx, all)
	must(t, err)
	each(t, len(list.Items), func(ctx context.Context, i int) error { // the controller that removes the finalizer does not run
		_, err := claims.Patch(ctx, list.Items[i].Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		return err
	})
	f.kubectl(t, "delete", "namespace", "fleet", "--wait=false")
	f.kubectl(t, "delete", "storageclass", "fleet")
}
