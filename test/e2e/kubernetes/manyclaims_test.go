// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	// manyClaims is the number of claims in the namespace many-0, and fewClaims that in the namespace many-1. Each has a pod on one of
	// manyNodes nodes.
	manyClaims, fewClaims, manyNodes = 1900, 100, 20
	// maxClaimsMemory is in MiB, for each of the two controllers.
	maxClaimsMemory = 96
)

// crowd has claims and pods that exist only in the API: the test stops their controllers.
type crowd struct {
	*node
	core kubernetes.Interface
}

// TestManyClaimsOfOneClass measures "qos-storage defaults" and "qos-storage" with 2,000 claims: the default class of their StorageClass is
// set, and then all claims get another class. 100 of the claims are in another namespace than the 1,900 others.
func TestManyClaimsOfOneClass(t *testing.T) {
	skipNightly(t)
	n := cluster(t)
	n.reportFailure(t)
	c := newCrowd(t, n)
	c.create(t)
	defaults := n.startController(t, "defaults", "--drivers=kubernetes.io/no-provisioner")
	limits := n.startProcess(t, "qos-storage", n.program("qos-storage"), "--drivers=kubernetes.io/no-provisioner",
		"--namespace=qos-system", "--metrics-address=", "--kubeconfig="+n.account(t, "qos-system", "qos-storage"))
	limitsBefore, defaultsBefore := len(n.writesOf(t, "qos-storage/")), len(n.writesOf(t, "qos-storage-defaults/"))

	begin := time.Now()
	c.kubectl(t, "annotate", "storageclass", "many", "qos.noderesource.dev/default-volume-attributes-class=many")
	c.named(t)
	t.Logf("the default class is set in %.0f s", time.Since(begin).Seconds())
	c.limited(t, "500")
	c.measured(t, defaults, "qos-storage-defaults/", manyClaims+fewClaims, defaultsBefore)
	c.measured(t, limits, "qos-storage/", 3*manyNodes, limitsBefore) // a few writes for each node, and none for each claim

	// The 100 claims do not wait for the 1,900.
	c.takesTurns(t)

	limitsBefore = len(n.writesOf(t, "qos-storage/"))
	c.class(t, "other", "700")
	c.choose(t, "other")
	c.limited(t, "700")
	c.measured(t, limits, "qos-storage/", 10*manyNodes, limitsBefore) // the claims change one after another
}

func newCrowd(t *testing.T, n *node) *crowd {
	t.Helper()
	n.kubectl(t, "apply", "-f", deploy+"kubernetes/namespace.yaml", "-f", crd, "-f", deploy+"storage/rbac.yaml",
		"-f", deploy+"storage-defaults/rbac.yaml", "-f", deploy+"storage-defaults/confine.yaml")
	n.kubectl(t, "wait", "--for=condition=Established", "crd/nodeqosresources.qos.noderesource.dev", within)
	must(t, n.cluster.controllers.end(syscall.SIGTERM))
	t.Cleanup(func() { n.cluster.controllers.mustStart(t) })
	c := &crowd{node: n, core: n.client(t)}
	t.Cleanup(func() { c.remove(t) })
	return c
}

// create creates the claims, their volumes and their pods.
func (c *crowd) create(t *testing.T) {
	t.Helper()
	c.class(t, "many", "500")
	c.apply(t, `{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: many}, provisioner: kubernetes.io/no-provisioner}`)
	for i := range manyNodes {
		c.apply(t, fmt.Sprintf(`{apiVersion: qos.noderesource.dev/v1alpha1, kind: NodeQOSResources, metadata: {name: many-%d}}`, i))
	}
	for namespace, claims := range crowded() {
		c.kubectl(t, "create", "namespace", namespace)
		c.kubectl(t, "-n", namespace, "create", "serviceaccount", "default")
		each(t, claims, func(ctx context.Context, i int) error { return c.createClaim(ctx, namespace, i) })
	}
}

