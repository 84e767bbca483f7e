// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/invariant"
)

const classFile = "/etc/qos-nri-plugin/classes.yaml"

// classes is the class file of the tests. Only gold and silver have a capacity. %d is the capacity of gold.
const classes = `apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/blockio
  defaultClass: standard
  classes:
  - {name: gold, capacity: %d, description: for the tests}
  - {name: silver, capacity: 1}
  - {name: slow}
  - {name: standard}
  blockio:
    Classes:
      gold: [{Devices: [/dev/vda], ThrottleReadBps: 900M}]
      silver: [{Devices: [/dev/vda], ThrottleReadBps: 800M}]
      slow: [{Devices: [/dev/vda], ThrottleReadBps: 700M}]
      standard: [{Devices: [/dev/vda], ThrottleReadBps: 600M}]
`

// rates has the read limit of each class, in bytes a second, as the kernel shows it.
var rates = map[string]string{"gold": "900000000", "silver": "800000000", "slow": "700000000", "standard": "600000000"}

// installation is the plugin and the shim on the node. Either the tests start both as processes, or the DaemonSets do.
type installation interface {
	// setClasses changes the class file.
	setClasses(t *testing.T, text string)
	// killPlugin and killShim kill the processes. The processes may stay down until the method back is called.
	killPlugin(t *testing.T)
	killShim(t *testing.T)
	// back waits until the plugin and the shim are ready. It starts them if nothing else does.
	back(t *testing.T)
	// said returns the lines of the shim's log that contain text.
	said(text string) []string
}

// programs is an installation whose plugin and shim the tests start as processes on the node.
type programs struct {
	*node
	plugin, shim *process
}

// install starts plugin and shim as processes, with a class file in which gold has the capacity 2.
func (n *node) install(t *testing.T, shimFlags ...string) *programs {
	t.Helper()
	p := &programs{node: n}
	p.setClasses(t, fmt.Sprintf(classes, 2))
	p.plugin = n.process("plugin", n.program("qos-nri-plugin"), "--mount-resctrl=false")
	// The shim runs as in the DaemonSet: as root without capabilities.
	p.shim = n.process("shim", append([]string{
		"setpriv", "--bounding-set=-all", "--inh-caps=-all", n.program("qos-kubelet-shim"),
		"--node-name", n.name, "--kubeconfig", n.cluster.kubeconfig("admin"), "--grace=5s",
	}, shimFlags...)...)

	p.plugin.mustStart(t)
	p.shim.mustStart(t)
	t.Cleanup(func() {
		must(t, p.shim.end(syscall.SIGTERM))
		must(t, p.plugin.end(syscall.SIGTERM))
	})

	return p
}

func (p *programs) setClasses(t *testing.T, text string) {
	t.Helper()
	must(t, os.WriteFile(classFile, []byte(text), 0o644))
}

func (p *programs) killPlugin(t *testing.T) { p.plugin.mustEnd(t, syscall.SIGKILL) }

func (p *programs) killShim(t *testing.T) { p.shim.mustEnd(t, syscall.SIGKILL) }

func (p *programs) back(t *testing.T) {
	t.Helper()
	for _, program := range []*process{p.plugin, p.shim} {
		if !program.running() {
			program.mustStart(t)
		}
	}
	for _, port := range []string{"9420", "9421"} {
		p.ready(t, func() string { return "127.0.0.1:" + port })
	}
}

// ready waits until the readiness endpoint of a program succeeds.
func (n *node) ready(t *testing.T, address func() string) {
	t.Helper()
	until(t, "/readyz of a program succeeds", func() (bool, string) {
		// The request does not use t.Context(), because that context is canceled when a cleanup calls ready.
		request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+address()+"/readyz", http.NoBody)
		if err != nil {
			return false, err.Error()
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, err.Error()
		}
		defer response.Body.Close()
		seen, _ := io.ReadAll(response.Body)
		return response.StatusCode == http.StatusOK, address() + ": " + string(seen)
	})
}

// offered waits until the node's status has the given capacity and allocatable amount for the class of this name in each
// QoS resource.
func (n *node) offered(t *testing.T, class, capacity, allocatable string) {
	t.Helper()
	for _, resource := range n.asks(class) {
		n.offers(t, resource, capacity, allocatable)
	}
}

