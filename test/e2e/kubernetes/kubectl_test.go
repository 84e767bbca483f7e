// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	kepExamples = "../../../internal/convert/testdata/kep-"
	kepNode     = "kep-node"
)

// kepStatus is the status of a node that has the classes of KEP-3008's examples. The test's own node cannot have them,
// because it has no RDT.
const kepStatus = `{"status":{"qosResources":{
  "podQOSResources":[{"name":"qos.noderesource.dev/network","mutable":true,"classes":[
    {"name":"slow","inUse":0},{"name":"normal","inUse":0},{"name":"fast","inUse":0,"capacity":2},{"name":"high","inUse":0}]}],
  "containerQOSResources":[
    {"name":"k8s.io/rdt","mutable":true,"classes":[{"name":"exclusive","inUse":0,"capacity":1},{"name":"limited","inUse":0},{"name":"gold","inUse":0,"capacity":1}]},
    {"name":"k8s.io/blockio","mutable":true,"classes":[{"name":"high-prio","inUse":0,"capacity":2},{"name":"throttled","inUse":0}]},
    {"name":"qos.noderesource.dev/qos-foo","mutable":true,"classes":[{"name":"low-prio","inUse":0},{"name":"normal-prioa","inUse":0},{"name":"high-prio","inUse":0}]},
    {"name":"vendor.example/xyz-qos","mutable":true,"classes":[{"name":"low-prio","inUse":0},{"name":"normal","inUse":0},{"name":"high-prio","inUse":0}]}]},
  "conditions":[{"type":"PluginReady","status":"True","reason":"Ready","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`

