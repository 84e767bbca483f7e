// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"os/exec"
	"strings"
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

	t.Run("helm test passes", func(t *testing.T) {
		if output := n.helm(t, "test", "qos", "--namespace", "qos-system", "--logs"); !strings.Contains(output, "gold") {
			t.Errorf("helm test prints:\n%s", output)
		}
	})
	t.Run("an upgrade replaces the plugin, and leaves the pod alone", func(t *testing.T) {
		n.helm(t, "upgrade", "qos", deploy+"chart", "-n", "qos-system", "--set-file", values(3), "--set", "podLabels.upgraded=yes")
		n.rolledOut(t)
		n.offered(t, "gold", "3", "3")
		n.holders(t, "gold", "default/stays/main")
		stays(t)
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
