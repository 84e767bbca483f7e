// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const policies = "../../../deploy/policies"

// TestRequests tests the interfaces for users of the cluster: policies, defaults, quotas and "kubectl qos".
func TestRequests(t *testing.T) {
	n := ready(t)
	p := n.install(t, "--follow-annotations")
	n.kubectl(t, "apply", "-f", crd)
	t.Run("the class of a network becomes the priority of the CNI plugin", func(t *testing.T) { networkStory(t, n) })
	n.installPolicies(t)
	t.Run("each request is admitted, completed or refused as requests.yaml says", func(t *testing.T) { tryRequests(t, n) })
	t.Run("large ConfigMaps and Secrets are refused only in namespaces that limit environment variables", func(t *testing.T) { referencesAreBounded(t, n) })
	t.Run("a pod with twenty containers and a hundred large annotations is admitted", func(t *testing.T) { manyContainers(t, n) })
	t.Run("pods of every kind of workload get defaults", func(t *testing.T) { workloads(t, n) })
	t.Run("requests of a pod cannot be changed, unless the namespace allows changes", func(t *testing.T) { requestsStay(t, n) })
	t.Run("a tenant cannot forge events about classes", func(t *testing.T) { eventsAreKept(t, n) })
	t.Run("a quota holds even if many pods are created at once", func(t *testing.T) { quotaRace(t, n) })
	t.Run("a quota with limits.* has no effect", func(t *testing.T) { quotaTrap(t, n) })
	t.Run("a quota limits how many claims name a class", func(t *testing.T) { claimQuota(t, n) })
	t.Run("the examples of KEP-3008", func(t *testing.T) { kep(t, n) })
	t.Run("a LimitRange limits the containers of a pod that request a class", func(t *testing.T) { podsAreLimited(t, n) })
	t.Run("claims of Dynamic Resource Allocation cannot request what pods cannot", func(t *testing.T) { deviceClaimsAreLimited(t, n) })
	t.Run("kubectl qos shows and changes the classes of running pods", func(t *testing.T) { shown(t, n, p) })
	t.Run("the node enforces capacity for a pod that no policy has checked", func(t *testing.T) { bypassed(t, n) })
	t.Run("while the plugin is away, no container starts without its class", func(t *testing.T) { pluginIsRequired(t, n, p) })
	t.Run("pods that require the plugin wait while it is updated", func(t *testing.T) { requiredPodsWaitForThePlugin(t, n, p) })
	t.Run("policies can be limited to some namespaces, and one of them removed and installed again", func(t *testing.T) { policiesComeAndGo(t, n) })
}

// installPolicies installs all policies, as docs/policies.md says, and waits until they act.
func (n *node) installPolicies(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		n.kubectl(t, "delete", "--ignore-not-found", "-k", policies)
		n.kubectl(t, "delete", "--ignore-not-found", "-k", policies+"-environments")
		n.kubectl(t, "delete", "namespace", withDefaults, bounded, within)
	})
	n.kubectl(t, "apply", "-k", policies+"-environments")
	n.applyPolicies(t, containerResources)
	n.apply(t, defaults)
	n.policiesAct(t)
}

// applyPolicies applies the policies. `containerResources` lists the QoS resources of containers in the format of the
// policies.
func (n *node) applyPolicies(t *testing.T, containerResources string) {
	t.Helper()
	n.applyOverlay(t, policies, strings.Replace(ownPolicies, "RESOURCES", containerResources, 1))
}

// applyOverlay applies a kustomization, in which %s stands for its base.
func (n *node) applyOverlay(t *testing.T, base, kustomization string) {
	t.Helper()
	n.kubectl(t, "apply", "-k", n.overlay(t, "overlay", base, kustomization))
}

// overlay writes a kustomization, in which %s stands for its base, and returns its directory.
func (n *node) overlay(t *testing.T, name, base, kustomization string) string {
	t.Helper()
	dir := filepath.Join(n.dir, name)
	absolute, err := filepath.Abs(base)
	must(t, err)
	relative, err := filepath.Rel(dir, absolute)
	must(t, err)
	n.write(t, name+"/kustomization.yaml", fmt.Sprintf(kustomization, relative))
	return dir
}