// qos runs "kubectl qos", which must succeed.
func (n *node) qos(t *testing.T, args ...string) string {
	t.Helper()
	output, err := n.tryQOS("", args...)
	if err != nil {
		t.Fatalf("kubectl qos %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return output
}

// tryQOS runs "kubectl qos". kubectl finds the plugin in the PATH.
func (n *node) tryQOS(stdin string, args ...string) (string, error) {
	command := n.kubectlCommand(stdin, append([]string{"qos"}, args...)...)
	command.Env = append(command.Env, "PATH="+n.bin+":"+os.Getenv("PATH"))
	var stderr strings.Builder
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return string(output) + stderr.String(), err
	}
	return string(output), nil
}

// kepApplied converts an example of KEP-3008 with "kubectl qos convert", and applies the result.
func (n *node) kepApplied(t *testing.T, namespace, example string) {
	t.Helper()
	n.applyIn(t, namespace, n.qos(t, "convert", "--from-cluster", "-f", kepExamples+example+".in.yaml"))
}

func (n *node) applyIn(t *testing.T, namespace, manifests string) {
	t.Helper()
	if output, err := n.tryWith(manifests, "-n", namespace, "apply", "-f", "-"); err != nil {
		t.Fatalf("kubectl apply: %s\n%s", output, manifests)
	}
}

// kep converts, applies and shows all examples of the KEP. A fake node has the classes of the examples.
func kep(t *testing.T, n *node) {
	n.fakeNode(t, kepNode, `"qos.noderesource.dev/rdt.exclusive":"1","qos.noderesource.dev/rdt.limited":"1000","qos.noderesource.dev/rdt.gold":"1",
		"qos.noderesource.dev/blockio.high-prio":"2","qos.noderesource.dev/blockio.throttled":"1000","qos.noderesource.dev/network.fast":"2"`)
	n.apply(t, `{apiVersion: qos.noderesource.dev/v1alpha1, kind: NodeQOSResources, metadata: {name: kep-node}}`)
	t.Cleanup(func() { n.kubectl(t, "delete", "nodeqosresources", kepNode) })
	n.kubectl(t, "patch", "nodeqosresources", kepNode, "--subresource=status", "--type=merge", "-p", kepStatus)
	n.applyPolicies(t, containerResources+", 'qos.noderesource.dev/qos-foo'")
	t.Cleanup(func() { n.applyPolicies(t, containerResources) })
	t.Run("kubectl qos nodes shows the classes of the node", func(t *testing.T) {
		wantLines(t, n.qos(t, "nodes", kepNode), "qos.noderesource.dev/network Yes slow (0/inf) normal (0/inf) fast (0/2) high (0/inf)",
			"k8s.io/rdt Yes exclusive (0/1) limited (0/inf) gold (0/1)", "k8s.io/blockio Yes high-prio (0/2) throttled (0/inf)")
	})
	t.Run("kubectl qos nodes shows that the shim of a node has stopped reporting", func(t *testing.T) {
		n.kubectl(t, "patch", "nodeqosresources", kepNode, "--subresource=status", "--type=merge", "-p", `{"status":{"lastHeartbeatTime":"2026-01-01T00:00:00Z"}}`)
		wantLines(t, n.qos(t, "nodes"), kepNode+" Unknown (last report ")
		n.kubectl(t, "patch", "nodeqosresources", kepNode, "--subresource=status", "--type=merge", "-p", `{"status":{"lastHeartbeatTime":null}}`)
	})

	for _, example := range []struct {
		file  string
		shown []string
	}{
		{"noisy-neighbours", []string{
			"qos-resource-example main-app k8s.io/rdt exclusive", "qos-resource-example main-app k8s.io/blockio high-prio",
			"qos-resource-example sidecar k8s.io/rdt limited", "qos-resource-example sidecar k8s.io/blockio throttled",
		}},
		{"pod-and-container", []string{"qos-resource-example <pod> qos.noderesource.dev/network fast", "qos-resource-example cnt k8s.io/rdt gold"}},
	} {
		t.Run(example.file, func(t *testing.T) {
			n.namespace(t, example.file, "")
			n.kepApplied(t, example.file, example.file)
			t.Cleanup(func() { n.kubectl(t, "-n", example.file, "delete", "pod", "--all", "--force", "--grace-period=0") })
			n.awaitField(t, "the pod is on the node that has its classes", kepNode,
				"{.items[*].spec.nodeName}{.items[*].status.conditions[*].message}", "-n", example.file, "pods")
			wantLines(t, n.qos(t, "pods", "-n", example.file), example.shown...)
		})
	}

	t.Run("kubectl qos convert --claims makes claims", func(t *testing.T) {
		claims := n.qos(t, "convert", "--from-cluster", "--claims", "-f", kepExamples+"noisy-neighbours.in.yaml")
		output, err := n.tryWith(claims, "-n", "default", "apply", "--dry-run=server", "-f", "-")
		if err != nil {
			t.Fatalf("%v: %s\n%s", err, output, claims)
		}
		wantLines(t, output, "pod/qos-resource-example created (server dry run)",
			"resourceclaimtemplate.resource.k8s.io/rdt.exclusive created (server dry run)")
	})
	t.Run("the LimitRange and the quota of the KEP set defaults and limits", func(t *testing.T) { kepDefaultsAndLimits(t, n) })
}

// kepDefaultsAndLimits converts the LimitRange and the quota of the KEP's example, and applies both in one namespace.
func kepDefaultsAndLimits(t *testing.T, n *node) {
	n.namespace(t, "limited", "")
	n.kepApplied(t, "limited", "limitrange")
	n.kepApplied(t, "limited", "quota")
	until(t, "defaults and quota are in force", func() (bool, string) {
		hard, _ := n.try("-n", "limited", "get", "resourcequota", "-o", "jsonpath={.items[*].status.hard}")
		output, _ := n.send(unitsOf("limited", map[string]int{"qos-foo.low-prio": 1}))
		return strings.Contains(hard, "requests.") && strings.Contains(output, `"vendor.example/xyz-qos.normal":"1"`) &&
			strings.Contains(output, `"qos.noderesource.dev/network.slow":"1"`) && strings.Contains(output, `"qos.noderesource.dev/qos-foo.low-prio":"1"`), hard + output
	})

	// `admitted` is how many of three pods the quota admits.
	for _, c := range []struct {
		name, class string
		annotations string
		admitted    int
	}{
		{"a class without a capacity is unlimited", "qos-foo.low-prio", "", 3},
		{"a class that is not listed is forbidden", "qos-foo.high-prio", "", 0},
		{"a class that does not exist yet is forbidden", "qos-foo.new", "", 0},
		{"a class with capacity 1 is admitted once", "vendor.example/xyz-qos.high-prio", "", 1},
		{"a class of pods with capacity 2 is admitted twice", "network.normal", `"annotations":{"qos.noderesource.dev/pod":"qos.noderesource.dev/network=normal"}`, 2},
		{"a class of pods that is not listed is forbidden", "network.high", `"annotations":{"qos.noderesource.dev/pod":"qos.noderesource.dev/network=high"}`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			admitted := 0
			for range 3 {
				manifest := unitsOf("limited", map[string]int{c.class: 1})
				if c.annotations != "" {
					manifest = strings.Replace(manifest, `"metadata":{`, `"metadata":{`+c.annotations+",", 1)
				}
				output, err := n.tryWith(manifest, "create", "-f", "-")
				switch {
				case err == nil:
					admitted++
				case c.admitted == 0 && strings.Contains(output, "ResourceQuota qos-constraints does not allow "):
				case c.admitted == 0 || !strings.Contains(output, "exceeded quota: qos-constraints, requested: requests."):
					t.Errorf("a pod was refused, but not by the quota: %s", output)
				}
			}

			if admitted != c.admitted {
				t.Errorf("%d of 3 admitted, want %d", admitted, c.admitted)
			}
		})
	}
}

