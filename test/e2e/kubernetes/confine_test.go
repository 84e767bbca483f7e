// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
)

const (
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	applyPatch     = "application/apply-patch+yaml"
)

// distant has the manifests of a node that exists only in the API, and of a pod on this node.
const distant = `apiVersion: v1
kind: Node
metadata: {name: node-3}
---
apiVersion: v1
kind: Pod
metadata: {name: theirs, namespace: default}
spec:
  nodeName: node-3
  automountServiceAccountToken: false
  containers: [{name: main, image: "` + workloadImage + `", imagePullPolicy: Never}]
---
`

// tokenIsConfined checks, with the token of the publisher's pod, that the API server accepts the writes that the publisher needs and
// refuses others.
func tokenIsConfined(t *testing.T, n *node) {
	n.apply(t, distant)
	t.Cleanup(func() {
		n.kubectl(t, "delete", "pod", "theirs", "--force", "--grace-period=0")
		n.kubectl(t, "delete", "node", "node-3")
	})

	n.runPods(t, pod{name: "mine", classes: []string{"blockio.gold"}})

	const (
		mine, theirs = "/api/v1/namespaces/default/pods/mine", "/api/v1/namespaces/default/pods/theirs"
		events       = "/api/v1/namespaces/default/events"
		nodeObjects  = "/apis/qos.noderesource.dev/v1alpha1/nodeqosresources"
		condition    = `{"status":{"conditions":[{"type":"qos.noderesource.dev/Assigned","status":"True","reason":"Assigned","message":"by the test"}]}}`
		policy       = "ValidatingAdmissionPolicy 'qos-confine-publisher'"
		role         = " cannot " // part of RBAC's refusal
	)

	token := n.publisherToken(t)
	// `refused` is a part of the refusal. It is empty if the API server accepts the write.
	for _, test := range []struct{ name, method, path, contentType, body, refused string }{
		{"the condition of a pod", "PATCH", mine + "/status", strategicPatch, condition, ""},
		{"the condition of a pod of another node", "PATCH", theirs + "/status", strategicPatch, condition, policy},
		{"another condition of a pod", "PATCH", mine + "/status", strategicPatch, `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, policy},
		{"the addresses of a pod", "PATCH", mine + "/status", mergePatch, `{"status":{"podIP":"10.9.9.9","podIPs":[{"ip":"10.9.9.9"}]}}`, policy},
		{"the phase of a pod", "PATCH", mine + "/status", mergePatch, `{"status":{"phase":"Failed"}}`, policy},
		{"a label by the status", "PATCH", mine + "/status", mergePatch, `{"metadata":{"labels":{"app":"other"}}}`, policy},
		{"an annotation by the status", "PATCH", mine + "/status", mergePatch, `{"metadata":{"annotations":{"a":"b"}}}`, policy},
		{"a finalizer by the status", "PATCH", mine + "/status", mergePatch, `{"metadata":{"finalizers":["qos.noderesource.dev/x"]}}`, policy},
		{"the spec of a pod", "PATCH", mine, mergePatch, `{"spec":{"activeDeadlineSeconds":1}}`, role},
		{"the deletion of a pod", "DELETE", mine, "", "", role},
		{"an eviction without the right to evict", "POST", mine + "/eviction", "application/json",
			`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"mine","namespace":"default"}}`, role},
		{"the node's object", "PATCH", nodeObjects + "/node-1/status?fieldManager=test", mergePatch, `{"status":{"plugin":{"version":"test"}}}`, ""},
		{"the object of another node", "PATCH", nodeObjects + "/node-3?fieldManager=test&force=true", applyPatch,
			`{"apiVersion":"qos.noderesource.dev/v1alpha1","kind":"NodeQOSResources","metadata":{"name":"node-3"}}`, policy},
		{"a label of the node's object", "PATCH", nodeObjects + "/node-1", mergePatch, `{"metadata":{"labels":{"a":"b"}}}`, policy},
		{"another owner of the node's object", "PATCH", nodeObjects + "/node-1", mergePatch,
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"node-3","uid":"x"}]}}`, policy},
		{"the deletion of the node's object", "DELETE", nodeObjects + "/node-1", "", "", role},
		{"an event of a pod", "POST", events, "application/json", eventOf("mine.1", "qos-kubelet-shim", "Pod"), ""},
		{"an event that names another source", "POST", events, "application/json", eventOf("mine.2", "kubelet", "Pod"), policy},
		{"an event of a node", "POST", events, "application/json", eventOf("mine.3", "qos-kubelet-shim", "Node"), policy},
		{"the status of the node", "PATCH", "/api/v1/nodes/node-1/status", mergePatch, `{"status":{"phase":"x"}}`, role},
	} {
		t.Run(test.name, func(t *testing.T) {
			if answer := n.request(t, token, test.method, test.path, test.contentType, test.body); !answeredAs(answer, test.refused) {
				t.Errorf("answer: %s\nwant a refusal with %q (none if empty)", answer, test.refused)
			}
		})
	}

	t.Run("the API server finds no fault with the policy", func(t *testing.T) {
		n.noWarnings(t, "qos-confine-publisher")
	})
	t.Run("a token that is not bound to a pod is refused", func(t *testing.T) {
		unbound := n.kubectl(t, "-n", "qos-system", "create", "token", "qos-publisher")
		answer := n.request(t, unbound, "PATCH", mine+"/status", strategicPatch, condition)
		if want := "does not name a node"; !answeredAs(answer, want) {
			t.Errorf("answer: %s\nwant a refusal with %q", answer, want)
		}
	})
	t.Run("an administrator may write what the publisher may not", func(t *testing.T) {
		n.kubectl(t, "patch", "pod", "theirs", "--subresource=status", "--type=merge", "-p", `{"metadata":{"labels":{"a":"b"}},"status":{"phase":"Failed"}}`)
	})
}