// policiesAct waits until the API server knows the policies, their parameters and the defaults of the namespace.
func (n *node) policiesAct(t *testing.T) {
	t.Helper()
	until(t, "policies act", func() (bool, string) {
		wrong, err := n.send(unitsOf("default", map[string]int{"blockio.gold": 2}))
		right, _ := n.send(unitsOf(withDefaults, nil))
		return err != nil && strings.Contains(wrong, "write 1") && strings.Contains(right, `"qos.noderesource.dev/network.slow":"1"`), wrong + right
	})
}

// send creates the objects of a manifest by a dry run on the API server, and returns the answer.
func (n *node) send(manifest string) (string, error) {
	return n.tryWith(manifest, "create", "--dry-run=server", "-o", "jsonpath={.metadata.annotations} {.spec}", "-f", "-")
}

// unitsOf returns the manifest of a pod that requests units of classes, and that no scheduler places.
func unitsOf(namespace string, units map[string]int) string {
	all := map[string]any{}
	for name, amount := range units {
		all[name] = amount
	}
	object := corev1.Pod{}
	object.APIVersion, object.Kind, object.GenerateName, object.Namespace = "v1", "Pod", "asks-", namespace
	object.Spec = corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "main", Image: "none"}}}
	object.Spec.Containers[0].Resources.Limits = quantities(all)
	text, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// referencesAreBounded creates ConfigMaps and Secrets of several sizes. It creates them in a namespace where the policies