// podsAreLimited converts a LimitRange with a maximum, as the KEP ("Default and limits") defines it.
func podsAreLimited(t *testing.T, n *node) {
	const manifest = `{apiVersion: v1, kind: LimitRange, metadata: {name: pods}, spec: {limits: [{type: Container, qosResources: [
  {name: rdt, max: [{name: gold, capacity: 1}, {name: exclusive, capacity: 0}]}]}]}}`
	const refused = "QOSLimitRange pods allows at most "
	pod := func(classes ...string) string {
		text := `{apiVersion: v1, kind: Pod, metadata: {name: limited, namespace: limited-pods}, spec: {schedulerName: nobody, containers: [`
		for i, class := range classes {
			text += fmt.Sprintf(`{name: c%d, image: none, resources: {limits: {qos.noderesource.dev/rdt.%s: "1"}}},`, i, class)
		}
		return text + "]}}"
	}

	n.namespace(t, "limited-pods", "")
	n.write(t, "limitrange.yaml", manifest)
	n.applyIn(t, "limited-pods", n.qos(t, "convert", "-f", filepath.Join(n.dir, "limitrange.yaml")))
	untilRefused(t, "the limit is in force", refused+"1 of qos.noderesource.dev/rdt.gold in a pod; 2 of its containers request it",
		func() (string, error) { return n.send(pod("gold", "gold")) })
	wantRefusal(t, "a pod with a class of maximum 0", refused+"0 of qos.noderesource.dev/rdt.exclusive")(n.send(pod("exclusive")))
	if output, err := n.send(pod("gold", "bronze", "bronze")); err != nil {
		t.Errorf("a pod with one container in gold, and others in a class without a maximum: %s; want it accepted", output)
	}
}

