// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import "testing"

// isSafeFromNeighbours attacks the claims of the namespace default as a user who may edit another namespace.
func (c *claims) isSafeFromNeighbours(t *testing.T) {
	t.Helper()
	user := c.editor(t, "mallory")
	before := c.kubectl(t, "get", "pvc", "disk-1", "-o", "jsonpath={.spec} {.metadata.resourceVersion}")

	// A claim that names the volume of another claim, and whose requests match a class.
	stolen := requesting("stolen", "requested", "iops: 250, throughput: 25Mi") + "\n---\n" + namedClaim("taken", "storageClassName: disks, volumeName: disk-1,")
	if output, err := c.tryWith(stolen, "-n", "mallory", "create", "-f", "-", user); err != nil {
		t.Fatalf("the user cannot create claims: %s", output)
	}
	if output, err := c.try("-n", "mallory", "annotate", "pvc", "taken", user, "pv.kubernetes.io/bind-completed=yes"); err != nil {
		t.Fatal(output)
	}
	c.bind(t, "disk-9", "") // the controller handles it after the claims of the user
	c.has(t, "disk-9", "silver")
	for _, claim := range []string{"stolen", "taken"} {
		if got := c.kubectl(t, "-n", "mallory", "get", "pvc", claim, "-o", "jsonpath={.spec.volumeAttributesClassName}"); got != "" {
			t.Errorf("claim %s of the user has the class %s, want none, because it has no volume", claim, got)
		}
	}
	if after := c.kubectl(t, "get", "pvc", "disk-1", "-o", "jsonpath={.spec} {.metadata.resourceVersion}"); after != before {
		t.Errorf("the claim of another namespace has changed:\n%s\n%s", before, after)
	}

	// Objects that decide about classes and bounds.
	for _, attack := range [][]string{
		{"-n", "default", "patch", "pvc", "disk-1", "-p", `{"spec":{"volumeAttributesClassName":"gold"}}`},
		{"annotate", "--overwrite", "storageclass", "disks", "qos.noderesource.dev/default-volume-attributes-class=gold"},
		{"patch", "pv", "disk-1", "-p", `{"spec":{"claimRef":{"namespace":"mallory"}}}`},
		{"delete", "validatingadmissionpolicy", "qos-confine-storage-defaults"},
		{"-n", "mallory", "create", "quota", "mine", "--hard=persistentvolumeclaims=9"},
		{"-n", "qos-system", "create", "token", "qos-storage-defaults"},
		{"-n", "qos-system", "delete", "lease", "qos-storage-defaults"},
	} {
		if output, err := c.try(append(attack, user)...); err == nil {
			t.Errorf("the user may %v: %s", attack, output)
		}
	}
	for _, object := range []string{
		`{apiVersion: v1, kind: LimitRange, metadata: {name: mine, annotations: {qos.noderesource.dev/max-claim-requests: iops=1M}}, spec: {limits: []}}`,
		`{apiVersion: storage.k8s.io/v1, kind: VolumeAttributesClass, metadata: {name: mine}, driverName: kubernetes.io/no-provisioner, parameters: {iops: 1M}}`,
	} {
		if output, err := c.tryWith(object, "-n", "mallory", "create", "-f", "-", user); err == nil {
			t.Errorf("the user may create %s: %s", object, output)
		}
	}
}
