// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"strings"
	"testing"
)

// claimHasStatus changes the class of a CSI volume, whose driver cannot modify volumes. The external-resizer writes the claim's status.
func claimHasStatus(t *testing.T, n *node, v *vm) {
	n.startDriver(t, v)
	n.startClaimStatus(t)
	n.useVolumes(t, v)
	device, raw := n.loopDevice(t, v, "csi"), n.loopDevice(t, v, "csi-raw")
	n.limited(t, "csi", device+" "+silverLimits) // the default
	n.limited(t, "csi", raw+" "+silverLimits)
	n.claimStatus(t, "csi", "")
	n.refusesClass(t, "csi-refused")

	n.setAttributes(t, "csi", "csi-gold")
	n.setAttributes(t, "csi-raw", "csi-gold")
	n.claimStatus(t, "csi", "csi-gold")
	n.claimStatus(t, "csi-raw", "csi-gold")
	n.limited(t, "csi", device+" "+goldLimits)
	n.limited(t, "csi", raw+" "+goldLimits)
	wantLines(t, n.qos(t, "volumes", "csi"), "csi main /data csi-gold csi-gold "+device, "csi main /dev/raw csi-gold csi-gold "+raw)

	n.expand(t, "csi", "32Mi", "csi", "csi-raw")
	n.setAttributes(t, "csi", "csi-wrong")
	n.setAttributes(t, "csi-raw", "csi-unknown")
	n.claimStatus(t, "csi", "csi-gold Infeasible csi-wrong")
	n.claimStatus(t, "csi-raw", "csi-gold Pending")
	const reason = `parameter \"iopz\" is unknown`
	if status := n.kubectl(t, "get", "pvc", "csi", "-o", "jsonpath={.status.conditions}"); !strings.Contains(status, reason) {
		t.Errorf("the conditions of the claim are %s, want one with %s", status, reason)
	}

	n.expanded(t, "32Mi", "csi", "csi-raw")
	n.claimStatus(t, "csi", "csi-gold Infeasible csi-wrong")
	n.limited(t, "csi", device+" "+goldLimits)
	n.limited(t, "csi", raw+" "+goldLimits)

	v.signalPublisher(t, "STOP")
	n.setAttributes(t, "csi", "csi-silver")
	n.claimStatus(t, "csi", "csi-gold InProgress csi-silver")
	n.awaitInField(t, "the claim says why", "the node has not applied the NodeQOSResources object yet", "{.status.conditions}", "pvc", "csi")

	v.signalPublisher(t, "CONT")
	n.claimStatus(t, "csi", "csi-silver")
	n.limited(t, "csi", device+" "+silverLimits)
}

// startClaimStatus starts qos-storage with a CSI endpoint, and the external-resizer that calls this endpoint.
func (n *node) startClaimStatus(t *testing.T) {
	t.Helper()
	n.kubectl(t, "apply", "-f", deploy+"storage/rbac.yaml", "-f", deploy+"storage-claim-status/rbac.yaml")
	t.Cleanup(func() {
		n.kubectl(t, "delete", "-f", deploy+"storage/rbac.yaml", "-f", deploy+"storage-claim-status/rbac.yaml")
	})
	n.startStorage(t, "storage", "--drivers="+csiDriver, "--csi-dir="+n.dir)
	n.startProcess(t, "qos-resizer", n.program("csi-resizer"), "--csi-address="+n.dir+"/"+csiDriver+".sock",
		"--kubeconfig="+n.account(t, "qos-system", "qos-storage"), "--leader-election", "--leader-election-namespace=qos-system")
}

// refusesClass waits for the event with which the external-provisioner refuses a claim that names a class.
func (n *node) refusesClass(t *testing.T, claim string) {
	t.Helper()
	n.awaitInField(t, "the external-provisioner refuses the class of claim "+claim, "CSI driver does not support VolumeAttributesClass",
		"{.items[*].message}", "events", "--field-selector=reason=ProvisioningFailed,involvedObject.name="+claim)
}

// claimStatus waits until the claim's status is `want`. The first word of `want` is the current class. If a change of class has not
// succeeded, the state of the change follows, and in some states the new class.
func (n *node) claimStatus(t *testing.T, claim, want string) {
	t.Helper()
	n.awaitField(t, "claim "+claim+" has the status "+want, strings.TrimSpace(want),
		"{.status.currentVolumeAttributesClassName} "+
			"{.status.modifyVolumeStatus.status} {.status.modifyVolumeStatus.targetVolumeAttributesClassName}", "pvc", claim)
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
