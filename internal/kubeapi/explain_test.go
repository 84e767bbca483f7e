// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // net/http requires a logger of this package
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// kubeconfig writes a kubeconfig file for a server and returns its path.
func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	content := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: x, clusters: [{name: c, cluster: {server: %q}}],
users: [{name: u, user: {token: secret}}], contexts: [{name: x, context: {cluster: c, user: u}}]}`, server)
	must.Do(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func configOf(t *testing.T, server string) *rest.Config {
	t.Helper()
	return must.Get(kubeapi.Config(kubeconfig(t, server), "test/v1"))(t)
}

// getObject requests the NodeQOSResources of a node from a server, and returns the error.
func getObject(t *testing.T, server string) error {
	t.Helper()
	client := must.Get(dynamic.NewForConfig(configOf(t, server)))(t)
	gvr := nodeqosv1alpha1.GroupVersion.WithResource(nodeqosv1alpha1.Plural)
	_, err := client.Resource(gvr).Get(t.Context(), "n1", metav1.GetOptions{})
	return err
}

// answer starts a server that sends the same response to all requests. As in Kubernetes, the body is a Status in JSON,
// or plain text.
func answer(t *testing.T, code int, body string, header ...string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		if strings.HasPrefix(body, "{") {
			w.Header().Set("Content-Type", "application/json")
		}
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}))

	t.Cleanup(server.Close)
	return server
}

func statusBody(code int, reason metav1.StatusReason, message string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":%q}`, code, reason, message)
}

// TestExplain compares the outcome and the line for the log with an answer of the API server.
func TestExplain(t *testing.T) {
	for name, test := range map[string]struct {
		code    int
		body    string
		header  []string
		outcome kubeapi.Outcome
		line    string
	}{
		"a missing permission names the user, the verb, the resource and the ClusterRole": {
			code: 403, outcome: kubeapi.Forbidden,
			body: statusBody(403, metav1.StatusReasonForbidden, `nodeqosresources.qos.noderesource.dev "n1" is forbidden: User "system:serviceaccount:q:shim" `+
				`cannot patch resource "nodeqosresources/status" in API group "qos.noderesource.dev" at the cluster scope`),
			line: "system:serviceaccount:q:shim may not patch nodeqosresources/status (qos.noderesource.dev); bind this user to the ClusterRole of deploy/kubernetes/rbac.yaml with \"helm upgrade\", or: kubectl apply -n qos-system -f deploy/kubernetes/rbac.yaml",
		},
		"missing permission in the core group has no empty group": {
			code: 403, outcome: kubeapi.Forbidden,
			body: statusBody(403, metav1.StatusReasonForbidden, `nodes "n1" is forbidden: User "u" cannot get resource "nodes" in API group "" at the cluster scope`),
			line: "u may not get nodes; bind this user to the ClusterRole of deploy/kubernetes/rbac.yaml with \"helm upgrade\", or: kubectl apply -n qos-system -f deploy/kubernetes/rbac.yaml",
		},
		"a rejection by a policy has the policy's message": {
			code: 403, outcome: kubeapi.Forbidden,
			body: statusBody(403, metav1.StatusReasonForbidden, "ValidatingAdmissionPolicy 'own-node' denied request: not your node"),
			line: "the API server rejects the request: ValidatingAdmissionPolicy 'own-node' denied request: not your node",
		},
		"a CRD that is not installed differs from an object that is missing": {
			code: 404, body: "404 page not found", outcome: kubeapi.NoSuchKind,
			line: "the API server has no kind NodeQOSResources; install its CRD with \"helm upgrade\" and crds.install=true, or: kubectl apply -f deploy/kubernetes/crd.yaml",
		},
		"an object that is missing is named": {
			code: 404, body: statusBody(404, metav1.StatusReasonNotFound, `nodeqosresources.qos.noderesource.dev "n1" not found`), outcome: kubeapi.NotFound,
			line: `nodeqosresources.qos.noderesource.dev "n1" not found`,
		},
		"invalid credentials name what to check": {
			code: 401, body: statusBody(401, metav1.StatusReasonUnauthorized, "Unauthorized"), outcome: kubeapi.Unauthorized,
			line: "the API server rejects the credentials: Unauthorized; check that --kubeconfig belongs to this cluster and is still valid, or that the pod's service account exists",
		},
		"a conflict is retried": {
			code: 409, body: statusBody(409, metav1.StatusReasonConflict, "the object has been modified"), outcome: kubeapi.Conflict,
			line: "the object was modified concurrently, trying again: the object has been modified",
		},
		"an error of the schema has the message of the API server": {
			code: 422, body: statusBody(422, metav1.StatusReasonInvalid, "status.x: Invalid value"), outcome: kubeapi.Invalid,
			line: "the API server rejects the object: status.x: Invalid value",
		},
		"an overloaded server has a Retry-After": {
			code: 429, body: "Too many requests, please try again later.", header: []string{"Retry-After", "7"}, outcome: kubeapi.TooMany,
			line: "the API server is overloaded, trying again later: Too many requests, please try again later; not before 7 s",
		},
		"a server that is starting has a Retry-After, too": {
			code: 429, body: statusBody(429, metav1.StatusReasonTooManyRequests, "storage is (re)initializing"), header: []string{"Retry-After", "1"},
			outcome: kubeapi.TooMany,
			line:    "the API server is overloaded, trying again later: storage is (re)initializing; not before 1 s",
		},
		"a response without a message is described by its status": {
			code: 503, header: []string{"Retry-After", "2"}, outcome: kubeapi.Unavailable,
			line: "the API server failed: Service Unavailable; not before 2 s; the node is not affected, trying again",
		},
		"a server error does not affect the node": {
			code: 500, body: statusBody(500, metav1.StatusReasonInternalError, "etcdserver: leader changed"), outcome: kubeapi.Unavailable,
			line: "the API server failed: etcdserver: leader changed; the node is not affected, trying again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := getObject(t, answer(t, test.code, test.body, test.header...).URL)
			expectExplained(t, fmt.Errorf("get it: %w", err), test.outcome, test.line)
		})
	}
}

