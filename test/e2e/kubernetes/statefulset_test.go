// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestStatefulSetVolumes resizes the volumes of StatefulSets. The CSI driver, the external-resizer and the kubelet really expand loop
// devices. The plugin does not run.
func TestStatefulSetVolumes(t *testing.T) {
	n := ready(t)
	n.applyResize(t)
	volumes := filepath.Join(n.dir, "csi-volumes")
	socket := n.serveVolumes(t, n.machine, volumes, "modify")
	n.startSidecar(t, "csi-provisioner", socket)
	n.startSidecar(t, "csi-resizer", socket)
	controller := n.startController(t, "resize")

	created := 0
	run := func(name, order string, test func(*testing.T, *database)) {
		t.Run(name, func(t *testing.T) {
			d := &database{node: n, volumes: volumes, controller: controller, namespace: fmt.Sprintf("statefulset-%d", created)}
			created++
			d.create(t, order)
			test(t, d)
		})
	}
	run("the volumes of ordered replicas grow, also those of new replicas", "OrderedReady", volumesGrow)
	run("a driver that fails for one of the parallel replicas does not stop the others", "Parallel", driverFailsInParallel)
	run("volumes that a driver expands only offline grow while the pods are away", "Parallel", offlineOnly)
	if !testing.Short() { // takes half a minute
		run("the driver gives the volumes a class", "Parallel", volumesGetClasses)
	}
	if !testing.Short() { // the code of Argo CD takes minutes to build
		run("Argo CD and Flux may change the size in the template", "Parallel", gitOpsChanges)
	}
	run("helm, kubectl and others may change the size in the template", "Parallel", templatesChange)
	run("StatefulSets that request nothing can be changed while some of the objects are missing", "Parallel", objectsAreLost)
	run("the controller waits for pods that are away or have an older revision", "Parallel", podsAreAwaited)
}

// applyResize applies the manifests that "qos-storage resize" needs, without its Deployment.
func (n *node) applyResize(t *testing.T) {
	t.Helper()
	n.kubectl(t, "apply", "-f", deploy+"kubernetes/namespace.yaml")
	for _, file := range []string{"crd", "rbac", "users", "confine"} {
		n.kubectl(t, "apply", "-f", deploy+"storage-statefulsets/"+file+".yaml")
	}
	n.kubectl(t, "wait", "--for=condition=Established", "crd/statefulsetvolumes.qos.noderesource.dev", within)
}

// startController starts a command of qos-storage with the rights of its service account, until the test ends.
func (n *node) startController(t *testing.T, command string, flags ...string) *process {
	t.Helper()
	name := "qos-storage-" + command
	return n.startProcess(t, name, append([]string{n.program("qos-storage"), command, "--namespace=qos-system", "--metrics-address=",
		"--kubeconfig=" + n.account(t, "qos-system", name)}, flags...)...)
}

// database is the StatefulSet of testdata/statefulset.yaml.
type database struct {
	*node
	namespace, volumes string
	controller         *process
}

// create creates the StatefulSet in a namespace of its own. When the test ends, its volumes are deleted.
func (d *database) create(t *testing.T, order string) {
	t.Helper()
	text, err := os.ReadFile("testdata/statefulset.yaml")
	must(t, err)
	d.createNamespace(t)
	d.applyIn(t, d.namespace, strings.ReplaceAll(string(text), "ORDER", order))
	d.in(t, "rollout", "status", "statefulset/db", within)
}

func (d *database) createNamespace(t *testing.T) {
	t.Helper()
	d.kubectl(t, "create", "namespace", d.namespace)
	t.Cleanup(func() {
		d.kubectl(t, "delete", "namespace", d.namespace, within)
		d.noVolumes(t)
	})
}

// noVolumes waits until the driver has deleted all volumes.
func (n *node) noVolumes(t *testing.T) {
	t.Helper()
	if output, err := n.try("wait", "--for=delete", "pv", "--all", within); err != nil && !strings.Contains(output, "no matching resources") {
		t.Errorf("the volumes are not deleted: %v: %s", err, output)
	}
}

// in runs kubectl in the namespace of the StatefulSet.
func (d *database) in(t *testing.T, args ...string) string {
	t.Helper()
	return d.kubectl(t, append([]string{"-n", d.namespace}, args...)...)
}

