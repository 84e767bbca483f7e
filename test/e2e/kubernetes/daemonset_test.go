// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/e2e/remote"
)

// TestDaemonSet installs plugin and shim as docs/kubernetes.md says, and tests the rights, files and updates that
// depend on the manifests.
func TestDaemonSet(t *testing.T) {
	n := ready(t)
	n.awaitPlugin(t)
	d := n.installDaemonSet(t, deploy+"kubernetes")
	t.Run("a new node with a taint gets no pods before the plugin is ready", func(t *testing.T) { taintKeepsPodsOff(t, n) })
	t.Run("the class file of the manifests works", func(t *testing.T) { suppliedClassesWork(t, n) })
	n.setGold(t, d, 2)
	t.Run("capacity is in the node's status", func(t *testing.T) { capacityIsPublished(t, n) })
	t.Run("the scheduler counts classes", func(t *testing.T) { schedulerCounts(t, n) })
	t.Run("the node's object and the pods show the assignments", func(t *testing.T) { assignmentsArePublished(t, n, false) })
	t.Run("a class changed by hand is reported and counted", func(t *testing.T) { changedByHand(t, n) })
	t.Run("refusals are reported on the pod", func(t *testing.T) { refusalsAreReported(t, n) })
	t.Run("a pod that waits for a misspelled class gets an event", func(t *testing.T) { misspelledClassIsReported(t, n) })
	t.Run("reports agree with the kernel", n.holds)
	t.Run("the plugin cannot read the publisher's token", func(t *testing.T) { tokenIsClosed(t) })
	t.Run("the publisher's token can change only its node", func(t *testing.T) { tokenIsConfined(t, n) })
	t.Run("the publisher's token can report the readiness of only its node", func(t *testing.T) { readinessIsReported(t, n) })
	t.Run("the shim has all permissions that it needs", func(t *testing.T) { shimMissesNothing(t, d) })
	t.Run("classes are added, removed and changed", func(t *testing.T) { classesChange(t, n, d) })
	t.Run("reports agree with the kernel", n.holds)
	t.Run("pods of a removed class are evicted if the shim may do that", func(t *testing.T) { evictionNeedsItsRight(t, n, d) })
	t.Run("after a failure of the API server, the shim publishes what has changed", func(t *testing.T) { serverAway(t, n, d) })
	t.Run("with deploy/kubernetes-follow-annotations, a changed annotation changes the class of a running container", func(t *testing.T) { followsAnnotations(t, n, d) })
	t.Run("an update of the DaemonSets does not affect pods", func(t *testing.T) { updateLeavesPodsAlone(t, n) })
	t.Run("reports agree with the kernel", n.holds)
}

// daemonSet is an installation by the manifests: plugin and shim run in the pods of the DaemonSets.
type daemonSet struct{ *node }

func (n *node) installDaemonSet(t *testing.T, manifests string) *daemonSet {
	t.Helper()
	n.kubectl(t, "apply", "-k", manifests)
	t.Cleanup(func() { n.kubectl(t, "delete", "-k", manifests, "--wait", within) })
	n.rolledOut(t)
	return &daemonSet{node: n}
}

func (n *node) rolledOut(t *testing.T) {
	t.Helper()
	for _, name := range []string{"daemonset/qos-nri-plugin", "daemonset/qos-publisher"} {
		n.kubectl(t, "-n", "qos-system", "rollout", "status", name, within)
	}
}

func (d *daemonSet) setClasses(t *testing.T, text string) {
	t.Helper()
	file := d.write(t, "classes.yaml", text)
	manifest := d.kubectl(t, "-n", "qos-system", "create", "configmap", "qos-classes", "--from-file="+file, "--dry-run=client", "-o", "yaml")
	d.apply(t, manifest)
}

// These are the beginnings of the command lines of the containers' programs.
const (
	pluginProgram    = "/qos-nri-plugin run"
	shimProgram      = "/qos-kubelet-shim --publish=device-plugin"
	publisherProgram = "/qos-kubelet-shim --publish=node-object"
)

func (d *daemonSet) killPlugin(t *testing.T) { must(t, d.machine.kill(pluginProgram)) }

func (d *daemonSet) killShim(t *testing.T) {
	must(t, d.machine.kill(shimProgram))
	must(t, d.machine.kill(publisherProgram))
}

func (d *daemonSet) back(t *testing.T) {
	t.Helper()
	for _, server := range []struct{ daemonSet, port string }{{"qos-nri-plugin", "9420"}, {"qos-nri-plugin", "9421"}, {"qos-publisher", "9421"}} {
		d.ready(t, func() string {
			output, _ := d.try("-n", "qos-system", "get", "pods", "-l", "app.kubernetes.io/name="+server.daemonSet, "-o", "jsonpath={.items[0].status.podIP}")
			return output + ":" + server.port
		})
	}
}