// noWarnings checks that the API server finds no fault with policies.
func (n *node) noWarnings(t *testing.T, policies ...string) {
	t.Helper()
	for _, policy := range policies {
		if warnings := n.kubectl(t, "get", "validatingadmissionpolicy", policy, "-o", "jsonpath={.status.typeChecking.expressionWarnings}"); warnings != "" {
			t.Errorf("the API server finds fault with %s: %s", policy, warnings)
		}
	}
}

func answeredAs(answer, refused string) bool {
	return strings.HasPrefix(answer, "403 ") == (refused != "") && strings.HasPrefix(answer, "20") == (refused == "") && strings.Contains(answer, refused)
}

func eventOf(name, component, kind string) string {
	return `{"apiVersion":"v1","kind":"Event","metadata":{"name":"` + name + `","namespace":"default"},"type":"Normal","reason":"Test","message":"of the test",
"involvedObject":{"apiVersion":"v1","kind":"` + kind + `","namespace":"default","name":"mine"},
"source":{"component":"` + component + `","host":"node-1"},"reportingComponent":"` + component + `","reportingInstance":"node-1"}`
}

// publisherToken returns a token like the one in the publisher's pod.
func (n *node) publisherToken(t *testing.T) string {
	t.Helper()
	found := strings.Fields(n.kubectl(t, "-n", "qos-system", "get", "pods", "-l", "app.kubernetes.io/name=qos-publisher",
		"-o", "jsonpath={.items[0].metadata.name} {.items[0].metadata.uid}"))
	return n.kubectl(t, "-n", "qos-system", "create", "token", "qos-publisher",
		"--bound-object-kind=Pod", "--bound-object-name="+found[0], "--bound-object-uid="+found[1])
}

// request sends a request to the API server, and returns status and body of the response.
func (n *node) request(t *testing.T, token, method, path, contentType, body string) string {
	t.Helper()
	return n.requestAs(t, token, "", method, path, contentType, body)
}

// requestAs does the same as the method `request`. If `user` is not empty, the request impersonates this user.
func (n *node) requestAs(t *testing.T, token, user, method, path, contentType, body string) string {
	t.Helper()
	ca, err := os.ReadFile(n.cluster.file("ca.crt"))
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}

	request, err := http.NewRequestWithContext(t.Context(), method, apiServer+path, strings.NewReader(body))
	must(t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", contentType)
	if user != "" {
		request.Header.Set("Impersonate-User", user)
	}

	response, err := client.Do(request)
	must(t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	must(t, err)
	return response.Status + ": " + string(answer)
}
