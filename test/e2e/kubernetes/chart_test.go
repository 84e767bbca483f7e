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

// collector starts a server that accepts traces until the test ends. It returns the URL of the server, and a function
// that returns all requests so far.
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

// chartValues returns the argument of helm that sets the class files of the chart to those of the tests. The parameter
// `gold` is the capacity of the class gold.
func (n *node) chartValues(t *testing.T, gold int) string {
	t.Helper()
	return `--set-file=classFiles.classes\.yaml=` + n.write(t, fmt.Sprintf("classes-%d.yaml", gold), fmt.Sprintf(classes+podScope, gold))
}

// helmRelease runs "helm install" or "helm upgrade" with a version of the registry's chart, and waits for the DaemonSets.
func (n *node) helmRelease(t *testing.T, command, version string, args ...string) {
	t.Helper()
	n.helm(t, append([]string{command, "qos", releasedChart, "--version", version, "--plain-http", "--namespace", "qos-system"}, args...)...)
	n.rolledOut(t)
}

// TestChart installs the previous version from a registry. It upgrades to the release of this checkout, rolls back,
// uninstalls, and installs again, with the commands of docs/kubernetes.md, while pods run.
func TestChart(t *testing.T) {
	n := ready(t)
	d := &daemonSet{node: n}
	t.Cleanup(func() {
		n.helm(t, "uninstall", "qos", "-n", "qos-system", "--no-hooks", "--ignore-not-found")
		n.kubectl(t, "delete", "--ignore-not-found", "crd", "nodeqosresources.qos.noderesource.dev", within)
		n.kubectl(t, "delete", "--ignore-not-found", "namespace", "qos-system", within)
	})

	n.startRegistry(t)
	image := n.publishBefore(t)
	n.helmRelease(t, "install", oldVersion, "--create-namespace", n.chartValues(t, 2))
	t.Run("the image is pulled from the registry by its digest", func(t *testing.T) { n.pulled(t, image) })
	n.offered(t, "gold", "2", "2")
	n.runStaying(t)
	t.Run("helm test passes", func(t *testing.T) {
		if output := n.helm(t, "test", "qos", "--namespace", "qos-system", "--logs"); !strings.Contains(output, "gold") {
			t.Errorf("helm test prints, without the class gold:\n%s", output)
		}
	})

	collector, traces := n.collector(t)
	t.Run("an upgrade to the version of make release leaves pods alone", func(t *testing.T) { upgrades(t, n, "--set=tracing.endpoint="+collector) })
	t.Run("the new plugin sends traces with the name of its node", func(t *testing.T) {
		untilSeen(t, "the collector has the trace of the class files", traces,
			`"ApplyClassFiles"`, `{"key":"k8s.node.name","value":{"stringValue":"`+n.name+`"}}`)
	})
	t.Run("a rollback leaves pods alone", func(t *testing.T) { rollsBack(t, n, image) })
	t.Run("the shim has all permissions that it needs", func(t *testing.T) { shimMissesNothing(t, d) })
	t.Run("after an uninstall, pods keep their classes", func(t *testing.T) { uninstalls(t, n) })
	t.Run("the chart can be installed again over the CRD that was kept", func(t *testing.T) { installsAgain(t, n) })
	t.Run("an uninstall with resetClasses removes the limits of the default class", func(t *testing.T) { resets(t, n) })
}

// upgrades also raises the capacity of gold to 3.
func upgrades(t *testing.T, n *node, tracing string) {
	image := n.makeRelease(t)
	if n.knowsNewField(t) {
		t.Error("the CRD of the previous version has the field " + newField)
	}

	pods, restart := n.containers(t), n.watchRestart(t)
	n.helmRelease(t, "upgrade", newVersion, n.chartValues(t, 3), tracing)
	n.offered(t, "gold", "3", "3")
	restart.wantShortOutage(t, 2)
	n.pulled(t, image)
	n.holders(t, "gold", "default/by-resource/main")
	n.leftAlone(t, pods)
	if !n.knowsNewField(t) {
		t.Error("the upgrade has not changed the CRD")
	}

	until(t, "NodeQOSResources has the new version of the plugin", func() (bool, string) {
		seen := n.object().Status.Plugin.Version
		return seen == "v"+newVersion, seen
	})
}

// knowsNewField reports whether the CRD has the field that only the new version has.
func (n *node) knowsNewField(t *testing.T) bool {
	t.Helper()
	return n.kubectl(t, "get", "crd", "nodeqosresources.qos.noderesource.dev", "-o",
		"jsonpath={.spec.versions[0].schema.openAPIV3Schema.properties.status.properties."+newField+"}") != ""
}

func rollsBack(t *testing.T, n *node, image string) {
	pods, restart := n.containers(t), n.watchRestart(t)
	n.helm(t, "rollback", "qos", "-n", "qos-system")
	n.rolledOut(t)
	n.offered(t, "gold", "2", "2")
	restart.wantShortOutage(t, 2)
	n.pulled(t, image)
	n.holders(t, "gold", "default/by-resource/main")
	n.leftAlone(t, pods)
}

func uninstalls(t *testing.T, n *node) {
	pods := n.containers(t)
	n.helm(t, "uninstall", "qos", "-n", "qos-system")
	n.kubectl(t, "-n", "qos-system", "wait", "--for=delete", "pod", "--all", within)
	n.leftAlone(t, pods)
	n.kubectl(t, "get", "nodeqosresources", n.name)
}

func installsAgain(t *testing.T, n *node) {
	pods := n.containers(t)
	n.helmRelease(t, "install", newVersion, n.chartValues(t, 2), "--set=resetClasses=true")
	n.offered(t, "gold", "2", "2")
	n.holders(t, "gold", "default/by-resource/main")
	n.leftAlone(t, pods)
}

// resets uninstalls the release, and reads the kernel's files as soon as Helm returns, because all limits of the
// default class must be gone by then.
func resets(t *testing.T, n *node) {
	pods := n.containers(t)
	n.helm(t, "uninstall", "qos", "-n", "qos-system")
	limits := func(pod string) string {
		kernel, id, err := n.kernelOf(pod)
		must(t, err)
		return readLimits(kernel, id)
	}

	if seen := limits("by-default"); strings.Contains(seen, rates["standard"]) {
		t.Errorf("the pod without a request still has the limits %q of its default class", seen)
	}

	for pod, class := range map[string]string{"by-resource": "gold", "by-annotation": "slow"} {
		if seen := limits(pod); !strings.Contains(seen, rates[class]) {
			t.Errorf("%s has the limits %q, want those of the class %s, which it requested", pod, seen, class)
		}
	}

	if after := n.containers(t); after != pods {
		t.Errorf("the pods were\n%s\nand are now\n%s", pods, after)
	}

	if left := n.kubectl(t, "-n", "qos-system", "get", "configmaps,serviceaccounts,jobs", "-o", "name"); strings.Contains(left, "qos-") {
		t.Errorf("Helm leaves %s", left)
	}
}
