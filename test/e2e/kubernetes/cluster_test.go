// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"crypto/x509/pkix"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
)

const apiServer = "https://10.0.0.1:443"

// address has a node's name, its IP address, and the first two numbers of its pods' IP addresses.
type address struct{ name, ip, pods string }

// addresses has an entry for each node that a cluster can have. Most tests have only the first node.
var addresses = []address{
	{name: "node-1", ip: "192.0.2.1", pods: "10.244"},
	{name: "node-2", ip: "192.0.2.2", pods: "10.245"},
	{name: "node-3", ip: "192.0.2.3", pods: "10.246"},
}

// tokens is the token file of the API server: token, user, user ID, groups.
const tokens = `admin-token,admin,1,"system:masters"
controllers-token,system:kube-controller-manager,2
scheduler-token,system:kube-scheduler,3
node-1-token,system:node:node-1,4,"system:nodes"
node-2-token,system:node:node-2,5,"system:nodes"
node-3-token,system:node:node-3,6,"system:nodes"
`

// auditPolicy logs all writes, so that tests can count them.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch, delete]
- level: None
`

// controlPlane is an API server with its etcd, and the controller manager and the scheduler that use it.
type controlPlane struct {
	dir, bin, logs                       string
	etcd, server, controllers, scheduler *process
}

func (n *node) newControlPlane() (*controlPlane, error) {
	c := &controlPlane{dir: filepath.Join(n.dir, "cluster"), bin: n.bin, logs: n.logs}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return nil, err
	}

	if err := c.writeFiles(); err != nil {
		return nil, err
	}

	c.etcd = n.process("etcd", n.program("etcd"), "--data-dir", filepath.Join(c.dir, "etcd"), "--unsafe-no-fsync")
	c.server = n.process("kube-apiserver", append([]string{n.program("kube-apiserver")}, c.serverFlags()...)...)
	c.controllers = n.process("kube-controller-manager", n.program("kube-controller-manager"),
		"--kubeconfig", c.kubeconfig("controllers"), "--leader-elect=false", "--use-service-account-credentials",
		"--service-account-private-key-file", c.file("sa.key"), "--root-ca-file", c.file("ca.crt"),
		"--bind-address=127.0.0.1", "--cert-dir", c.file("controllers-certs"), "--authorization-always-allow-paths=/healthz,/metrics",
		// Some tests stop the kubelet for a moment. Without this controller, the pods are not evicted meanwhile.
		"--controllers=*,-taint-eviction-controller")

	c.scheduler = n.process("kube-scheduler", n.program("kube-scheduler"), "--kubeconfig", c.kubeconfig("scheduler"),
		"--authentication-kubeconfig", c.kubeconfig("scheduler"), "--authorization-kubeconfig", c.kubeconfig("scheduler"),
		"--leader-elect=false", "--bind-address=127.0.0.1", "--cert-dir", c.file("scheduler-certs"))

	return c, nil
}

func (c *controlPlane) file(name string) string       { return filepath.Join(c.dir, name) }
func (c *controlPlane) kubeconfig(user string) string { return c.file(user + ".kubeconfig") }
func (c *controlPlane) auditLog() string              { return c.file("audit.log") }

func (c *controlPlane) serverFlags() []string {
	return []string{
		"--etcd-servers=http://127.0.0.1:2379", "--bind-address=10.0.0.1", "--secure-port=443", "--advertise-address=10.0.0.1",
		"--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.0.0.0/24", "--allow-privileged=true",
		"--tls-cert-file=" + c.file("server.crt"), "--tls-private-key-file=" + c.file("server.key"),
		"--client-ca-file=" + c.file("ca.crt"), "--token-auth-file=" + c.file("tokens.csv"), "--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--kubelet-client-certificate=" + c.file("kubelet-client.crt"), "--kubelet-client-key=" + c.file("kubelet-client.key"),
		"--kubelet-certificate-authority=" + c.file("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + c.file("sa.pub"),
		"--service-account-signing-key-file=" + c.file("sa.key"),
		"--audit-policy-file=" + c.file("audit.yaml"), "--audit-log-path=" + c.auditLog(),
	}
}

func (c *controlPlane) writeFiles() error {
	authority, err := newAuthority(c.dir)
	if err != nil {
		return err
	}

	users := []string{"admin", "controllers", "scheduler"}
	subjects := map[string]pkix.Name{
		"server":         {CommonName: "kube-apiserver"},
		"kubelet-client": {CommonName: "apiserver-kubelet-client", Organization: []string{"system:masters"}},
	}

	ips := []string{"127.0.0.1", "10.0.0.1"}
	for _, node := range addresses {
		users = append(users, node.name)
		subjects[node.name] = pkix.Name{CommonName: "system:node:" + node.name, Organization: []string{"system:nodes"}}
		ips = append(ips, node.ip)
	}

	for name, subject := range subjects {
		if err := authority.issue(name, subject, ips...); err != nil {
			return err
		}
	}

	files := map[string]string{"tokens.csv": tokens, "audit.yaml": auditPolicy}
	for _, user := range users {
		files[user+".kubeconfig"] = c.kubeconfigWith(user + "-token")
	}

	for name, text := range files {
		if err := os.WriteFile(c.file(name), []byte(text), 0o600); err != nil {
			return err
		}
	}

	return nil
}

// kubeconfigWith returns the text of a kubeconfig with a token.
func (c *controlPlane) kubeconfigWith(token string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: u, user: {token: %q}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`, apiServer, c.file("ca.crt"), token)
}

