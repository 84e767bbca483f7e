// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// defaultsPage has the examples of the tests below, in the order of the page.
const defaultsPage = "../../../docs/storage/kep-3333.md"

// The examples of defaultsPage in YAML.
const (
	exampleClaim = iota
	exampleStorageClass
	exampleDefaultClass
	exampleQuota
)

// TestDefaultStorageClass chooses the default StorageClass after claims were created (KEP-3333).
func TestDefaultStorageClass(t *testing.T) {
	n := cluster(t)
	n.reportFailure(t)
	examples, scripts := blocksOf(t, defaultsPage, "yaml"), blocksOf(t, defaultsPage, "sh")
	t.Cleanup(func() {
		n.kubectl(t, "delete", "pvc", "--all", within)
		n.kubectl(t, "delete", "storageclass", "standard", "newer", "--ignore-not-found")
	})
	// The claim data exists before the first default. The claim none wants no StorageClass.
	before := n.retroactive(t)
	n.apply(t, examples[exampleClaim])
	n.apply(t, namedClaim("none", `storageClassName: "",`))
	n.apply(t, examples[exampleStorageClass])
	n.script(t, scripts[0])
	if after := n.retroactive(t); after <= before {
		t.Errorf("the metric is %v, and was %v; want it larger than before", after, before)
	}

	// Of two defaults, a new claim gets the newer one.
	older := n.kubectl(t, "get", "storageclass", "standard", "-o", "jsonpath={.metadata.creationTimestamp}")
	until(t, "the second default is newer", func() (bool, string) { // the API server counts in seconds
		_, _ = n.try("delete", "storageclass", "newer", "--ignore-not-found")
		n.apply(t, strings.Replace(examples[exampleStorageClass], "name: standard", "name: newer", 1))
		newer := n.kubectl(t, "get", "storageclass", "newer", "-o", "jsonpath={.metadata.creationTimestamp}")
		return newer > older, newer
	})
	n.apply(t, namedClaim("two", ""))
	n.storageClass(t, "two", "newer")

	// So does a claim that exists before both defaults.
	n.setDefault(t, "standard", "false")
	n.setDefault(t, "newer", "false")
	n.apply(t, namedClaim("late", ""))
	must(t, n.cluster.controllers.end(syscall.SIGTERM)) // so that it sees both defaults at once
	n.setDefault(t, "newer", "true")
	n.setDefault(t, "standard", "true")
	n.cluster.controllers.mustStart(t)
	n.storageClass(t, "late", "newer")

	// The first claims are as before.
	n.storageClass(t, "data", "standard")
	if seen := n.kubectl(t, "get", "pvc", "none", "-o", "jsonpath={.spec}"); !strings.Contains(seen, `"storageClassName":""`) {
		t.Errorf("the claim that wants no StorageClass is %s", seen)
	}
}