// request creates or changes the StatefulSetVolumes object. Each template has the form {name: …, storage: …}.
func (d *database) request(t *testing.T, templates ...string) {
	t.Helper()
	d.applyIn(t, d.namespace, fmt.Sprintf(`{apiVersion: qos.noderesource.dev/v1alpha1, kind: StatefulSetVolumes, metadata: {name: db},
  spec: {volumeClaimTemplates: [%s]}}`, strings.Join(templates, ", ")))
}

// says waits until the condition Ready has a message that contains a text.
func (d *database) says(t *testing.T, text string) {
	t.Helper()
	d.awaitInField(t, "the object says "+text, text, `{.status.conditions[?(@.type=="Ready")].message}`, "-n", d.namespace, "ssv", "db")
}

// await waits for a condition of the object, e.g. "condition=Ready".
func (d *database) await(t *testing.T, condition string) {
	t.Helper()
	d.in(t, "wait", "--for="+condition, "statefulsetvolumes/db", within)
}

// sizes returns the requested size and the capacity of the claims of a template, by replica, e.g. "0 32Mi/16Mi, 1 32Mi/32Mi".
func (d *database) sizes(t *testing.T, template string) string {
	t.Helper()
	var all []string
	for line := range strings.Lines(d.in(t, "get", "pvc", "-o", `jsonpath={range .items[*]}{.metadata.name} {.spec.resources.requests.storage}/{.status.capacity.storage}{"\n"}{end}`)) {
		if size, found := strings.CutPrefix(strings.TrimSpace(line), template+"-db-"); found {
			all = append(all, size)
		}
	}
	return strings.Join(all, ", ")
}

// want checks the sizes of the claims of a template.
func (d *database) want(t *testing.T, template, want string) {
	t.Helper()
	if got := d.sizes(t, template); got != want {
		t.Errorf("requested size and capacity of the volumes of template %s: %s; want %s", template, got, want)
	}
}

// bound sets the largest size, in MiB, that the driver gives to the volume of a claim from now on.
func (d *database) bound(t *testing.T, claim string, mebibytes int) {
	t.Helper()
	volume := d.in(t, "get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}")
	must(t, os.WriteFile(filepath.Join(d.volumes, "fail."+volume), []byte(fmt.Sprint(mebibytes<<20)), 0o644))
}

// offlineOnly lets the driver refuse volumes in use.
func offlineOnly(t *testing.T, d *database) {
	for i := range 3 {
		volume := d.in(t, "get", "pvc", fmt.Sprintf("data-db-%d", i), "-o", "jsonpath={.spec.volumeName}")
		must(t, os.WriteFile(filepath.Join(d.volumes, "offline."+volume), nil, 0o644))
	}
	d.request(t, "{name: data, storage: 24Mi}")
	d.says(t, "is in use, and is expanded only offline")
	d.want(t, "data", "0 24Mi/16Mi, 1 24Mi/16Mi, 2 24Mi/16Mi")

	d.in(t, "scale", "statefulset/db", "--replicas=0")
	d.in(t, "wait", "--for=delete", "pod", "-l=app=db", within)
	until(t, "the driver has expanded the volumes", func() (bool, string) {
		seen, _ := d.try("get", "pv", "-o", `jsonpath={range .items[?(@.spec.claimRef.namespace=="`+d.namespace+`")]}{.spec.capacity.storage} {end}`)
		return strings.Count(seen, "24Mi") == 3, seen
	})
	d.scale(t, 3)
	d.await(t, "condition=Ready")
	d.want(t, "data", "0 24Mi/24Mi, 1 24Mi/24Mi, 2 24Mi/24Mi")
}

// reported waits until the StatefulSet has an event that contains a text.
func (d *database) reported(t *testing.T, reason, text string) {
	t.Helper()
	d.awaitInField(t, "the StatefulSet has an event "+reason, text,
		"{.items[*].message}", "-n", d.namespace, "events", "--field-selector=involvedObject.kind=StatefulSet,reason="+reason)
}