// crowded returns the number of claims of each namespace.
func crowded() map[string]int { return map[string]int{"many-0": manyClaims, "many-1": fewClaims} }

// class creates a VolumeAttributesClass.
func (c *crowd) class(t *testing.T, name, iops string) {
	t.Helper()
	c.apply(t, fmt.Sprintf(`{apiVersion: storage.k8s.io/v1, kind: VolumeAttributesClass, metadata: {name: %s},
  driverName: kubernetes.io/no-provisioner, parameters: {iops: "%s"}}`, name, iops))
}

// choose sets the class of all claims, as users do.
func (c *crowd) choose(t *testing.T, class string) {
	t.Helper()
	body := []byte(`{"spec":{"volumeAttributesClassName":"` + class + `"}}`)
	for namespace, claims := range crowded() {
		each(t, claims, func(ctx context.Context, i int) error {
			name := fmt.Sprintf("%s-%d", namespace, i)
			_, err := c.core.CoreV1().PersistentVolumeClaims(namespace).Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
			return err
		})
	}
}

// createClaim creates a volume, its claim, which is bound, and a pod that runs with it.
func (c *crowd) createClaim(ctx context.Context, namespace string, i int) error {
	name, size := fmt.Sprintf("%s-%d", namespace, i), corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	claim.Spec = corev1.PersistentVolumeClaimSpec{
		StorageClassName: new("many"), AccessModes: modes, VolumeName: name, Resources: corev1.VolumeResourceRequirements{Requests: size},
	}
	claim, err := created(ctx, c.core.CoreV1().PersistentVolumeClaims(namespace), claim, setBound)
	if err != nil {
		return err
	}

	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	volume.Spec = corev1.PersistentVolumeSpec{Capacity: size, AccessModes: modes, StorageClassName: "many"}
	volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: name, UID: claim.UID}
	volume.Spec.Local = &corev1.LocalVolumeSource{Path: "/volumes/" + name}
	host := corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpExists}
	volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{host}}},
	}}
	if _, err := c.core.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{}); err != nil {
		return err
	}
	return c.createPod(ctx, namespace, name, fmt.Sprintf("many-%d", i%manyNodes))
}

func (c *crowd) createPod(ctx context.Context, namespace, claim, node string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: claim}}
	pod.Spec.NodeName, pod.Spec.TerminationGracePeriodSeconds = node, new(int64(0))
	mounts := []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "none", VolumeMounts: mounts}}
	source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: source}}
	_, err := created(ctx, c.core.CoreV1().Pods(namespace), pod, setRunning)
	return err
}

// created creates an object and sets its status, as controllers and kubelets do.
func created[T any](ctx context.Context, objects interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	UpdateStatus(context.Context, T, metav1.UpdateOptions) (T, error)
}, object T, setStatus func(T),
) (T, error) {
	object, err := objects.Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return object, err
	}
	setStatus(object)
	return objects.UpdateStatus(ctx, object, metav1.UpdateOptions{})
}

func setBound(claim *corev1.PersistentVolumeClaim) {
	claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: claim.Spec.Resources.Requests}
}

func setRunning(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning }

// named waits until all claims name the class.
func (c *crowd) named(t *testing.T) {
	t.Helper()
	until(t, "all claims name the class", func() (bool, string) {
		count := 0
		for namespace := range crowded() {
			list, err := c.core.CoreV1().PersistentVolumeClaims(namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return false, err.Error()
			}
			for i := range list.Items {
				if class := list.Items[i].Spec.VolumeAttributesClassName; class != nil && *class == "many" {
					count++
				}
			}
		}
		return count == manyClaims+fewClaims, fmt.Sprint(count)
	})
}