// namedClaim returns a claim.
func namedClaim(name, more string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s},
  spec: {%s accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}}`, name, more)
}

func (n *node) setDefault(t *testing.T, class, value string) {
	t.Helper()
	n.kubectl(t, "annotate", "--overwrite", "storageclass", class, "storageclass.kubernetes.io/is-default-class="+value)
}

// storageClass waits until a claim has a StorageClass.
func (n *node) storageClass(t *testing.T, claim, want string) {
	t.Helper()
	n.kubectl(t, "wait", "pvc/"+claim, "--for=jsonpath={.spec.storageClassName}="+want, within)
}

// retroactive returns the number of claims that got a default StorageClass after their creation, from the metrics of
// the controller manager.
func (n *node) retroactive(t *testing.T) (count float64) {
	t.Helper()
	until(t, "the controller manager has metrics", func() (bool, string) {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // its certificate is its own
		response, err := client.Get("https://127.0.0.1:10257/metrics")
		if err != nil {
			return false, err.Error()
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		must(t, err)
		for line := range strings.Lines(string(text)) {
			if value, found := strings.CutPrefix(line, "retroactive_storageclass_total "); found {
				_, err := fmt.Sscan(value, &count)
				return err == nil, line
			}
		}
		return response.StatusCode == http.StatusOK, response.Status // the metric appears with its first value
	})
	return count
}

// TestDefaultClassesOfClaims runs "qos-storage defaults" on claims that are bound to volumes. Nothing uses the volumes.
func TestDefaultClassesOfClaims(t *testing.T) {
	n := cluster(t)
	n.reportFailure(t)
	d := &claims{n}
	n.kubectl(t, "apply", "-f", deploy+"kubernetes/namespace.yaml")
	n.kubectl(t, "apply", "-f", deploy+"storage-defaults/rbac.yaml", "-f", deploy+"storage-defaults/confine.yaml")
	t.Cleanup(func() {
		n.kubectl(t, "delete", "pvc", "--all", within)
		n.kubectl(t, "delete", "pv,storageclass,volumeattributesclass,resourcequota", "--all", within)
	})
	n.startController(t, "defaults", "--drivers=kubernetes.io/no-provisioner")

	examples, scripts := blocksOf(t, defaultsPage, "yaml"), blocksOf(t, defaultsPage, "sh")
	d.bind(t, "disk-1", "") // before its StorageClass exists
	n.apply(t, examples[exampleDefaultClass])
	n.script(t, scripts[1]) // waits until disk-1 has the class silver

	// A quota refuses the class of the second claim at first.
	n.apply(t, examples[exampleQuota])
	n.awaitField(t, "the quota counts the claim", "1", "{.status.used.persistentvolumeclaims}", "resourcequota", "silver-volumes")
	d.bind(t, "disk-2", "")
	d.reported(t, "disk-2", "exceeded quota: silver-volumes")
	d.has(t, "disk-2", "")
	n.kubectl(t, "delete", "resourcequota", "silver-volumes")
	d.has(t, "disk-2", "silver")

	// The default does not exist at first. Of three claims, one names a class of its own, one names none, and one names "".
	n.apply(t, `{apiVersion: storage.k8s.io/v1, kind: VolumeAttributesClass, metadata: {name: gold}, driverName: kubernetes.io/no-provisioner,
  parameters: {iops: "1000"}}`)
	n.kubectl(t, "annotate", "--overwrite", "storageclass", "disks", "qos.noderesource.dev/default-volume-attributes-class=missing")
	d.bind(t, "disk-3", "")
	n.setAttributes(t, "disk-3", "gold")
	d.bind(t, "disk-4", "")
	d.reported(t, "disk-4", `names the default VolumeAttributesClass "missing", which does not exist`)
	d.bind(t, "disk-5", `volumeAttributesClassName: "",`)
	n.kubectl(t, "annotate", "--overwrite", "storageclass", "disks", "qos.noderesource.dev/default-volume-attributes-class=silver")
	d.has(t, "disk-4", "silver")
	d.has(t, "disk-5", "silver")
	d.has(t, "disk-3", "gold")

	// Claims that request iops, LimitRanges and quotas, attacks from another namespace, and changes that the controller may not make.
	d.requests(t)
	d.bounds(t)
	d.sums(t)
	d.isSafeFromNeighbours(t)
	d.isConfined(t)
}

// claims are claims that are bound to local volumes.
type claims struct{ *node }

// bind creates a claim of the StorageClass disks, and its volume.
func (c *claims) bind(t *testing.T, name, more string) {
	t.Helper()
	c.bindClaim(t, name, "disks", namedClaim(name, "storageClassName: disks, "+more))
}

// bindClaim creates a claim of a StorageClass, and its volume.
func (c *claims) bindClaim(t *testing.T, name, class, claim string) {
	t.Helper()
	c.apply(t, fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: %s}, spec: {capacity: {storage: 16Mi}, accessModes: [ReadWriteOnce],
  storageClassName: %s, local: {path: /volumes/%[1]s}, claimRef: {namespace: default, name: %[1]s},
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node-1]}]}]}}}}`, name, class))
	c.apply(t, claim)
	c.kubectl(t, "wait", "pvc/"+name, "--for=jsonpath={.status.phase}=Bound", within)
}

// has waits until a claim has a VolumeAttributesClass, or "".
func (c *claims) has(t *testing.T, claim, want string) {
	t.Helper()
	c.awaitField(t, "claim "+claim+" has the class "+want, want, "{.spec.volumeAttributesClassName}", "pvc", claim)
}

// reported waits until a claim has the controller's event with a text.
func (c *claims) reported(t *testing.T, claim, text string) {
	t.Helper()
	c.awaitInField(t, "claim "+claim+" has an event with "+text, text,
		"{.items[*].message}", "events", "--field-selector=reason=VolumeAttributesClassNotSet,involvedObject.name="+claim)
}

// isConfined tries to change other fields of claims as the controller.
func (c *claims) isConfined(t *testing.T) {
	t.Helper()
	const user = "system:serviceaccount:qos-system:qos-storage-defaults"
	for what, patch := range map[string]string{
		"a label":                    `{"metadata":{"labels":{"a":"b"}}}`,
		"a finalizer":                `{"metadata":{"finalizers":null}}`,
		"a class that the claim has": `{"spec":{"volumeAttributesClassName":"gold"}}`,
	} {
		// kubectl would first get the claim, which the user may not.
		output := c.requestAs(t, "admin-token", user, http.MethodPatch, "/api/v1/namespaces/default/persistentvolumeclaims/disk-1", mergePatch, patch)
		if !strings.Contains(output, "qos-storage defaults may ") {
			t.Errorf("the API server lets the controller change %s: %s", what, output)
		}
	}
	for _, resource := range []string{"get secrets", "patch persistentvolumes", "create pods", "update persistentvolumeclaims", "delete persistentvolumeclaims"} {
		verb, kind, _ := strings.Cut(resource, " ")
		if output, err := c.try("auth", "can-i", verb, kind, "-A", "--as="+user); err == nil {
			t.Errorf("the controller may %s: %s", resource, output)
		}
	}
}