// shown runs a pod from a manifest in the KEP's form on this machine, checks what "kubectl qos" reports about the pod,
// and changes its class.
func shown(t *testing.T, n *node, p *programs) {
	const manifest = `apiVersion: apps/v1
kind: Deployment
metadata: {name: kep-form, namespace: default}
spec:
  selector: {matchLabels: {app: kep-form}}
  template:
    metadata: {labels: {app: kep-form}, annotations: {container.qos.noderesource.dev/changes: blockio=slow}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: localhost/workload:1
        imagePullPolicy: Never
        resources:
          qosResources: # as in KEP-3008
          - {name: blockio, class: gold}
      - {name: changes, image: "localhost/workload:1", imagePullPolicy: Never}
      - {name: asks-not, image: "localhost/workload:1", imagePullPolicy: Never}
`

	const allowed = "qos.noderesource.dev/allow-changes"
	n.kubectl(t, "label", "namespace", "default", allowed+"=true")
	converted, err := n.tryQOS(manifest, "convert")
	must(t, err)
	n.apply(t, converted)
	t.Cleanup(func() {
		n.kubectl(t, "delete", "deployment", "kep-form", "--cascade=foreground", within)
		n.kubectl(t, "label", "namespace", "default", allowed+"-")
	})

	n.kubectl(t, "rollout", "status", "deployment/kep-form", within)
	name := n.kubectl(t, "get", "pods", "-l", "app=kep-form", "-o", "jsonpath={.items[0].metadata.name}")
	lines := func(t *testing.T, changes string) {
		t.Helper()
		awaitLines(t, func() string { return n.qos(t, "pods", name) },
			name+" main k8s.io/blockio gold gold allocated", changes, name+" asks-not k8s.io/blockio - standard default")
	}

	lines(t, name+" changes k8s.io/blockio slow slow container")
	n.inClass(t, name, "gold")
	awaitLines(t, func() string { return n.qos(t, "top") + n.qos(t, "nodes") },
		"k8s.io/blockio gold 1 1 2 1", n.name+" True k8s.io/blockio gold (1/2) silver (0/1) slow (1/inf) standard* (")

	n.kubectl(t, "label", "namespace", "default", allowed+"-")
	untilRefused(t, "changes are not allowed", "", func() (string, error) {
		return n.try("annotate", "--dry-run=server", "--overwrite", "pod", name, "container.qos.noderesource.dev/changes=blockio=gold")
	})

	set := func(container, request string, flags ...string) (string, error) {
		return n.tryQOS("", append([]string{"set", name, "-c", container, request}, flags...)...)
	}
	wantRefusal(t, "a change in a namespace that does not allow changes", "allow-changes=true")(set("changes", "blockio=silver"))
	n.kubectl(t, "label", "namespace", "default", allowed+"=true")
	until(t, "the class may be changed", func() (bool, string) {
		output, err := set("changes", "blockio=silver")
		return err == nil && strings.Contains(output, "k8s.io/blockio slow -> silver"), output
	})

	lines(t, name+" changes k8s.io/blockio silver silver update")
	wantRefusal(t, "a change to an unknown class", "platinum")(set("changes", "blockio=platinum"))
	n.holders(t, "silver", "default/"+name+"/changes")
	wantRefusal(t, "a change to a full class", "is full: 1 of 1 in use")(set("asks-not", "blockio=silver"))
	if annotations := n.kubectl(t, "get", "pod", name, "-o", "jsonpath={.metadata.annotations}"); strings.Contains(annotations, "/asks-not") {
		t.Errorf("a refused class was written to the pod: %s", annotations)
	}

	p.killShim(t)
	wantRefusal(t, "a change while the shim is away", "/asks-not is removed again")(set("asks-not", "blockio=slow", "--timeout=2s"))
	p.back(t)
	if annotations := n.kubectl(t, "get", "pod", name, "-o", "jsonpath={.metadata.annotations}"); strings.Contains(annotations, "/asks-not") {
		t.Errorf("an annotation without effect stays on the pod: %s", annotations)
	}

	completed, err := exec.Command(n.program("kubectl-qos"), "--kubeconfig", n.cluster.kubeconfig("admin"), "__complete", "set", name, "-c", "changes", "blockio=").Output()
	must(t, err)
	wantLines(t, string(completed), "blockio=gold", "blockio=silver")
}

func wantLines(t *testing.T, output string, want ...string) {
	t.Helper()
	if !hasLines(output, want...) {
		t.Errorf("%s\nwant lines that begin with:\n%s", output, strings.Join(want, "\n"))
	}
}

// awaitLines waits until the output of "kubectl qos" has lines that begin with these texts.
func awaitLines(t *testing.T, look func() string, want ...string) {
	t.Helper()
	until(t, "kubectl qos shows lines that begin with:\n"+strings.Join(want, "\n"), func() (bool, string) {
		output := look()
		return hasLines(output, want...), output
	})
}

// hasLines reports whether, for each text of `want`, a line of the output begins with the text. It ignores the number of blanks in the
// lines.
func hasLines(output string, want ...string) bool {
	var lines strings.Builder
	for line := range strings.Lines(output) {
		lines.WriteString("\n" + strings.Join(strings.Fields(line), " "))
	}
	for _, text := range want {
		if !strings.Contains(lines.String(), "\n"+text) {
			return false
		}
	}
	return true
}