// limited waits until the specs of all nodes have all volumes, and the class with a limit.
func (c *crowd) limited(t *testing.T, iops string) {
	t.Helper()
	until(t, "all volumes have the limit", func() (bool, string) {
		volumes, err := c.try("get", "nodeqosresources", "-o", "jsonpath={.items[*].spec.volumes[*].class}")
		if err != nil {
			return false, volumes
		}
		limits, err := c.try("get", "nodeqosresources", "-o", "jsonpath={.items[*].spec.volumeClasses[*].maxReadIops}")
		seen := fmt.Sprintf("%d volumes, limits %s", len(strings.Fields(volumes)), limits)
		return err == nil && len(strings.Fields(volumes)) == manyClaims+fewClaims && strings.Count(limits+" ", iops+" ") == manyNodes, seen
	})
}

// measured reports the memory of a controller, and its writes after the first `before` ones, without those of the Lease.
// There may be at most `most` such writes.
func (c *crowd) measured(t *testing.T, p *process, program string, most, before int) {
	t.Helper()
	writes := c.writesOf(t, program)[before:]
	counts, all := countEach(writes), 0
	for _, write := range writes {
		if !strings.HasSuffix(write, " leases") {
			all++
		}
	}
	resident, peak := memory(t, p)
	t.Logf("%s: %.0f MiB resident, %.0f MiB at most, %s of CPU in all; writes: %v", program, resident, peak, cpuTime(t, p), counts)
	if all > most {
		t.Errorf("%s: %d writes, want at most %d", program, all, most)
	}
	if peak > maxClaimsMemory {
		t.Errorf("%s has used %.0f MiB, want at most %d", program, peak, maxClaimsMemory)
	}
}

// takesTurns checks the order of the patches: the claims of the small namespace do not wait for those of the large one.
func (c *crowd) takesTurns(t *testing.T) {
	t.Helper()
	patches, last, few := 0, 0, 0
	for entry := range c.audited(t, "qos-storage-defaults/") {
		if entry.Verb != "patch" || entry.ObjectRef.Resource != "persistentvolumeclaims" || crowded()[entry.ObjectRef.Namespace] == 0 {
			continue
		}
		if patches++; entry.ObjectRef.Namespace == "many-1" {
			last, few = patches, few+1
		}
	}
	t.Logf("the %d claims of the small namespace are among the first %d of %d", few, last, patches)
	if few != fewClaims || last > (manyClaims+fewClaims)/2 {
		t.Errorf("%d claims of the small namespace are among the first %d of %d patches, want %d among the first half", few, last, patches, fewClaims)
	}
}

// remove deletes everything, before the controllers of Kubernetes run again.
func (c *crowd) remove(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	all, now := metav1.ListOptions{}, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	unprotected := []byte(`{"metadata":{"finalizers":null}}`) // the controllers that remove the finalizers do not run
	for namespace, claims := range crowded() {
		must(t, c.core.CoreV1().Pods(namespace).DeleteCollection(ctx, now, all))
		must(t, c.core.CoreV1().PersistentVolumeClaims(namespace).DeleteCollection(ctx, now, all))
		each(t, claims, func(ctx context.Context, i int) error {
			name, volumes := fmt.Sprintf("%s-%d", namespace, i), c.core.CoreV1().PersistentVolumes()
			_, claimErr := c.core.CoreV1().PersistentVolumeClaims(namespace).Patch(ctx, name, types.MergePatchType, unprotected, metav1.PatchOptions{})
			_, volumeErr := volumes.Patch(ctx, name, types.MergePatchType, unprotected, metav1.PatchOptions{})
			return errors.Join(claimErr, volumeErr, volumes.Delete(ctx, name, now))
		})
		c.kubectl(t, "delete", "namespace", namespace, "--wait=false")
	}
	for _, class := range []string{"many", "other"} {
		c.kubectl(t, "patch", "volumeattributesclass", class, "--type=merge", "-p", string(unprotected))
		c.kubectl(t, "delete", "volumeattributesclass", class)
	}
	c.kubectl(t, "delete", "storageclass", "many")
	c.kubectl(t, "delete", "-f", crd)
}