// kubectlCommand returns a kubectl command that runs with the rights of an administrator.
func (n *node) kubectlCommand(stdin string, args ...string) *exec.Cmd {
	command := exec.Command(n.program("kubectl"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+n.cluster.kubeconfig("admin"), "HOME="+n.dir)
	command.Stdin = strings.NewReader(stdin)
	return command
}

// try runs kubectl, and returns its standard output and standard error.
func (n *node) try(args ...string) (string, error) { return n.tryWith("", args...) }

// tryWith does the same with an input, e.g. a manifest.
func (n *node) tryWith(stdin string, args ...string) (string, error) {
	output, err := n.kubectlCommand(stdin, args...).CombinedOutput()
	return strings.TrimSpace(string(output)), err
}

// kubectl runs kubectl, which must succeed.
func (n *node) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	output, err := n.try(args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return output
}

// awaitField waits until a field of objects, a JSONPath expression, has this value.
func (n *node) awaitField(t *testing.T, what, want, field string, objects ...string) {
	t.Helper()
	until(t, what, func() (bool, string) {
		seen, _ := n.try(append([]string{"get", "-o", "jsonpath=" + field}, objects...)...)
		return seen == want, seen
	})
}

// awaitInField waits until a field of objects contains a text.
func (n *node) awaitInField(t *testing.T, what, text, field string, objects ...string) {
	t.Helper()
	until(t, what, func() (bool, string) {
		seen, _ := n.try(append([]string{"get", "-o", "jsonpath=" + field}, objects...)...)
		return strings.Contains(seen, text), seen
	})
}

// apply applies manifests.
func (n *node) apply(t *testing.T, manifests string) {
	t.Helper()
	if output, err := n.tryWith(manifests, "apply", "-f", "-"); err != nil {
		t.Fatalf("kubectl apply: %v\n%s\n%s", err, output, manifests)
	}
}

// config returns the configuration of a client that has the rights of an administrator, and no limit of requests.
func (n *node) config(t *testing.T) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", n.cluster.kubeconfig("admin"))
	must(t, err)
	config.QPS = -1
	return config
}

// client returns such a client of Kubernetes' own kinds.
func (n *node) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(n.config(t))
	must(t, err)
	return client
}

// clientOf returns such a client of a kind of this project.
func (n *node) clientOf(t *testing.T, plural string) dynamic.NamespaceableResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(n.config(t))
	must(t, err)
	return client.Resource(nodeqosv1alpha1.GroupVersion.WithResource(plural))
}

// awaitServer waits for the API server to be ready.
func (n *node) awaitServer(t *testing.T) {
	t.Helper()
	untilDone(t, "the API server is ready", func() (string, error) { return n.try("get", "--raw", "/readyz") })
}