// status waits until the template data has the number of ready replicas and the finished generation in `want`, e.g. "3 1".
func (d *database) status(t *testing.T, want string) {
	t.Helper()
	d.awaitField(t, "the template has the status "+want, want,
		`{.status.volumeClaimTemplates[?(@.templateName=="data")].readyReplicas} {.status.volumeClaimTemplates[?(@.templateName=="data")].finishedReconciliationGeneration}`, "-n", d.namespace, "ssv", "db")
}

// volumesGrow first lets all expansions succeed. Then the driver fails at the second replica, and a smaller size
// repairs this.
func volumesGrow(t *testing.T, d *database) {
	uid := d.in(t, "get", "statefulset", "db", "-o", "jsonpath={.metadata.uid}")
	pods := d.in(t, "get", "pods", "-o", "jsonpath={.items[*].metadata.uid}")
	d.applyIn(t, d.namespace, blocksOf(t, "../../../docs/storage/kep-0661.md", "yaml")[0])
	d.await(t, "condition=Ready")
	d.want(t, "data", "0 32Mi/32Mi, 1 32Mi/32Mi, 2 32Mi/32Mi")
	d.want(t, "log", "0 16Mi/16Mi, 1 16Mi/16Mi, 2 16Mi/16Mi")
	d.status(t, "3 1")
	wantLines(t, d.in(t, "get", "ssv"), "db 32Mi True 3 AllReplicasReady")

	d.bound(t, "data-db-1", 48)
	d.request(t, "{name: data, storage: 64Mi}")
	d.await(t, "condition=Stalled")
	d.want(t, "data", "0 64Mi/64Mi, 1 64Mi/32Mi, 2 32Mi/32Mi")
	d.reported(t, "VolumeResizeFailed", "claim data-db-1: the driver cannot expand the volume: ")
	d.status(t, "1 1")

	must(t, d.controller.end(syscall.SIGKILL)) // between the patches of the second and the third replica
	d.scale(t, 4)
	d.controller.mustStart(t)
	d.status(t, "1 1")
	d.want(t, "data", "0 64Mi/64Mi, 1 64Mi/32Mi, 2 32Mi/32Mi, 3 16Mi/16Mi")
	d.request(t, "{name: data, storage: 40Mi}")
	d.status(t, "4 3")
	d.await(t, "condition=Ready")
	d.want(t, "data", "0 64Mi/64Mi, 1 40Mi/40Mi, 2 40Mi/40Mi, 3 40Mi/40Mi")
	if !d.expanded(t, "data-db-3") {
		t.Error("the volume of the new replica was not expanded")
	}
	d.newReplicasHaveTheSize(t)
	if got := d.in(t, "get", "statefulset", "db", "-o", "jsonpath={.metadata.uid}"); got != uid {
		t.Error("the StatefulSet was replaced")
	}
	if got := d.in(t, "get", "pods", "-o", "jsonpath={.items[*].metadata.uid}"); !strings.HasPrefix(got, pods) {
		t.Errorf("pods were replaced: %s, before %s", got, pods)
	}
}

// newReplicasHaveTheSize installs the policy, with which the volume of a new replica is created with the requested size.
func (d *database) newReplicasHaveTheSize(t *testing.T) {
	t.Helper()
	d.installPolicies(t)
	until(t, "the policy acts", func() (bool, string) {
		seen, err := d.newClaim("data-db-9")
		return err == nil && seen == "40Mi", seen
	})

	d.scale(t, 5)
	d.status(t, "5 3")
	d.want(t, "data", "0 64Mi/64Mi, 1 40Mi/40Mi, 2 40Mi/40Mi, 3 40Mi/40Mi, 4 40Mi/40Mi")
	d.want(t, "log", "0 16Mi/16Mi, 1 16Mi/16Mi, 2 16Mi/16Mi, 3 16Mi/16Mi, 4 16Mi/16Mi")
	if d.expanded(t, "data-db-4") {
		t.Error("the volume of the new replica was expanded, want it created with the size")
	}
}

func (d *database) scale(t *testing.T, replicas int) {
	t.Helper()
	d.in(t, "scale", "statefulset/db", fmt.Sprintf("--replicas=%d", replicas))
	d.in(t, "rollout", "status", "statefulset/db", within)
}

// expanded reports whether the external-resizer has expanded the volume of a claim.
func (d *database) expanded(t *testing.T, claim string) bool {
	t.Helper()
	return d.in(t, "get", "events", "--field-selector=reason=Resizing,involvedObject.name="+claim, "-o", "name") != ""
}

