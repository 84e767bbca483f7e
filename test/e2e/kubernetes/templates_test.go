// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

const statefulSetPolicies = deploy + "storage-statefulsets-policy"

// installPolicies installs the policies for StatefulSets until the test ends.
func (d *database) installPolicies(t *testing.T) {
	t.Helper()
	d.kubectl(t, "apply", "-k", statefulSetPolicies)
	t.Cleanup(func() { d.kubectl(t, "delete", "--ignore-not-found", "-k", statefulSetPolicies) })
}

// newClaim creates a claim by a dry run, as the StatefulSet controller does, and returns its size.
func (d *database) newClaim(name string) (string, error) {
	return d.tryWith(namedClaim(name, ""), "-n", d.namespace, "create", "--dry-run=server", "-f", "-",
		"--as=system:serviceaccount:kube-system:statefulset-controller", "-o", "jsonpath={.spec.resources.requests.storage}")
}

// set returns the manifest of the StatefulSet, with a text replaced.
func (d *database) set(t *testing.T, before, after string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/statefulset.yaml")
	must(t, err)
	documents := strings.Split(strings.ReplaceAll(string(text), "ORDER", "Parallel"), "---\n")
	return strings.Replace(documents[len(documents)-1], before, after, 1)
}

// larger returns the manifest of the StatefulSet, with another size in the template data.
func (d *database) larger(t *testing.T, size string) string {
	t.Helper()
	return d.set(t, "{name: data}\n    spec: {storageClassName: grows, volumeMode: Block, accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}",
		"{name: data}\n    spec: {storageClassName: grows, volumeMode: Block, accessModes: [ReadWriteOnce], resources: {requests: {storage: "+size+"}}}")
}

const sizeAnnotation = `{.metadata.annotations.storage\.qos\.noderesource\.dev/data} {.spec.volumeClaimTemplates[0].spec.resources.requests.storage}`

// applyWith runs "kubectl apply" with flags, and returns the output.
func (d *database) applyWith(manifest string, flags ...string) (string, error) {
	return d.tryWith(manifest, append([]string{"-n", d.namespace, "apply", "-f", "-"}, flags...)...)
}

// policyActs waits until the policy acts on a larger template.
func (d *database) policyActs(t *testing.T) {
	t.Helper()
	until(t, "the policy acts", func() (bool, string) {
		seen, err := d.applyWith(d.larger(t, "20Mi"), "--dry-run=server", "-o", "jsonpath="+sizeAnnotation)
		return err == nil && seen == "20Mi 16Mi", seen
	})
}

// templatesChange sends updates of the template as tools do.
func templatesChange(t *testing.T, d *database) {
	if output, err := d.applyWith(d.larger(t, "20Mi")); err == nil {
		t.Fatalf("without the policy, a larger template is accepted: %s", output)
	}
	d.installPolicies(t)
	d.policyActs(t)

	t.Run("volumes grow after kubectl apply of a larger template", func(t *testing.T) {
		d.applyIn(t, d.namespace, d.larger(t, "20Mi"))
		d.grown(t, "20Mi")
		d.applyIn(t, d.namespace, d.larger(t, "20Mi"))
		for what, manifest := range map[string]string{
			"a smaller template":   d.larger(t, "15Mi"),
			"another StorageClass": strings.Replace(d.larger(t, "30Mi"), "storageClassName: grows", "storageClassName: other", 1),
		} {
			if output, err := d.applyWith(manifest); err == nil || !refusesTemplates(output) {
				t.Errorf("%s: %s, want a refusal of the template", what, output)
			}
		}
	})
	t.Run("volumes grow after server-side apply, and Flux and Argo CD then see no difference", func(t *testing.T) { serverSide(t, d) })
	t.Run("volumes grow after helm upgrade", func(t *testing.T) { helmUpgrades(t, d) })
	t.Run("a new replica has a volume of the new size", func(t *testing.T) {
		d.scale(t, 4)
		if d.expanded(t, "data-db-3") {
			t.Error("the volume of the new replica was expanded, want it created with the size")
		}
		d.grown(t, "28Mi")
	})
	t.Run("a user of another namespace cannot change the volumes", func(t *testing.T) { isSafeFromTenants(t, d) })
	t.Run("the object is deleted with its StatefulSet", func(t *testing.T) {
		d.in(t, "delete", "statefulset", "db", within)
		d.in(t, "wait", "--for=delete", "ssv/db", within)
	})
	t.Run("kubectl qos resize --recreate replaces the StatefulSet, but not its pods and claims", func(t *testing.T) { recreates(t, d) })
}