// limit the size of containers' environment variables, and in another namespace.
func referencesAreBounded(t *testing.T, n *node) {
	for kind, field := range map[string]string{"ConfigMap": "data", "Secret": "stringData"} {
		// In base64, the data of a Secret is larger by a third: 45 KiB are then 60 KiB.
		for namespace, sizes := range map[string]map[int]bool{bounded: {45 << 10: true, 64 << 10: false}, "default": {64 << 10: true}} {
			for size, accepted := range sizes {
				output, err := n.send(fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"metadata":{"name":"refers","namespace":%q},%q:{"key":%q}}`,
					kind, namespace, field, strings.Repeat("x", size)))
				if (err == nil) != accepted || !accepted && !strings.Contains(output, "and 65536 is the most in this namespace; divide it") {
					t.Errorf("a %s of %d bytes in namespace %s: %.300s", kind, size, namespace, output)
				}
			}
		}
	}
}

// manyContainers creates a pod whose containers request classes in turn by limits, by an annotation of their own, and by that of the pod.
func manyContainers(t *testing.T, n *node) {
	r := request{Defaults: true, Annotations: map[string]string{podAnnotation: "qos.noderesource.dev/network=fast,rdt=bronze,blockio=slow"}}
	for i := range 20 {
		c := requester{Name: fmt.Sprintf("c%d", i)}
		switch i % 3 {
		case 0:
			c.Units = map[string]any{"rdt.gold": 1, "blockio.gold": 1, "vendor.example/xyz-qos.high": 1, "memory": "8Mi"}
		case 1:
			r.Annotations["container.qos.noderesource.dev/"+c.Name] = "rdt=silver,blockio=,vendor.example/xyz-qos=high"
		}
		if i < 10 {
			r.Containers = append(r.Containers, c)
		} else {
			r.Init = append(r.Init, c)
		}
	}
	for i := range 100 {
		r.Annotations[fmt.Sprintf("example.com/%d", i)] = strings.Repeat("x", 1000)
	}
	output, err := n.send(r.manifest(t))
	if err != nil || strings.Count(output, `"qos.noderesource.dev/rdt.silver":"1"`) != 2*7 {
		t.Errorf("%v\n%s\nwant it accepted, with seven containers in silver, limits and requests", err, output)
	}
}

// workloads checks the defaults in pods that controllers create, for each kind of workload.
func workloads(t *testing.T, n *node) {
	const template = `{metadata: {labels: {app: %[1]s}}, spec: {schedulerName: nobody, %[2]s
    containers: [{name: main, image: none}]}}`
	manifests := map[string]string{
		"deployment":  `{apiVersion: apps/v1, kind: Deployment, metadata: {name: %[1]s}, spec: {selector: {matchLabels: {app: %[1]s}}, template: %[2]s}}`,
		"statefulset": `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: %[1]s}, spec: {serviceName: s, selector: {matchLabels: {app: %[1]s}}, template: %[2]s}}`,
		"daemonset":   `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: %[1]s}, spec: {selector: {matchLabels: {app: %[1]s}}, template: %[2]s}}`,
		"replicaset":  `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: %[1]s}, spec: {selector: {matchLabels: {app: %[1]s}}, template: %[2]s}}`,
		"job":         `{apiVersion: batch/v1, kind: Job, metadata: {name: %[1]s}, spec: {template: %[2]s}}`,
		"cronjob":     `{apiVersion: batch/v1, kind: CronJob, metadata: {name: %[1]s}, spec: {schedule: "0 0 1 1 *", jobTemplate: {spec: {template: %[2]s}}}}`,
	}
	for kind, manifest := range manifests {
		once := ""
		if strings.HasSuffix(kind, "job") {
			once = "restartPolicy: Never,"
		}
		output, err := n.tryWith(fmt.Sprintf(manifest, kind, fmt.Sprintf(template, kind, once)), "-n", withDefaults, "apply", "-f", "-")
		if err != nil {
			t.Fatalf("%s: %s", kind, output)
		}
	}
	n.kubectl(t, "-n", withDefaults, "create", "job", "from-cronjob", "--from=cronjob/cronjob")
	t.Cleanup(func() {
		n.kubectl(t, "-n", withDefaults, "delete", "deployment,statefulset,daemonset,replicaset,job,cronjob", "--all", within)
	})
	for kind := range manifests {
		untilSeen(t, "the pod of the "+kind+" has the defaults", func() string {
			return n.kubectl(t, "-n", withDefaults, "get", "pods", "-l", "app="+kind, "-o", "jsonpath={.items[*].spec.containers[*].resources.limits}")
		}, "qos.noderesource.dev/blockio.standard", "qos.noderesource.dev/network.slow")
	}
}

// requestsStay tries to change the requests of a pod by all ways of the API, before and after the namespace allows changes.
func requestsStay(t *testing.T, n *node) {
	const ours = "container.qos.noderesource.dev/main"
	manifest := strings.Replace(unitsOf("default", nil), `"generateName":"asks-"`, `"name":"stays","annotations":{"`+ours+`":"blockio=slow"}`, 1)
	n.apply(t, manifest)
	t.Cleanup(func() {
		n.kubectl(t, "delete", "pod", "stays", "--grace-period=0", "--force")
		n.kubectl(t, "label", "namespace", "default", "qos.noderesource.dev/allow-changes-")
	})
	for what, args := range map[string][]string{
		"another class":                 {"annotate", "--overwrite", "pod", "stays", ours + "=blockio=gold"},
		"no class":                      {"annotate", "pod", "stays", ours + "-"},
		"an additional request":         {"annotate", "pod", "stays", podAnnotation + "=rdt=gold"},
		"an annotation of the runtimes": {"annotate", "pod", "stays", "rdt.resources.beta.kubernetes.io/pod=gold"},
		"another class, by a patch of the status": {"patch", "pod", "stays", "--subresource=status", "--type=merge", "-p",
			`{"metadata":{"annotations":{"` + ours + `":"blockio=gold"}}}`},
	} {
		output, err := n.try(args...)
		kept := "cannot be changed in a pod that exists; make a new pod; only where the nodes follow annotations, let the namespace allow changes: " +
			"kubectl label namespace default qos.noderesource.dev/allow-changes=true"
		contradicts := "its limits have qos.noderesource.dev/blockio.slow" // another policy also refuses the request, and the API server reports one of the two
		if err == nil || !strings.Contains(output, kept) && !strings.Contains(output, contradicts) {
			t.Errorf("%s: %s; want it refused", what, output)
		}
	}
	wantRefusal(t, "the removal of the annotation that requires the plugin", "is kept by policy; leave it in")(
		n.try("annotate", "pod", "stays", requiredAnnotation+"-"))
	for _, internal := range []string{requiredAnnotation + "/container.main=", "qos.noderesource.dev/classes=", "assigned.qos.noderesource.dev=", "io.kubernetes.cri.rdt-class="} {
		if output, err := n.try("annotate", "pod", "stays", internal); err == nil {
			t.Errorf("%s is accepted, although it is empty: %s", internal, output)
		}
	}
	binding := `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"stays","annotations":{"` + ours + `":"blockio=gold"}},"target":{"kind":"Node","name":"x"}}`
	for _, path := range []string{"pods/stays/binding", "bindings"} {
		wantRefusal(t, "another class, by POST "+path, "cannot be changed in a pod that exists")(
			n.tryWith(binding, "create", "--raw", "/api/v1/namespaces/default/"+path, "-f", "-"))
	}
	n.kubectl(t, "annotate", "pod", "stays", "example.com/other=1")
	requestsOfOldPodsAreLeftAlone(t, n)
	n.kubectl(t, "label", "namespace", "default", "qos.noderesource.dev/allow-changes=true")
	untilDone(t, "a request may be added", func() (string, error) {
		return n.try("annotate", "--overwrite", "pod", "stays", ours+"=blockio=slow,rdt=gold")
	})
	wantRefusal(t, "a request for another class than that of the limits",
		"its limits have qos.noderesource.dev/blockio.slow, and an annotation requests blockio=gold")(
		n.try("annotate", "--overwrite", "pod", "stays", ours+"=blockio=gold"))
	wantRefusal(t, "a change to a malformed request", "is not a request")(n.try("annotate", "--overwrite", "pod", "stays", ours+"=gold"))
}

// requestsOfOldPodsAreLeftAlone checks that an annotation of a pod can be changed when the policies no longer list a resource that the
// pod requests.
func requestsOfOldPodsAreLeftAlone(t *testing.T, n *node) {
	t.Helper()
	n.applyPolicies(t, strings.Replace(containerResources, "'blockio', ", "", 1))
	untilRefused(t, "the resource is gone", "",
		func() (string, error) { return n.send(unitsOf("default", map[string]int{"blockio.slow": 1})) })
	n.kubectl(t, "annotate", "pod", "stays", "k8s.v1.cni.cncf.io/network-status=x")
	n.applyPolicies(t, containerResources)
	untilDone(t, "the resource exists again", func() (string, error) { return n.send(unitsOf("default", map[string]int{"blockio.slow": 1})) })
}

// quotaRace creates many pods at once, more than the quota of their namespace allows.
func quotaRace(t *testing.T, n *node) {
	const quota = `{apiVersion: v1, kind: ResourceQuota, metadata: {name: classes},
  spec: {hard: {requests.qos.noderesource.dev/blockio.slow: "10", requests.qos.noderesource.dev/blockio.gold: "0"}}}`
	n.namespace(t, "quota", quota)
	n.awaitInField(t, "the quota is in force", `"requests.qos.noderesource.dev/blockio.slow":"10"`,
		"{.status.hard}", "-n", "quota", "resourcequota", "classes")
	wantRefusal(t, "a request for a class that the quota forbids",
		"exceeded quota: classes, requested: requests.qos.noderesource.dev/blockio.gold=1")(n.send(unitsOf("quota", map[string]int{"blockio.gold": 1})))
	var admitted, exceeded atomic.Int32
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			output, err := n.tryWith(unitsOf("quota", map[string]int{"blockio.slow": 1}), "create", "-f", "-")
			switch {
			case err == nil:
				admitted.Add(1)
			case strings.Contains(output, "exceeded quota: classes"):
				exceeded.Add(1)
			default:
				t.Errorf("a pod was refused, but not by the quota: %s", output)
			}
		})
	}
	group.Wait()
	if admitted.Load() != 10 || exceeded.Load() != 40 {
		t.Errorf("%d of 50 pods admitted and %d over the quota; want 10 and 40", admitted.Load(), exceeded.Load())
	}
}

// quotaTrap creates a quota that the API server accepts but does not enforce, as docs/policies.md warns.
func quotaTrap(t *testing.T, n *node) {
	n.namespace(t, "trap", `{apiVersion: v1, kind: ResourceQuota, metadata: {name: classes}, spec: {hard: {limits.qos.noderesource.dev/blockio.slow: "0"}}}`)
	n.awaitInField(t, "the quota is in force", "limits.qos.noderesource.dev/blockio.slow", "{.status.hard}", "-n", "trap", "resourcequota", "classes")
	if output, err := n.send(unitsOf("trap", map[string]int{"blockio.slow": 1})); err != nil {
		t.Errorf("Kubernetes now enforces limits.*: %s; change docs/policies.md", output)
	}
}

// namespace creates a namespace, and the objects of the manifests in it.
func (n *node) namespace(t *testing.T, name, manifests string) {
	t.Helper()
	n.kubectl(t, "create", "namespace", name)
	t.Cleanup(func() { n.kubectl(t, "delete", "namespace", name, "--wait=false") })
	if manifests != "" {
		n.applyIn(t, name, manifests)
	}
}

// bypassed runs pods in a namespace without policies. They request a class by annotation, so the scheduler does not
// count the requests.
func bypassed(t *testing.T, n *node) {
	n.offered(t, "silver", "1", "1")
	for _, name := range []string{"first", "second"} {
		p := pod{name: name, annotations: map[string]string{"container.qos.noderesource.dev/main": "blockio=silver"}}
		manifest := strings.Replace(p.manifest(), `"namespace":"default"`, `"namespace":"kube-system"`, 1)
		n.apply(t, manifest)
		t.Cleanup(func() { n.kubectl(t, "-n", "kube-system", "delete", "pod", name, within) })
		want := "main: k8s.io/blockio silver (container)"
		if name == "second" {
			want = `class "silver" of k8s.io/blockio is full: 1 of 1 in use`
		}
		n.awaitInField(t, name+" is on the node", want,
			`{.status.containerStatuses[*].state} {.status.conditions[?(@.type=="qos.noderesource.dev/Assigned")].message}`, "-n", "kube-system", "pod", name)
	}
}

// pluginIsRequired stops the plugin, and checks that the runtime does not create a container that requires the plugin.
// The pod requests its class by annotation only. The scheduler does not count this request, and therefore places the pod.
func pluginIsRequired(t *testing.T, n *node, p *programs) {
	must(t, p.plugin.end(syscall.SIGTERM))
	t.Cleanup(func() { p.back(t) })
	// In a namespace that allows changes, the policies add no units to a pod that requests a class by annotation.
	n.kubectl(t, "label", "namespace", "default", "qos.noderesource.dev/allow-changes=true")
	t.Cleanup(func() { n.kubectl(t, "label", "namespace", "default", "qos.noderesource.dev/allow-changes-") })
	until(t, "requests by annotation are left to the node", func() (bool, string) {
		output, err := n.send(strings.Replace(unitsOf("default", nil), `"generateName"`, `"annotations":{"container.qos.noderesource.dev/main":"blockio=gold"},"generateName"`, 1))
		return err == nil && !strings.Contains(output, "blockio.gold\":"), output
	})
	n.createPods(t, pod{name: "needs-plugin", annotations: map[string]string{"container.qos.noderesource.dev/main": "blockio=gold"}}, pod{name: "needs-nothing"})
	until(t, "the runtime refuses the container", func() (bool, string) {
		output := n.of("needs-plugin", "{.status.containerStatuses[*].state.waiting.message}")
		events, _ := n.try("get", "events", "--field-selector", "involvedObject.name=needs-plugin", "-o", "jsonpath={.items[*].message}")
		return strings.Contains(output+events, `required plugin "qos-nri-plugin" not present`), output + events
	})
	n.running(t, "needs-nothing")
	p.back(t)
	n.running(t, "needs-plugin")
	n.inClass(t, "needs-plugin", "gold")
}

func policiesComeAndGo(t *testing.T, n *node) {
	n.kubectl(t, "apply", "-k", policies+"-opt-in")
	wrong := func(namespace string) (string, error) {
		return n.send(unitsOf(namespace, map[string]int{"blockio.slow": 2}))
	}
	untilDone(t, "policies are not for a namespace without the label", func() (string, error) { return wrong("default") })
	n.kubectl(t, "label", "namespace", "default", "qos.noderesource.dev/policies=enabled")
	t.Cleanup(func() { n.kubectl(t, "label", "namespace", "default", "qos.noderesource.dev/policies-") })
	untilRefused(t, "policies are for a namespace with the label", "write 1",
		func() (string, error) { return wrong("default") })
	n.kubectl(t, "delete", "-f", policies+"/check-units.yaml")
	untilDone(t, "one policy is gone", func() (string, error) { return wrong("default") })
	n.applyPolicies(t, containerResources)
	n.policiesAct(t)
}