// tokenIsClosed checks that a process with the rights of the plugin cannot read the publisher's token.
func tokenIsClosed(t *testing.T) {
	pid, err := remote.PIDOf(publisherProgram)
	must(t, err)
	token := fmt.Sprintf("/proc/%d/root/var/run/secrets/kubernetes.io/serviceaccount/token", pid)
	if _, err := os.ReadFile(token); err != nil {
		t.Fatalf("not even root finds the token: %v", err)
	}
	output, err := exec.Command("setpriv", "--bounding-set=-all,+dac_override", "--inh-caps=-all", "cat", token).CombinedOutput()
	if err == nil || !strings.Contains(string(output), "Permission denied") {
		t.Errorf("with the plugin's rights: %v, %.40s; want permission denied", err, output)
	}
}

// suppliedClassesWork checks the classes of a node right after the installation, with the class file of the manifests.
func suppliedClassesWork(t *testing.T, n *node) {
	n.offered(t, "throttled", "1k", "1k")
	n.runPods(t, pod{name: "throttled", classes: []string{"blockio.throttled"}})
	n.condition(t, "throttled", "main: k8s.io/blockio throttled (allocated)")
	for _, command := range []string{"status", "assignments"} {
		output := n.kubectl(t, "-n", "qos-system", "exec", "daemonset/qos-nri-plugin", "-c", "plugin", "--", "qos-nri-plugin", command)
		if !strings.Contains(output, "throttled") {
			t.Errorf("qos-nri-plugin %s, run in the pod, prints, without the class throttled:\n%s", command, output)
		}
	}

	usageIsShown(t, n)
	until(t, "NodeQOSResources lists the unavailable resources", func() (bool, string) {
		object := n.object()
		seen := fmt.Sprintf("%+v", object.Status.UnavailableResources)
		return strings.Contains(seen, "k8s.io/rdt"), seen
	})
}

// usageIsShown runs "kubectl qos top" as an administrator, and as a user who may not forward ports of the plugin's pod.
func usageIsShown(t *testing.T, n *node) {
	if output := n.qos(t, "top", "usage", "--once", "--containers", "--interval=1s"); !strings.Contains(output, "k8s.io/blockio") {
		t.Errorf("kubectl qos top usage prints, without k8s.io/blockio:\n%s", output)
	}
	n.kubectl(t, "-n", "qos-system", "create", "rolebinding", "viewer", "--clusterrole=view", "--user=viewer")
	wantRefusal(t, "kubectl qos top without the permission to forward ports", "the verbs get and create for pods/portforward")(
		n.tryQOS("", "top", "usage", "--once", "--as=viewer"))
}

// followsAnnotations installs the manifests that let the publisher change the classes of running containers, and checks
// that the publisher follows annotations.
func followsAnnotations(t *testing.T, n *node, d *daemonSet) {
	n.kubectl(t, "apply", "-k", deploy+"kubernetes-follow-annotations")
	n.rolledOut(t)
	n.setGold(t, d, 2) // kubectl apply has replaced the class files by those of the manifests
	annotationsAreFollowed(t, n)
}

// updateLeavesPodsAlone replaces the pods of the DaemonSets, and checks that a running container keeps its class.
func updateLeavesPodsAlone(t *testing.T, n *node) {
	n.runPods(t, pod{name: "stays-on", classes: []string{"blockio.gold"}})
	same := n.sameContainers(t, "stays-on")
	n.kubectl(t, "-n", "qos-system", "rollout", "restart", "daemonset/qos-nri-plugin", "daemonset/qos-publisher")
	n.rolledOut(t)
	n.offered(t, "gold", "2", "2")
	n.holders(t, "gold", "default/stays-on/main")
	n.inClass(t, "stays-on", "gold")
	same("an update of the DaemonSets")
}

func shimMissesNothing(t *testing.T, d *daemonSet) {
	for _, word := range []string{"forbidden", "rbac.yaml", "permission denied", "level=ERROR", "rejects"} {
		if lines := d.said(word); len(lines) > 0 {
			t.Errorf("the shim's log has %q, want no such error:\n%s", word, strings.Join(lines, ""))
		}
	}
	if len(d.said("class is published")) == 0 || len(d.said("publish=node-object")) == 0 {
		t.Errorf("the log of the shim is not complete:\n%s", strings.Join(d.said(""), ""))
	}
}
