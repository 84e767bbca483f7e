// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/invariant"
)

// claimQuota tests the quota of docs/volumes.md. No driver serves the VolumeAttributesClass that the test uses.
func claimQuota(t *testing.T, n *node) {
	n.apply(t, `{apiVersion: storage.k8s.io/v1, kind: VolumeAttributesClass, metadata: {name: rare}, driverName: loop.example, parameters: {iops: "500"}}`)
	t.Cleanup(func() { n.kubectl(t, "delete", "volumeattributesclass", "rare") })
	n.namespace(t, "claims", `{apiVersion: v1, kind: ResourceQuota, metadata: {name: rare-volumes}, spec: {hard: {persistentvolumeclaims: "1"},
  scopeSelector: {matchExpressions: [{scopeName: VolumeAttributesClass, operator: In, values: [rare]}]}}}`)
	n.awaitField(t, "the quota is in force", "1", "{.status.hard.persistentvolumeclaims}", "-n", "claims", "resourcequota", "rare-volumes")

	create := func(name, class string) (string, error) {
		claim := fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s, namespace: claims},
  spec: {storageClassName: none, %s accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`, name, class)
		return n.tryWith(claim, "create", "-f", "-")
	}

	for _, name := range []string{"first", "second"} {
		output, err := create(name, "volumeAttributesClassName: rare,")
		if exceeded := strings.Contains(output, "exceeded quota: rare-volumes"); exceeded != (name == "second") || exceeded != (err != nil) {
			t.Errorf("the creation of the %s claim returned %s; want that the quota refuses only the second", name, output)
		}
	}

	if output, err := create("other", ""); err != nil {
		t.Errorf("the creation of a claim without a class returned %s, want it accepted", output)
	}
}

// storageObjects are a local volume of the node, its claim, VolumeAttributesClasses for the claim, and a pod. The pod
// mounts the volume at a symbolic link, so the path of the mount in the container differs from the path in the pod spec.
const storageObjects = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local, annotations: {qos.noderesource.dev/default-volume-attributes-class: silver}}
provisioner: kubernetes.io/no-provisioner
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: silver}
driverName: kubernetes.io/no-provisioner
parameters: {iops: "500", throughput: 50Mi}
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: gold}
driverName: kubernetes.io/no-provisioner
parameters: {throughput: 200Mi}
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: wrong}
driverName: kubernetes.io/no-provisioner
parameters: {iopz: "500"}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: data}
spec:
  capacity: {storage: 16Mi}
  accessModes: [ReadWriteOnce]
  storageClassName: local
  local: {path: /volumes/data}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node-1]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: default}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: local
  resources: {requests: {storage: 16Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: claims, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}, {name: links, hostPath: {path: /volumes/links}}]
  containers:
  - name: main
    image: localhost/workload:1
    imagePullPolicy: Never
    volumeMounts: [{name: links, mountPath: /links}, {name: data, mountPath: /links/data}]
`

// The limits of silver and gold in io.max.
const (
	silverLimits = "rbps=52428800 wbps=52428800 riops=500 wiops=500"
	goldLimits   = "rbps=209715200 wbps=209715200 riops=max wiops=max"
)

// volumesFollowClaims changes the class of a claim while a running pod uses the claim's volume.
func volumesFollowClaims(t *testing.T, n *node, v *vm) {
	v.mountVolume(t)
	n.kubectl(t, "apply", "-f", deploy+"storage/rbac.yaml")
	t.Cleanup(func() { n.kubectl(t, "delete", "-f", deploy+"storage/rbac.yaml") })
	one := n.startStorage(t, "storage-1")
	n.startStorage(t, "storage-2")
	n.apply(t, storageObjects)
	t.Cleanup(func() {
		if output, err := n.tryWith(storageObjects, "delete", "-f", "-", "--wait", within); err != nil {
			t.Errorf("delete: %v: %s", err, output)
		}
	})

	n.running(t, "claims")
	same := n.sameContainers(t, "claims")
	n.limited(t, "claims", silverLimits)
	n.volume(t, "silver InForce ")
	n.condition(t, "claims", "main volume /links/data: silver of claim default/data, in force on 7:")
	wantLines(t, n.qos(t, "volumes", "claims"), "claims main /links/data silver silver 7:")

	n.setAttributes(t, "data", "gold")
	n.limited(t, "claims", goldLimits)
	n.volume(t, "gold InForce ")

	must(t, one.end(syscall.SIGTERM)) // now the other replica is the leader
	n.setAttributes(t, "data", "wrong")
	n.awaitInField(t, "the claim has an event", `parameter "iopz" is unknown; the parameters are iops and throughput`,
		"{.items[?(@.reason==\"VolumeAttributesClassNotEnforced\")].message}", "events")

	n.limited(t, "claims", silverLimits) // the default
	same("a change of the claim")
}

// mountVolume mounts a new filesystem at the path of the local volume.
func (v *vm) mountVolume(t *testing.T) {
	t.Helper()
	v.mustRun(t, "truncate", "-s", "16M", "/mnt/volume.img")
	v.mustRun(t, "mkfs.ext4", "-q", "/mnt/volume.img")
	v.mustRun(t, "mkdir", "-p", "/volumes/data", "/volumes/links")
	v.mustRun(t, "ln", "-sfn", "/elsewhere", "/volumes/links/data")
	v.mustRun(t, "mount", "-o", "loop", "/mnt/volume.img", "/volumes/data")
	t.Cleanup(func() { v.mustRun(t, "umount", "/volumes/data") })
}

// startStorage starts a replica of qos-storage, with the rights of its service account.
func (n *node) startStorage(t *testing.T, name string, args ...string) *process {
	t.Helper()
	return n.startProcess(t, name, "unshare", "--uts", "sh", "-c", "hostname "+name+" && exec "+n.program("qos-storage")+
		" --drivers=kubernetes.io/no-provisioner --namespace=qos-system --metrics-address= --kubeconfig="+n.account(t, "qos-system", "qos-storage")+" "+strings.Join(args, " "))
}

// account returns a kubeconfig file with the rights of a service account.
func (n *node) account(t *testing.T, namespace, name string) string {
	t.Helper()
	token := n.kubectl(t, "-n", namespace, "create", "token", name)
	return n.write(t, name+".kubeconfig", n.cluster.kubeconfigWith(token))
}

// setAttributes sets the VolumeAttributesClass of a claim.
func (n *node) setAttributes(t *testing.T, claim, class string) {
	t.Helper()
	n.kubectl(t, "patch", "pvc", claim, "-p", `{"spec":{"volumeAttributesClassName":"`+class+`"}}`)
}

// limited waits until io.max of the cgroup of a pod contains the wanted limits.
func (n *node) limited(t *testing.T, pod, want string) {
	t.Helper()
	until(t, "pod "+pod+" has "+want, func() (bool, string) {
		dir, err := n.machine.cgroup(n.containerID(pod))
		if err != nil {
			return false, err.Error()
		}
		kernel, err := n.machine.kernel(invariant.Live{Pods: []invariant.Pod{{ID: "pod", Cgroup: filepath.Dir(dir)}}})
		if err != nil {
			return false, err.Error()
		}
		seen := kernel.Cgroups["pod"].Files["io.max"]
		return strings.Contains(seen, want), seen
	})
}

// volume waits until the node reports the wanted "CLASS STATE REASON" for its only volume with a claim.
func (n *node) volume(t *testing.T, want string) {
	t.Helper()
	until(t, "the node reports "+want, func() (bool, string) {
		object := n.object()
		if len(object.Status.Volumes) != 1 || object.Status.ObservedGeneration != object.Generation {
			return false, fmt.Sprintf("generation %d: %+v", object.Generation, object.Status.Volumes)
		}
		status := object.Status.Volumes[0]
		seen := fmt.Sprintf("%s %s %s", status.Class, status.State, status.Reason)
		return seen == want, seen + " " + status.Message
	})
}
