// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// helm runs helm as an administrator, which must succeed.
func (n *node) helm(t *testing.T, args ...string) string {
	t.Helper()
	command := exec.Command(n.program("helm"), args...)
	command.Env = n.kubectlCommand("").Env
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return string(output)
}

// collector accepts traces until the test ends. It returns its URL, and a function that returns all requests so far.
func (n *node) collector(t *testing.T) (url string, received func() string) {
	t.Helper()
	listener, err := net.Listen("tcp", n.ip+":0")
	must(t, err)
	var mu sync.Mutex // guards requests
	var requests strings.Builder
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_ = r.Write(&requests)
	})}
	go func() { _ = server.Serve(listener) }() // until Close
	t.Cleanup(func() { must(t, server.Close()) })
	return "http://" + listener.Addr().String(), func() string {
		mu.Lock()
		defer mu.Unlock()
		return requests.String()
	}
}

// TestChart installs a release from a registry, and upgrades, rolls back and uninstalls it with the commands of docs/helm.md, while a pod
// runs. The upgrade installs the chart and the image of the checkout.
func TestChart(t *testing.T) {
	n := ready(t)
	d := &daemonSet{node: n}
	t.Cleanup(func() {
		n.helm(t, "uninstall", "qos", "-n", "qos-system", "--ignore-not-found")
		n.kubectl(t, "delete", "--ignore-not-found", "crd", "nodeqosresources.qos.noderesource.dev", within)
		n.kubectl(t, "delete", "--ignore-not-found", "namespace", "qos-system", within)
	})
	values := func(gold int) string {
		return `classFiles.classes\.yaml=` + n.write(t, fmt.Sprintf("classes-%d.yaml", gold), fmt.Sprintf(classes, gold))
	}

	image := n.publishRelease(t)
	n.helm(t, "install", "qos", releasedChart, "--version", releasedVersion, "--plain-http",
		"--namespace", "qos-system", "--create-namespace", "--set-file", values(2))
	n.rolledOut(t)
	t.Run("the image is pulled from the registry by its digest", func(t *testing.T) { n.pulled(t, image) })
	n.offered(t, "gold", "2", "2")
	n.run(t, pod{name: "stays", classes: []string{"blockio.gold"}})
	n.running(t, "stays")
	before := n.containerID("stays")
	stays := func(t *testing.T) {
		t.Helper()
		n.inClass(t, "stays", "gold")
		if got := n.containerID("stays"); got != before {
			t.Errorf("the container %s was replaced by %q", before, got)
		}
	}

	collector, traces := n.collector(t)
	t.Run("helm test passes", func(t *testing.T) {
		if output := n.helm(t, "test", "qos", "--namespace", "qos-system", "--logs"); !strings.Contains(output, "gold") {
			t.Errorf("helm test prints:\n%s", output)
		}
	})
	t.Run("an upgrade replaces the plugin, and leaves the pod alone", func(t *testing.T) {
		n.helm(t, "upgrade", "qos", deploy+"chart", "-n", "qos-system", "--set-file", values(3), "--set", "tracing.endpoint="+collector)
		n.rolledOut(t)
		n.offered(t, "gold", "3", "3")
		n.holders(t, "gold", "default/stays/main")
		stays(t)
	})
	t.Run("the new plugin sends traces with the name of its node", func(t *testing.T) {
		until(t, "the collector has the trace of the class files", func() (bool, string) {
			seen := traces()
			return strings.Contains(seen, `"ApplyClassFiles"`) && strings.Contains(seen, `{"key":"k8s.node.name","value":{"stringValue":"`+n.name+`"}}`), seen
		})
	})
	t.Run("a rollback leaves the pod alone", func(t *testing.T) {
		n.helm(t, "rollback", "qos", "-n", "qos-system")
		n.rolledOut(t)
		n.offered(t, "gold", "2", "2")
		n.holders(t, "gold", "default/stays/main")
		stays(t)
	})
	t.Run("the shim has all permissions that it needs", func(t *testing.T) { shimMissesNothing(t, d) })
	t.Run("after it is uninstalled, the pod keeps its class", func(t *testing.T) {
		n.helm(t, "uninstall", "qos", "-n", "qos-system")
		n.kubectl(t, "-n", "qos-system", "wait", "--for=delete", "pod", "--all", within)
		stays(t)
		n.kubectl(t, "get", "crd", "nodeqosresources.qos.noderesource.dev")
	})
}