func expectExplained(t *testing.T, err error, outcome kubeapi.Outcome, line string) {
	t.Helper()
	if got := kubeapi.OutcomeOf(err); got != outcome {
		t.Errorf("outcome %q, want %q: %v", got, outcome, err)
	}
	if got := kubeapi.Explain(err); got != line {
		t.Errorf("got  %s\nwant %s", got, line)
	}
}

func TestExplainWithoutAnswer(t *testing.T) {
	t.Run("the message names a server that cannot be reached", func(t *testing.T) {
		server := answer(t, 200, "")
		server.Close()
		expectExplained(t, getObject(t, server.URL), kubeapi.Unavailable,
			"the API server at "+server.URL+" does not answer (connection refused); the node is not affected, trying again")
	})
	t.Run("a server whose certificate is not trusted points to the certificate authority", func(t *testing.T) {
		server := httptest.NewUnstartedServer(nil)
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		defer server.Close()
		line := kubeapi.Explain(getObject(t, server.URL))
		if !strings.HasPrefix(line, "the API server at "+server.URL+" is not trusted: x509: ") ||
			!strings.HasSuffix(line, "check the certificate authority in --kubeconfig") {
			t.Error(line)
		}
	})
	t.Run("an expired deadline means that the server does not answer", func(t *testing.T) {
		expectExplained(t, fmt.Errorf("list: %w", context.DeadlineExceeded), kubeapi.Unavailable,
			"the API server does not answer (context deadline exceeded); the node is not affected, trying again")
	})
	t.Run("a problem has the message of its caller", func(t *testing.T) {
		expectExplained(t, &kubeapi.Problem{Line: "no such node", Err: errors.New("x")}, kubeapi.Failed, "no such node")
	})
	t.Run("another error has its own message", func(t *testing.T) {
		expectExplained(t, errors.New("disk on fire"), kubeapi.Failed, "disk on fire")
	})
	t.Run("no error has no message", func(t *testing.T) { expectExplained(t, nil, kubeapi.OK, "") })
}

func TestConfig(t *testing.T) {
	t.Run("without a kubeconfig and outside of a pod, there is no API", func(t *testing.T) {
		t.Setenv("KUBERNETES_SERVICE_HOST", "")
		if _, err := kubeapi.Config("", "test"); !errors.Is(err, kubeapi.ErrNoCredentials) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("in a pod without a token, the setting is named", func(t *testing.T) {
		if _, err := os.Stat("/var/run/secrets/kubernetes.io/serviceaccount/token"); err == nil {
			t.Skip("this is a pod with a token")
		}
		t.Setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
		t.Setenv("KUBERNETES_SERVICE_PORT", "443")
		_, err := kubeapi.Config("", "test")
		if !errors.Is(err, kubeapi.ErrNoCredentials) || !strings.Contains(err.Error(), "automountServiceAccountToken") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a kubeconfig that cannot be read is named", func(t *testing.T) {
		_, err := kubeapi.Config("/nowhere/config", "test")
		if err == nil || errors.Is(err, kubeapi.ErrNoCredentials) || !strings.Contains(err.Error(), "--kubeconfig /nowhere/config") {
			t.Errorf("got %v", err)
		}
	})
}

func TestClientsOfConfig(t *testing.T) {
	var asked atomic.Int32
	var accept, agent atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		accept.Store(r.Header.Get("Accept"))
		agent.Store(r.Header.Get("User-Agent"))
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()
	client := must.Get(kubeapi.NewCore(configOf(t, server.URL)))(t)
	_, err := client.Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	t.Run("an overloaded server is asked once, and the caller decides when to come back", func(t *testing.T) {
		if got := asked.Load(); got != 1 || kubeapi.OutcomeOf(err) != kubeapi.TooMany {
			t.Errorf("the server got %d requests, want one; the error is %v", got, err)
		}
	})
	t.Run("typed clients speak protobuf", func(t *testing.T) {
		if got := accept.Load(); got != "application/vnd.kubernetes.protobuf,application/json" {
			t.Errorf("Accept: %v", got)
		}
	})
	t.Run("the program identifies itself to the API server", func(t *testing.T) {
		if agent.Load() != "test/v1" {
			t.Errorf("User-Agent %v", agent.Load())
		}
	})
}

func TestTheRejectedKindIsNamed(t *testing.T) {
	invalid := &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusUnprocessableEntity, Message: "too long"}}
	for kind, want := range map[string]string{
		"pod condition":    "the API server rejects the pod condition: too long",
		"event":            "the API server rejects the event: too long",
		"NodeQOSResources": "the API server rejects the NodeQOSResources: too long; if the CRD is of another version, update it with \"helm upgrade\", or: kubectl apply -f deploy/kubernetes/crd.yaml",
	} {
		if got := kubeapi.Explain(fmt.Errorf("apply: %w", &kubeapi.About{Kind: kind, Err: invalid})); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
