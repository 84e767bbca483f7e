// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// tenantsAreConfined sends requests of a user who may edit one namespace, and thus create pods and claims there.
func tenantsAreConfined(t *testing.T, n *node) {
	n.runClaimed(t, "owned", "exactly: {deviceClassName: blockio.gold}", "main")
	n.running(t, "owned")
	n.kubectl(t, "create", "rolebinding", "tenant", "--clusterrole=edit", "--user=tenant")
	t.Cleanup(func() { n.kubectl(t, "delete", "rolebinding", "tenant") })

	n.namespace(t, "other-tenant", "")
	n.kubectl(t, "-n", "other-tenant", "create", "rolebinding", "other", "--clusterrole=edit", "--user=other")

	const api, claims = "/apis/resource.k8s.io/v1", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
	const merge = "application/merge-patch+json"
	for what, test := range map[string]struct{ method, path, contentType, body, want string }{
		"a ResourceSlice": {
			http.MethodPost, api + "/resourceslices", "application/json",
			`{"metadata": {"name": "forged"}, "spec": {"driver": "qos.noderesource.dev", "nodeName": "node-1", "pool": {"name": "node-1", "generation": 99, "resourceSliceCount": 1}}}`,
			"403 Forbidden",
		},
		"a DeviceClass":         {http.MethodPost, api + "/deviceclasses", "application/json", `{"metadata": {"name": "forged"}, "spec": {}}`, "403 Forbidden"},
		"the status of a claim": {http.MethodPatch, claims + "/owned/status", merge, `{"status": {"devices": null}}`, "403 Forbidden"},
		"the request of a claim": {
			http.MethodPatch, claims + "/owned", merge, `{"spec": {"devices": {"requests": []}}}`, "field is immutable",
		},
		"a claim without a slot": {
			http.MethodPost, claims, "application/json",
			`{"metadata": {"name": "forged"}, "spec": {"devices": {"requests": [{"name": "class", "exactly": {"deviceClassName": "blockio.gold", "adminAccess": true}}]}}}`,
			"admin-access",
		},
	} {
		if answer := n.requestAs(t, "admin-token", "tenant", test.method, test.path, test.contentType, test.body); !strings.Contains(answer, test.want) {
			t.Errorf("a tenant who writes %s gets %.500s, want %s", what, answer, test.want)
		}
	}
	otherTenant(t, n)
}

// otherTenant sends requests of a user who may edit another namespace than that of the pod "owned", which has a claim with the same name.
func otherTenant(t *testing.T, n *node) {
	const slot = `{"devices": {"results": [{"request": "class", "driver": "qos.noderesource.dev", "pool": "node-1", "device": "blockio-gold"}]}}`
	uid, same := n.of("owned", "{.metadata.uid}"), n.sameContainers(t, "owned")
	const claims, own = "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims", "other-tenant"
	const merge = "application/merge-patch+json"
	forged := fmt.Sprintf(`{"metadata": {"name": "stolen"}, "spec": {"devices": {"requests": [{"name": "class", "exactly": {"deviceClassName": "blockio.gold"}}]}},
  "status": {"allocation": %s, "reservedFor": [{"resource": "pods", "name": "owned", "uid": %q}]}}`, slot, uid)
	reserve := fmt.Sprintf(`{"status": {"reservedFor": [{"resource": "pods", "name": "stolen", "uid": %q}]}}`, uid)
	for _, attack := range []struct{ what, method, path, contentType, body, want string }{
		{"reads the claim", http.MethodGet, fmt.Sprintf(claims, "default") + "/owned", "", "", "403 Forbidden"},
		{"deletes the claim", http.MethodDelete, fmt.Sprintf(claims, "default") + "/owned", "", "", "403 Forbidden"},
		{"reserves the claim", http.MethodPatch, fmt.Sprintf(claims, "default") + "/owned/status", merge, reserve, "403 Forbidden"},
		// The API server drops the status of a new object; see below.
		{"creates a claim with an allocation", http.MethodPost, fmt.Sprintf(claims, own), "application/json", forged, "201 Created"},
		{"allocates its own claim", http.MethodPatch, fmt.Sprintf(claims, own) + "/stolen/status", merge, `{"status": {"allocation": ` + slot + `}}`, "403 Forbidden"},
		{"reserves its own claim", http.MethodPatch, fmt.Sprintf(claims, own) + "/stolen/status", merge, reserve, "403 Forbidden"},
	} {
		if answer := n.requestAs(t, "admin-token", "other", attack.method, attack.path, attack.contentType, attack.body); !strings.Contains(answer, attack.want) {
			t.Errorf("another tenant who %s gets %.500s, want %s", attack.what, answer, attack.want)
		}
	}
	if status := n.kubectl(t, "-n", own, "get", "resourceclaim", "stolen", "-o", "jsonpath={.status}"); status != "" && status != "{}" {
		t.Errorf("a claim that was created with a status has it: %s", status)
	}

	text := strings.ReplaceAll(claimed("owned", "exactly: {deviceClassName: blockio.gold}", "main"), "namespace: default", "namespace: "+own)
	_, thief, _ := strings.Cut(text, "---\n") // only the pod
	n.applyIn(t, own, thief)
	// When the pod `later` runs, the scheduler has also handled the earlier pod.
	n.applyIn(t, own, strings.NewReplacer("name: owned", "name: later", "resources: {claims: [{name: c}]}", "", "resourceClaims: [{name: c, resourceClaimName: owned}], ", "").Replace(thief))
	n.awaitField(t, "a later pod runs", "Running", "{.status.phase}", "-n", own, "pod", "later")
	if on := n.kubectl(t, "-n", own, "get", "pod", "owned", "-o", "jsonpath={.spec.nodeName}"); on != "" {
		t.Errorf("a pod with a claim of another namespace was scheduled to %s", on)
	}
	n.inClass(t, "owned", "gold")
	same("another tenant")
}