// driverFailsInParallel lets the driver fail at the first of the parallel replicas. Then a quota refuses the patches.
func driverFailsInParallel(t *testing.T, d *database) {
	d.bound(t, "data-db-0", 20)
	d.request(t, "{name: data, storage: 32Mi}", "{name: log, storage: 24Mi}")
	d.await(t, "condition=Stalled")
	d.await(t, `jsonpath={.status.volumeClaimTemplates[?(@.templateName=="data")].readyReplicas}=2`)
	d.await(t, `jsonpath={.status.volumeClaimTemplates[?(@.templateName=="log")].readyReplicas}=3`)
	d.want(t, "data", "0 32Mi/16Mi, 1 32Mi/32Mi, 2 32Mi/32Mi")
	d.want(t, "log", "0 24Mi/24Mi, 1 24Mi/24Mi, 2 24Mi/24Mi")

	d.applyIn(t, d.namespace, `{apiVersion: v1, kind: ResourceQuota, metadata: {name: small}, spec: {hard: {requests.storage: 170Mi}}}`)
	d.awaitField(t, "the quota is in force", "168Mi", "{.status.used.requests\\.storage}", "-n", d.namespace, "resourcequota", "small")
	d.request(t, "{name: log, storage: 32Mi}")
	d.await(t, `jsonpath={.status.conditions[?(@.type=="Stalled")].reason}=PatchRefused`)
	d.reported(t, "FailedToPatchPVC", "exceeded quota: small")
	d.want(t, "log", "0 24Mi/24Mi, 1 24Mi/24Mi, 2 24Mi/24Mi")

	must(t, d.controller.end(syscall.SIGKILL)) // the next process continues where this one ended
	d.in(t, "patch", "resourcequota", "small", "--type=merge", "-p", `{"spec":{"hard":{"requests.storage":"1Gi"}}}`)
	d.controller.mustStart(t)
	d.await(t, "condition=Ready")
	d.want(t, "log", "0 32Mi/32Mi, 1 32Mi/32Mi, 2 32Mi/32Mi")
}

// podsAreAwaited first lets the StorageClass forbid the expansion. Then a pod is away, and after that pods have an older revision.
func podsAreAwaited(t *testing.T, d *database) {
	allow := func(value string) {
		d.kubectl(t, "patch", "storageclass", "grows", "-p", `{"allowVolumeExpansion":`+value+`}`)
	}
	allow("false")
	t.Cleanup(func() { allow("true") })
	d.request(t, "{name: data, storage: 20Mi}")
	d.await(t, `jsonpath={.status.conditions[?(@.type=="Stalled")].reason}=ExpansionNotAllowed`)
	d.reported(t, "FailedToPatchPVC", `StorageClass "grows" does not allow expansion`)
	d.want(t, "data", "0 16Mi/16Mi, 1 16Mi/16Mi, 2 16Mi/16Mi")
	allow("true")
	d.await(t, "condition=Ready")

	uncordon := d.cordon(t)
	d.in(t, "delete", "pod", "db-1", within)
	d.request(t, "{name: data, storage: 24Mi}")
	d.status(t, "2 1")
	d.says(t, "claim data-db-1: pod db-1 is not ready")
	d.want(t, "data", "0 24Mi/24Mi, 1 20Mi/20Mi, 2 24Mi/24Mi")
	uncordon()
	d.await(t, "condition=Ready")

	d.in(t, "patch", "statefulset", "db", "-p", `{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null},"template":{"metadata":{"annotations":{"a":"b"}}}}}`)
	d.in(t, "delete", "pod", "db-0", within)
	d.request(t, "{name: data, storage: 28Mi}")
	d.status(t, "1 2")
	d.says(t, "claim data-db-1: pod db-1 does not have the newest revision of the StatefulSet")
	d.want(t, "data", "0 28Mi/28Mi, 1 24Mi/24Mi, 2 24Mi/24Mi")
	d.in(t, "delete", "pod", "db-1", "db-2", within)
	d.await(t, "condition=Ready")
	d.want(t, "data", "0 28Mi/28Mi, 1 28Mi/28Mi, 2 28Mi/28Mi")
}