// offers waits until the node's status has this capacity and this allocatable amount for an extended resource, e.g. blockio.gold.
func (n *node) offers(t *testing.T, resource, capacity, allocatable string) {
	t.Helper()
	want := capacity + " " + allocatable
	until(t, "the node has "+resource+" "+want, func() (bool, string) {
		output, _ := n.try("get", "node", n.name, "-o", "json")
		var object struct {
			Status struct{ Capacity, Allocatable map[string]string }
		}
		_ = json.Unmarshal([]byte(output), &object)
		name := "qos.noderesource.dev/" + resource
		seen := object.Status.Capacity[name] + " " + object.Status.Allocatable[name]
		return seen == want, seen
	})
}

// asks returns the extended resources of the classes with the name `class`, one for each QoS resource of the node.
func (n *node) asks(class string) []string {
	var resources []string
	for _, resource := range n.machine.node().resources {
		resources = append(resources, resource+"."+class)
	}
	return resources
}

// pod describes a pod for a test. Its container is called main.
type pod struct {
	name        string
	classes     []string // extended resources "blockio.gold", one unit each
	units       int      // of each extended resource; 0 means 1
	annotations map[string]string
	priority    string
	node        string // the only node on which it may run; empty means any node
	// init is a class that an init container requests; empty means no init container. If `loops` is true, the container
	// main ends at once, so that the kubelet restarts it again and again.
	init  string
	loops bool
}

// createPods creates pods until the end of the test.
func (n *node) createPods(t *testing.T, pods ...pod) {
	t.Helper()
	var manifests strings.Builder
	for _, p := range pods {
		manifests.WriteString(p.manifest())
	}

	n.apply(t, manifests.String())
	t.Cleanup(func() {
		// The pods are not deleted by force. Otherwise the scheduler would count devices as free that the kubelet still has
		// in use.
		args := []string{"delete", "pod", "--ignore-not-found", "--wait", within}
		for _, p := range pods {
			args = append(args, p.name)
		}
		n.kubectl(t, args...)
	})
}

// runPods does the same, and waits until the pods run.
func (n *node) runPods(t *testing.T, pods ...pod) {
	t.Helper()
	n.createPods(t, pods...)
	for _, p := range pods {
		n.running(t, p.name)
	}
}

func (p pod) manifest() string {
	main := container("main", max(1, p.units), p.classes...)
	if p.loops {
		main["args"] = []string{"cat", "/proc/self/cgroup"}
	}

	spec := map[string]any{"priorityClassName": p.priority, "terminationGracePeriodSeconds": 1, "containers": []any{main}}
	if p.node != "" {
		spec["nodeSelector"] = map[string]string{"kubernetes.io/hostname": p.node}
	}

	if p.init != "" {
		before := container("before", 1, p.init)
		before["args"] = []string{"cat", "/proc/self/cgroup"}
		spec["initContainers"] = []any{before}
	}

	object := map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": p.name, "namespace": "default", "annotations": p.annotations},
		"spec":     spec,
	}

	text, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}

	return string(text) + "\n---\n"
}

func container(name string, units int, classes ...string) map[string]any {
	limits := map[string]int{}
	for _, class := range classes {
		limits["qos.noderesource.dev/"+class] = units
	}
	return map[string]any{
		"name": name, "image": workloadImage, "imagePullPolicy": "Never", "resources": map[string]any{"limits": limits},
	}
}

// delete removes pods, and waits until they are gone.
func (n *node) delete(t *testing.T, pods ...string) {
	t.Helper()
	n.kubectl(t, append([]string{"delete", "--wait", within, "pod"}, pods...)...)
}

// of reads a field of a pod.
func (n *node) of(pod, jsonpath string) string {
	output, err := n.try("get", "pod", pod, "-o", "jsonpath="+jsonpath)
	if err != nil {
		return err.Error() + ": " + output
	}
	return output
}

func (n *node) phase(pod string) string { return n.of(pod, "{.status.phase}") }

func (n *node) running(t *testing.T, pods ...string) {
	t.Helper()
	for _, pod := range pods {
		until(t, "pod "+pod+" runs", func() (bool, string) {
			seen := n.of(pod, "{.status.phase} {.status.containerStatuses[*].state}")
			return strings.HasPrefix(seen, "Running") && strings.Contains(seen, `"running"`), seen
		})
	}
}

