// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulsets

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
)

// newSnapshot returns a StatefulSet with three ready replicas, whose volumes have 10 GiB and the class silver. Its StorageClass "grows"
// allows expansion.
func newSnapshot() snapshot {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db", UID: "set", Generation: 2}}
	set.Spec.Replicas = new(int32(3))
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}, {ObjectMeta: metav1.ObjectMeta{Name: "log"}}}
	set.Status = appsv1.StatefulSetStatus{ObservedGeneration: 2, UpdateRevision: "new"}
	s := snapshot{
		set: set, pods: map[string]*corev1.Pod{}, claims: map[string]*corev1.PersistentVolumeClaim{},
		expandable: map[string]bool{"grows": true, "fixed": false},
	}
	for i := range 4 { // db-3 is left from the time before a scale-down
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("db-%d", i)}}
		pod.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: "new"}
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		for _, template := range []string{"data", "log"} {
			name := template + "-" + pod.Name
			source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: template, VolumeSource: source})
			s.claims[name] = newClaim(name)
		}
		if i < 3 {
			s.pods[pod.Name] = pod
		}
	}
	return s
}

func newClaim(name string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "claim", ResourceVersion: "7"}}
	claim.Spec.StorageClassName, claim.Spec.VolumeAttributesClassName = new("grows"), new("silver")
	claim.Spec.Resources.Requests = storage("10Gi")
	claim.Status = corev1.PersistentVolumeClaimStatus{
		Phase: corev1.ClaimBound, Capacity: storage("10Gi"), CurrentVolumeAttributesClassName: new("silver"),
	}
	return claim
}

func storage(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

// request returns a spec. Each word has the form TEMPLATE=SIZE or TEMPLATE=CLASS, or both with a comma between them.
func request(t *testing.T, text string) (spec nodeqosv1alpha1.StatefulSetVolumesSpec) {
	t.Helper()
	for word := range strings.FieldsSeq(text) {
		name, values, _ := strings.Cut(word, "=")
		template := nodeqosv1alpha1.VolumeClaimTemplate{Name: name}
		for value := range strings.SplitSeq(values, ",") {
			if size, err := resource.ParseQuantity(value); err == nil {
				template.Storage = &size
			} else {
				template.VolumeAttributesClassName = value
			}
		}
		spec.VolumeClaimTemplates = append(spec.VolumeClaimTemplates, template)
	}
	return spec
}

// The changes of the snapshot in the table below.
func claim(name string, change func(*corev1.PersistentVolumeClaim)) func(snapshot) {
	return func(s snapshot) { change(s.claims[name]) }
}

func requests(size string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = storage(size) }
}

func has(size string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests, c.Status.Capacity = storage(size), storage(size)
	}
}

func failsAt(size string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests = storage(size)
		c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{
			{Type: corev1.PersistentVolumeClaimControllerResizeError, Status: corev1.ConditionTrue, Message: "pool is\n full"},
		}
	}
}

// grownHere makes this controller the last one to change the requested size.
func grownHere(c *corev1.PersistentVolumeClaim) {
	c.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}, {
		Manager: "qos-storage-resize", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:resources":{"f:requests":{"f:storage":{}}}}}`),
	}}
}

func inStatus(size string, status corev1.ClaimResourceStatus) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests = storage(size)
		c.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: status}
	}
}

func class(spec, current string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeAttributesClassName, c.Status.CurrentVolumeAttributesClassName = &spec, &current
	}
}

func pod(name string, change func(*corev1.Pod)) func(snapshot) {
	return func(s snapshot) { change(s.pods[name]) }
}

func notReady(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }

// ofFixed gives a claim a StorageClass that does not allow expansion.
func ofFixed(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("fixed") }

func scaled(replicas int32) func(snapshot) {
	return func(s snapshot) { s.set.Spec.Replicas = &replicas }
}

func parallel(s snapshot) { s.set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }

// lines returns the steps as text: claim, phase, and the patch or the message.
func lines(steps []step) (all []string) {
	names := map[phase]string{
		ready: "ready", changing: "changing", patchable: "patch", queued: "queued", pending: "pending",
		noTemplate: "no template", invalidSize: "invalid size", tooMany: "too many", notAllowed: "not allowed", refused: "refused", failed: "failed",
	}
	for _, s := range steps {
		line := strings.TrimSpace(s.claim + " " + names[s.phase])
		switch {
		case s.phase == patchable:
			if s.patch.storage != nil {
				line += " " + s.patch.storage.String()
			}
			line = strings.TrimSpace(line + " " + s.patch.class)
		case s.message != "":
			line += ": " + s.message
		}
		all = append(all, line)
	}
	return all
}

// TestPlan has three replicas. Of ordered replicas, only the first one that is not ready gets a patch.
func TestPlan(t *testing.T) {
	const kubelet = "changing: the kubelet has to expand the volume; if this lasts, delete the pod, because some drivers expand volumes only then"
	type change = func(snapshot)
	alone := scaled(1)
	failed := []change{alone, claim("data-db-0", failsAt("50Gi")), claim("data-db-0", grownHere)}
	for _, c := range []struct {
		name, request string
		changes       []change
		want          []string
	}{
		{"ordered replicas begin with the first", "data=20Gi", nil, []string{
			"data-db-0 patch 20Gi", "data-db-1 queued: waits for pod db-0", "data-db-2 queued: waits for pod db-0"}},
		{"parallel replicas change at once", "data=20Gi", []change{parallel}, []string{
			"data-db-0 patch 20Gi", "data-db-1 patch 20Gi", "data-db-2 patch 20Gi"}},
		{"the next replica waits for the driver", "data=20Gi", []change{claim("data-db-0", requests("20Gi"))}, []string{
			"data-db-0 changing: the driver has to expand the volume", "data-db-1 queued: waits for pod db-0", "data-db-2 queued: waits for pod db-0"}},
		{"the next replica waits for the kubelet", "data=20Gi",
			[]change{claim("data-db-0", inStatus("20Gi", corev1.PersistentVolumeClaimNodeResizePending))},
			[]string{"data-db-0 " + kubelet, "data-db-1 queued: waits for pod db-0", "data-db-2 queued: waits for pod db-0"}},
		{"the next replica follows when the volume is expanded", "data=20Gi", []change{claim("data-db-0", has("20Gi"))}, []string{
			"data-db-0 ready", "data-db-1 patch 20Gi", "data-db-2 queued: waits for pod db-1"}},
		{"a failure of the driver stops ordered replicas", "data=20Gi",
			[]change{claim("data-db-0", has("20Gi")), claim("data-db-1", failsAt("20Gi"))}, []string{"data-db-0 ready",
				"data-db-1 failed: the driver cannot expand the volume: pool is full", "data-db-2 queued: waits for pod db-1"}},
		{"a failure of the driver stops no parallel replicas", "data=20Gi", []change{parallel, claim("data-db-0", failsAt("20Gi"))}, []string{
			"data-db-0 failed: the driver cannot expand the volume: pool is full", "data-db-1 patch 20Gi", "data-db-2 patch 20Gi"}},

		{"a class is changed in order, too", "data=gold", []change{claim("data-db-0", class("gold", "silver"))}, []string{
			"data-db-0 changing: the driver has to give the volume the class gold", "data-db-1 queued: waits for pod db-0",
			"data-db-2 queued: waits for pod db-0"}},
		{"two templates of a replica change together", "data=20Gi log=11Gi", []change{claim("data-db-0", has("20Gi"))}, []string{
			"data-db-0 ready", "log-db-0 patch 11Gi", "data-db-1 queued: waits for pod db-0", "log-db-1 queued: waits for pod db-0",
			"data-db-2 queued: waits for pod db-0", "log-db-2 queued: waits for pod db-0"}},
		{"an unknown template does not stop the others", "dat=20Gi log=11Gi", []change{parallel}, []string{
			`no template: StatefulSet db has no claim template "dat"; correct the name`, "log-db-0 patch 11Gi", "log-db-1 patch 11Gi", "log-db-2 patch 11Gi"}},
		{"a StorageClass without expansion is reported at once", "data=20Gi", []change{claim("data-db-2", ofFixed)}, []string{
			"data-db-0 patch 20Gi", "data-db-1 queued: waits for pod db-0",
			`data-db-2 not allowed: StorageClass "fixed" does not allow expansion; set its field allowVolumeExpansion, if the driver can expand volumes`}},

		{"a pod that is not ready stops ordered replicas", "data=20Gi",
			[]change{pod("db-0", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} })}, []string{
				"data-db-0 pending: pod db-0 is not ready", "data-db-1 queued: waits for pod db-0", "data-db-2 queued: waits for pod db-0"}},
		{"a pod that its change has harmed stops ordered replicas", "data=gold",
			[]change{claim("data-db-0", class("gold", "gold")), pod("db-0", notReady)},
			[]string{"data-db-0 ready", "data-db-1 queued: waits for pod db-0", "data-db-2 queued: waits for pod db-0"}},
		{"a pod that needs no change stops no parallel replica", "data=20Gi",
			[]change{parallel, claim("data-db-0", has("20Gi")), pod("db-0", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending })},
			[]string{"data-db-0 ready", "data-db-1 patch 20Gi", "data-db-2 patch 20Gi"}},
		{"a pod of an older revision stops no parallel replica", "data=20Gi",
			[]change{parallel, pod("db-1", func(p *corev1.Pod) { p.Labels[appsv1.ControllerRevisionHashLabelKey] = "old" })}, []string{
				"data-db-0 patch 20Gi", "data-db-1 pending: pod db-1 does not have the newest revision of the StatefulSet", "data-db-2 patch 20Gi"}},
		{"a StatefulSet with too many volumes", "data=20Gi log=gold", []change{scaled(5_001)}, []string{
			"too many: StatefulSet db has 5001 replicas with 2 claim templates, which is more than 10000 volumes; patch its claims by other means",
			"too many: StatefulSet db has 5001 replicas with 2 claim templates, which is more than 10000 volumes; patch its claims by other means",
		}},

		// The other cases have one replica, db-0. The claims of db-1 and db-2 stay as they are.
		{"a claim that is larger stays", "data=20Gi", []change{alone, claim("data-db-0", has("50Gi"))}, []string{"data-db-0 ready"}},
		{"a claim that becomes larger stays", "data=20Gi", []change{alone, claim("data-db-0", requests("50Gi"))}, []string{"data-db-0 changing: the driver has to expand the volume"}},
		{"a smaller size changes nothing", "data=5Gi", []change{alone}, []string{"data-db-0 ready"}},
		{"a smaller size repairs a failed expansion", "data=12Gi", failed, []string{"data-db-0 patch 12Gi"}},
		{"a claim that somebody has made larger stays if its expansion fails", "data=12Gi", []change{alone, claim("data-db-0", failsAt("50Gi"))},
			[]string{"data-db-0 failed: the driver cannot expand the volume: pool is full"}},
		{"after a failed expansion, a size below the capacity changes nothing", "data=8Gi", failed, []string{"data-db-0 ready"}},
		{"a smaller size repairs also if the StorageClass allows no expansion any more", "data=12Gi", append(failed, claim("data-db-0", ofFixed)), []string{"data-db-0 patch 12Gi"}},
		{"a failure of the kubelet is a failure", "data=20Gi", []change{alone, claim("data-db-0", inStatus("20Gi", corev1.PersistentVolumeClaimNodeResizeInfeasible))},
			[]string{"data-db-0 failed: the driver cannot expand the volume: NodeResizeInfeasible"}},
		{"size and class are one patch", "data=20Gi,gold", []change{alone}, []string{"data-db-0 patch 20Gi gold"}},
		{"a class that the driver refuses", "data=gold", []change{alone, claim("data-db-0", class("gold", "silver")), claim("data-db-0", func(c *corev1.PersistentVolumeClaim) {
			c.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{Status: corev1.PersistentVolumeClaimModifyVolumeInfeasible}
			c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{
				{Type: corev1.PersistentVolumeClaimVolumeModifyVolumeError, Status: corev1.ConditionTrue, Message: "iopz is unknown"}}
		})}, []string{"data-db-0 failed: the driver cannot give the volume the class: iopz is unknown"}},

		{"a pod that is not ready", "data=20Gi", []change{alone, pod("db-0", notReady)}, []string{"data-db-0 pending: pod db-0 is not ready"}},
		{"a pod that does not exist", "data=20Gi", []change{alone, func(s snapshot) { delete(s.pods, "db-0") }}, []string{"data-db-0 pending: pod db-0 does not exist"}},
		{"a pod of somebody else", "data=20Gi", []change{alone, pod("db-0", func(p *corev1.Pod) { p.OwnerReferences = nil })},
			[]string{"data-db-0 pending: pod db-0 does not belong to the StatefulSet"}},
		{"a pod that does not use the claim", "data=20Gi", []change{alone, pod("db-0", func(p *corev1.Pod) { p.Spec.Volumes = nil })},
			[]string{"data-db-0 pending: pod db-0 does not use the claim"}},
		{"a StatefulSet that its controller has not observed", "data=20Gi", []change{alone, func(s snapshot) { s.set.Generation = 3 }},
			[]string{"data-db-0 pending: the StatefulSet controller has not observed the newest version of the StatefulSet yet"}},
		{"a StatefulSet that is being deleted", "data=20Gi", []change{alone, func(s snapshot) { s.set.DeletionTimestamp = &metav1.Time{} }},
			[]string{"data-db-0 pending: the StatefulSet is being deleted"}},
		{"a claim that is not bound", "data=20Gi", []change{alone, claim("data-db-0", func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending })},
			[]string{"data-db-0 pending: the claim is not bound to a volume"}},
		{"a claim that does not exist", "data=20Gi", []change{alone, func(s snapshot) { delete(s.claims, "data-db-0") }},
			[]string{"data-db-0 pending: the claim does not exist or is being deleted"}},
		{"a claim that requests more than can be compared", "data=20Gi", []change{alone, claim("data-db-0", requests("1e1000000000"))},
			[]string{"data-db-0 changing: the driver has to expand the volume"}},

		{"a StatefulSet with as many templates as are allowed", "data=20Gi", []change{alone, func(s snapshot) {
			s.set.Spec.VolumeClaimTemplates = append(make([]corev1.PersistentVolumeClaim, 255), s.set.Spec.VolumeClaimTemplates[0])
		}}, []string{"data-db-0 patch 20Gi"}},
		{"a StatefulSet with too many templates", "data=20Gi", []change{alone, func(s snapshot) { s.set.Spec.VolumeClaimTemplates = make([]corev1.PersistentVolumeClaim, 257) }},
			[]string{"too many: StatefulSet db has more than 256 claim templates; patch its claims by other means"}},
		{"a StatefulSet with billions of replicas", "data=20Gi", []change{scaled(math.MaxInt32)},
			[]string{"too many: StatefulSet db has 2147483647 replicas with 2 claim templates, which is more than 10000 volumes; patch its claims by other means"}},
		{"replicas begin at the first ordinal", "data=20Gi", []change{alone, func(s snapshot) { s.set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 2} }}, []string{"data-db-2 patch 20Gi"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSnapshot()
			for _, change := range c.changes {
				change(s)
			}
			for name, claim := range s.claims {
				kept, _ := trim(claim)
				s.claims[name] = kept.(*corev1.PersistentVolumeClaim)
			}
			if diff := cmp.Diff(c.want, lines(plan(s, request(t, c.request)))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