// recreates resizes the volumes of a StatefulSet that already has claims, and replaces the StatefulSet.
func recreates(t *testing.T, d *database) {
	d.applyIn(t, d.namespace, d.larger(t, "16Mi"))
	d.in(t, "rollout", "status", "statefulset/db", within)
	d.applyIn(t, d.namespace, d.larger(t, "20Mi")) // the controller creates the object; the claims are larger
	d.in(t, "wait", "--for=create", "ssv/db", within)
	d.await(t, "condition=Ready")
	const identities = "jsonpath={.items[*].metadata.uid}"
	pods, claims, uid := d.in(t, "get", "pods", "-o", identities), d.in(t, "get", "pvc", "-o", identities), d.in(t, "get", "statefulset", "db", "-o", "jsonpath={.metadata.uid}")
	request := []string{"-n", d.namespace, "resize", "db", "--template=data", "--storage=32Mi", "--recreate"}
	wantLines(t, d.qos(t, append(request, "--dry-run=server")...), "statefulset/db template data: storage 32Mi for 3 replicas (server dry run)",
		"then statefulset/db is deleted without its pods and claims, and created with the template data: storage 16Mi -> 32Mi")
	if seen := d.in(t, "get", "statefulset", "db", "-o", "jsonpath={.metadata.uid}"); seen != uid {
		t.Error("the dry run replaced the StatefulSet")
	}

	wantLines(t, d.qos(t, request...), "replica db-2: ready; storage 32Mi", "statefulset/db: the volumes of all replicas are ready (3)",
		"statefulset/db replaced; its pods and claims stay")
	d.in(t, "rollout", "status", "statefulset/db", within)
	if seen := d.in(t, "get", "statefulset", "db", "-o", "jsonpath={.metadata.uid} "+sizeAnnotation); strings.HasPrefix(seen, uid) || !strings.HasSuffix(seen, "  32Mi") {
		t.Errorf("UID, annotation and template of the StatefulSet are %q; want another UID than %s, no annotation, and 32Mi", seen, uid)
	}
	if d.in(t, "get", "pods", "-o", identities) != pods || d.in(t, "get", "pvc", "-o", identities) != claims {
		t.Error("pods or claims were replaced")
	}
	d.in(t, "wait", "ssv/db", "--for=jsonpath={.metadata.ownerReferences[0].uid}="+d.in(t, "get", "statefulset", "db", "-o", "jsonpath={.metadata.uid}"), within)
	d.applyIn(t, d.namespace, d.larger(t, "32Mi")) // changes nothing
	wantLines(t, d.qos(t, "-n", d.namespace, "volumes"), "db data 32Mi - 3 AllReplicasReady")
}

// refusesTemplates reports whether an answer is the refusal of a change of the templates, by Kubernetes 1.36 or by 1.37.
func refusesTemplates(answer string) bool {
	return strings.Contains(answer, "Forbidden: updates to statefulset spec") ||
		strings.Contains(answer, "spec.volumeClaimTemplates: Invalid value: ") && strings.HasSuffix(answer, ": field is immutable")
}

// grown waits until all volumes of the template data have a size that an update of the template requests.
func (d *database) grown(t *testing.T, size string) {
	t.Helper()
	d.awaitField(t, "the object requests "+size, size, `{.spec.volumeClaimTemplates[?(@.name=="data")].storage}`, "-n", d.namespace, "ssv", "db")
	d.await(t, "jsonpath={.status.observedGeneration}="+d.in(t, "get", "ssv", "db", "-o", "jsonpath={.metadata.generation}"))
	d.await(t, "condition=Ready")
	for claim := range strings.SplitSeq(d.sizes(t, "data"), ", ") {
		if !strings.HasSuffix(claim, " "+size+"/"+size) {
			t.Errorf("claim of replica %s, want %s", claim, size)
		}
	}
	if seen := d.in(t, "get", "statefulset", "db", "-o", "jsonpath="+sizeAnnotation); seen != size+" 16Mi" {
		t.Errorf("annotation and template are %s, want %s 16Mi", seen, size)
	}
}