// pending waits until a pod is pending and the scheduler's message contains the text `why`.
func (n *node) pending(t *testing.T, pod, why string) {
	t.Helper()
	until(t, "pod "+pod+" waits: "+why, func() (bool, string) {
		seen := n.of(pod, `{.status.phase} {.status.conditions[?(@.type=="PodScheduled")].message}`)
		return strings.HasPrefix(seen, "Pending") && strings.Contains(seen, why), seen
	})
}

// replaces creates a pod that waits because of `why`, and runs when another pod is deleted.
func (n *node) replaces(t *testing.T, p pod, other, why string) {
	t.Helper()
	n.createPods(t, p)
	n.pending(t, p.name, why)
	n.delete(t, other)
	n.running(t, p.name)
}

// containerID returns the runtime's ID of the pod's container main.
func (n *node) containerID(pod string) string {
	_, id, _ := strings.Cut(n.of(pod, `{.status.containerStatuses[?(@.name=="main")].containerID}`), "://")
	return id
}

// sameContainers returns a function that checks that pods still have the containers that they have now. `what` is what
// could have replaced them.
func (n *node) sameContainers(t *testing.T, pods ...string) (check func(what string)) {
	t.Helper()
	ids := func() (all []string) {
		for _, pod := range pods {
			all = append(all, n.containerID(pod))
		}
		return all
	}
	before := ids()
	return func(what string) {
		t.Helper()
		if now := ids(); !slices.Equal(now, before) {
			t.Errorf("%s has replaced containers of the pods %q: they were %q, and are %q", what, pods, before, now)
		}
	}
}

// inClass waits until the kernel enforces a class on a pod's container.
func (n *node) inClass(t *testing.T, pod, class string) {
	t.Helper()
	n.inClasses(t, pod, class, class)
}

// inClasses waits until the kernel enforces a block I/O class and, on a node with RDT, an RDT class on a pod's container.
func (n *node) inClasses(t *testing.T, pod, blockio, rdt string) {
	t.Helper()
	until(t, "pod "+pod+" is in "+blockio+" and "+rdt, func() (bool, string) {
		kernel, id, err := n.kernelOf(pod)
		if err != nil {
			return false, err.Error()
		}
		return enforced(kernel, id, blockio, rdt)
	})
}

// kernelOf returns what the kernel has for the container main of a pod, and the ID of the container.
func (n *node) kernelOf(pod string) (kernel invariant.Kernel, id string, err error) {
	id = n.containerID(pod)
	dir, err := n.machine.cgroup(id)
	if err != nil {
		return kernel, id, err
	}
	kernel, err = n.machine.kernel(invariant.Live{Containers: []invariant.Container{{ID: id, Cgroup: dir}}})
	return kernel, id, err
}

// readLimits returns the read limits of a container.
func readLimits(kernel invariant.Kernel, id string) string {
	files := kernel.Cgroups[id].Files
	return files["io.max"] + files["blkio.throttle.read_bps_device"]
}

// enforced reports whether a container has the limits of a class and, on machines with resctrl, whether its threads are in the
// group of the class.
func enforced(kernel invariant.Kernel, id, blockio, rdt string) (ok bool, seen string) {
	cgroup, limits, outside := kernel.Cgroups[id], readLimits(kernel, id), 0
	if kernel.Groups != nil {
		for _, thread := range cgroup.Threads {
			if !slices.Contains(kernel.Groups["qos-"+rdt].Tasks, thread) {
				outside++
			}
		}
	}
	seen = fmt.Sprintf("limits %q; %d of %d threads are not in the group", limits, outside, len(cgroup.Threads))
	return strings.Contains(limits, rates[blockio]) && len(cgroup.Threads) > 0 && outside == 0, seen
}

// condition waits until the pod's condition qos.noderesource.dev/Assigned, as "STATUS REASON: MESSAGE", contains want.
func (n *node) condition(t *testing.T, pod, want string) {
	t.Helper()
	n.awaitInField(t, "the condition of pod "+pod+" says "+want, want,
		`{range .status.conditions[?(@.type=="qos.noderesource.dev/Assigned")]}{.status} {.reason}: {.message}{end}`, "pod", pod)
}

// shell runs a qos-nri-plugin command that an administrator would run in a shell of the node. The command must succeed.
func (n *node) shell(t *testing.T, args ...string) string {
	t.Helper()
	output, err := n.machine.run(append([]string{n.machine.path("qos-nri-plugin")}, args...)...)
	if err != nil {
		t.Fatalf("qos-nri-plugin %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return output
}
