// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// csiDriver is the name of the driver in ../csidriver.
const csiDriver = "test.qos.noderesource.dev"

// csiObjects has the manifests of a volume of the CSI driver, of its claim, and of classes for the claim.
const csiObjects = `apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: test.qos.noderesource.dev}
spec: {attachRequired: false, podInfoOnMount: false}
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: csi-silver}
driverName: test.qos.noderesource.dev
parameters: {iops: "500", throughput: 50Mi}
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: csi-gold}
driverName: test.qos.noderesource.dev
parameters: {throughput: 200Mi}
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: csi-wrong}
driverName: test.qos.noderesource.dev
parameters: {iopz: "500"}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: csi}
spec:
  capacity: {storage: 16Mi}
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  csi: {driver: test.qos.noderesource.dev, volumeHandle: csi}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: csi, namespace: default}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  volumeName: csi
  resources: {requests: {storage: 16Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: csi, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: data, persistentVolumeClaim: {claimName: csi}}]
  initContainers:
  - {name: setup, image: "localhost/workload:1", imagePullPolicy: Never, args: [cat, /proc/version], volumeMounts: [{name: data, mountPath: /data}]}
  containers:
  - {name: main, image: "localhost/workload:1", imagePullPolicy: Never, volumeMounts: [{name: data, mountPath: /data}]}
`

// claimHasStatus changes the class of a CSI volume, whose driver cannot modify volumes. The external-resizer writes the claim's status.
func claimHasStatus(t *testing.T, n *node, v *vm) {
	v.makeVolume(t, "/mnt/csi.img")
	driver := v.program("csidriver", v.path("csidriver"), csiDriver, nodeName, "/mnt")
	driver.mustStart(t)
	t.Cleanup(func() { driver.mustEnd(t, syscall.SIGTERM) })
	n.kubectl(t, "apply", "-f", deploy+"storage/rbac.yaml", "-f", deploy+"storage-claim-status/rbac.yaml")
	t.Cleanup(func() {
		n.kubectl(t, "delete", "-f", deploy+"storage/rbac.yaml", "-f", deploy+"storage-claim-status/rbac.yaml")
	})
	n.startStorage(t, "storage", "--drivers="+csiDriver, "--csi-dir="+n.dir)
	resizer := n.process("csi-resizer", n.program("csi-resizer"), "--csi-address="+n.dir+"/"+csiDriver+".sock", "--kubeconfig="+n.storageAccount(t),
		"--leader-election", "--leader-election-namespace=qos-system")
	resizer.mustStart(t)
	t.Cleanup(func() { must(t, resizer.end(syscall.SIGTERM)) })

	n.apply(t, csiObjects)
	t.Cleanup(func() {
		output, err := n.kubectlCommand(csiObjects, "delete", "-f", "-", "--wait", within).CombinedOutput()
		if err != nil {
			t.Errorf("delete: %v: %s", err, output)
		}
	})
	n.running(t, "csi")
	n.setAttributes(t, "csi", "csi-silver")
	n.claimStatus(t, "csi-silver ")
	n.limited(t, "csi", silverLimits)
	n.setAttributes(t, "csi", "csi-gold")
	n.claimStatus(t, "csi-gold ")
	n.limited(t, "csi", goldLimits)

	n.setAttributes(t, "csi", "csi-wrong")
	n.claimStatus(t, "csi-gold Infeasible csi-wrong")
	if status := n.kubectl(t, "get", "pvc", "csi", "-o", "jsonpath={.status.conditions}"); !strings.Contains(status, `parameter \"iopz\" is unknown`) {
		t.Errorf("the conditions of the claim are %s", status)
	}
	n.limited(t, "csi", goldLimits)

	v.signalPublisher(t, "STOP")
	n.setAttributes(t, "csi", "csi-silver")
	n.claimStatus(t, "csi-gold InProgress csi-silver")
	until(t, "the claim says why", func() (bool, string) {
		status, _ := n.try("get", "pvc", "csi", "-o", "jsonpath={.status.conditions}")
		return strings.Contains(status, "the node has not applied the NodeQOSResources object yet"), status
	})
	v.signalPublisher(t, "CONT")
	n.claimStatus(t, "csi-silver ")
	n.limited(t, "csi", silverLimits)
}

// claimStatus waits until the claim has a status "class" or "class state target".
func (n *node) claimStatus(t *testing.T, want string) {
	t.Helper()
	until(t, "the claim has the status "+want, func() (bool, string) {
		seen, _ := n.try("get", "pvc", "csi", "-o", "jsonpath={.status.currentVolumeAttributesClassName} "+
			"{.status.modifyVolumeStatus.status} {.status.modifyVolumeStatus.targetVolumeAttributesClassName}")
		return strings.TrimSpace(seen) == strings.TrimSpace(want), seen
	})
}

// signalPublisher sends a signal to the publisher on the node.
func (v *vm) signalPublisher(t *testing.T, signal string) {
	t.Helper()
	output := v.mustRun(t, "sh", "-c", fmt.Sprintf(`for dir in /proc/[0-9]*; do
  case "$(tr '\0' ' ' <$dir/cmdline 2>/dev/null)" in "/qos-kubelet-shim "*--follow-claims*) kill -%s ${dir#/proc/} && echo found;; esac
done`, signal))
	if !strings.Contains(output, "found") {
		t.Fatalf("no publisher runs: %s", output)
	}
}