// serverSide applies the template as Flux and Argo CD do. Both compare the answer to a dry run with the live object.
func serverSide(t *testing.T, d *database) {
	const compared = "jsonpath={.metadata.annotations.storage\\.qos\\.noderesource\\.dev/data} {.spec}"
	flags := []string{"--server-side", "--field-manager=flux", "--force-conflicts"}
	for range 2 { // the second one changes nothing
		if output, err := d.applyWith(d.larger(t, "24Mi"), flags...); err != nil {
			t.Fatal(output)
		}
	}
	d.grown(t, "24Mi")

	live := d.in(t, "get", "statefulset", "db", "-o", compared)
	for size, same := range map[string]bool{"24Mi": true, "26Mi": false} {
		planned, err := d.applyWith(d.larger(t, size), append(flags, "--dry-run=server", "-o", compared)...)
		if err != nil || (planned == live) != same {
			t.Errorf("a dry run with %s: %v: %s\nlive: %s\nwant both the same: %v", size, err, planned, live, same)
		}
	}
	if output, err := d.tryWith(d.larger(t, "24Mi"), "-n", d.namespace, "diff", "--server-side", "--field-manager=flux", "--force-conflicts", "-f", "-"); err != nil {
		t.Errorf("kubectl diff: %v: %s", err, output)
	}
}

// helmUpgrades installs the StatefulSet as a release, and upgrades the release to a larger template.
func helmUpgrades(t *testing.T, d *database) {
	d.write(t, "db/Chart.yaml", "{apiVersion: v2, name: db, version: 0.1.0}")
	chart := strings.TrimSuffix(d.write(t, "db/templates/set.yaml", d.larger(t, "{{ .Values.size }}")), "/templates/set.yaml")
	d.helm(t, "install", "db", chart, "-n", d.namespace, "--take-ownership", "--set=size=24Mi", "--force-conflicts")
	d.helm(t, "upgrade", "db", chart, "-n", d.namespace, "--set=size=28Mi", "--force-conflicts")
	d.grown(t, "28Mi")
	d.helm(t, "upgrade", "db", chart, "-n", d.namespace, "--set=size=28Mi", "--force-conflicts")
	d.grown(t, "28Mi")
}

// objectsAreLost deletes one object after another, first the kind of the policy's parameters. A StatefulSet that requests nothing must be
// created, updated and scaled as before, and its controller must create claims.
func objectsAreLost(t *testing.T, d *database) {
	d.installPolicies(t)
	const plain = `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: plain}, spec: {replicas: 0, selector: {matchLabels: {app: plain}},
  template: {metadata: {labels: {app: plain}, annotations: {at: AT}}, spec: {containers: [{name: main, image: none}]}},
  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}}]}}`
	d.applyIn(t, d.namespace, plain)
	works := func(t *testing.T, lost string) {
		t.Helper()
		until(t, "StatefulSets are changed without "+lost, func() (bool, string) {
			for _, flags := range [][]string{{"apply"}, {"create"}} {
				manifest := strings.ReplaceAll(plain, "AT", "other-"+flags[0])
				if flags[0] == "create" {
					manifest = strings.ReplaceAll(manifest, "plain", "plain-2")
				}
				if output, err := d.tryWith(manifest, "-n", d.namespace, flags[0], "--dry-run=server", "-f", "-"); err != nil {
					return false, output
				}
			}
			if output, err := d.try("-n", d.namespace, "scale", "statefulset/plain", "--replicas=0", "--dry-run=server"); err != nil {
				return false, output
			}
			seen, err := d.newClaim("data-plain-0")
			return err == nil && seen == "16Mi", seen
		})
	}

	works(t, "nothing")
	objects := strings.Fields(d.kubectl(t, "get", "-o", "name",
		"-f", deploy+"storage-statefulsets/crd.yaml", "-f", deploy+"storage-statefulsets/confine.yaml", "-f", deploy+"storage-statefulsets/rbac.yaml", "-f", deploy+"storage-statefulsets/users.yaml",
		"-f", statefulSetPolicies+"/changed-templates.yaml", "-f", statefulSetPolicies+"/size-of-new-claims.yaml"))
	must(t, d.controller.end(syscall.SIGKILL))
	t.Cleanup(func() { d.restore(t) })
	for _, object := range objects {
		namespace := ""
		if strings.HasPrefix(object, "role") || strings.HasPrefix(object, "serviceaccount") {
			namespace = "qos-system"
		}
		d.kubectl(t, "-n", namespace, "delete", object, within)
		works(t, object)
	}
}

// restore installs and starts everything that objectsAreLost has removed.
func (d *database) restore(t *testing.T) {
	t.Helper()
	d.applyResize(t)
	d.account(t, "qos-system", "qos-storage-resize") // the controller's token was that of the deleted account
	d.controller.mustStart(t)
}
