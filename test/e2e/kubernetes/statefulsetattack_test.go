// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"strings"
	"testing"
)

// editor creates a namespace and a user with the same name who may edit it. It returns the flag of kubectl for the user.
func (n *node) editor(t *testing.T, name string) string {
	t.Helper()
	n.namespace(t, name, fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: %s},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[1]s}]}`, name))
	return "--as=" + name
}

// intruder is a user who may edit one namespace, and attacks the volumes of the database `victim` in another one.
type intruder struct {
	*database        // the user's own database, with the name of `victim`
	as        string // the flag of kubectl
	victim    *database
}

// isSafeFromTenants attacks the volumes of the StatefulSet as a user of another namespace, with all policies of the project installed.
func isSafeFromTenants(t *testing.T, d *database) {
	own := *d
	own.namespace = "trudy"
	i := &intruder{database: &own, as: d.editor(t, own.namespace), victim: d}
	before := d.everything(t)

	i.mayNotWriteThere(t)
	i.takesTheName(t)
	i.sendsBombs(t)

	if after := d.everything(t); after != before {
		t.Errorf("the user of another namespace has changed the database:\n%s\nbefore:\n%s", after, before)
	}
	if size, err := d.newClaim("data-db-9"); err != nil || size != "28Mi" {
		t.Errorf("a new claim gets the size %s (%v), want 28Mi", size, err)
	}
	d.in(t, "annotate", "--overwrite", "statefulset", "db", "storage.qos.noderesource.dev/data=30Mi") // the owner is still served
	d.grown(t, "30Mi")
}

// everything returns the specs of the StatefulSet, its object, its claims and their volumes.
func (d *database) everything(t *testing.T) string {
	t.Helper()
	const specs = `{range .items[*]}{.kind} {.metadata.name} {.metadata.uid} {.metadata.annotations} {.spec}{"\n"}{end}`
	return d.in(t, "get", "statefulset,ssv,pvc", "-o", "jsonpath="+specs) +
		d.kubectl(t, "get", "pv", "-o", `jsonpath={range .items[?(@.spec.claimRef.namespace=="`+d.namespace+`")]}{.metadata.name} {.spec}{"\n"}{end}`)
}

// refused sends a request as the user. The API server must refuse it with a text.
func (i *intruder) refused(t *testing.T, want, manifest string, args ...string) {
	t.Helper()
	output, err := i.tryWith(manifest, append(args, i.as)...)
	if err == nil || !strings.Contains(output, want) {
		t.Errorf("%s %s: %s, want a refusal with %q", strings.Join(args, " "), manifest, output, want)
	}
}

// volumesObject returns a StatefulSetVolumes object with templates of the form {name: …, storage: …}.
func volumesObject(name, templates string) string {
	return fmt.Sprintf(`{apiVersion: qos.noderesource.dev/v1alpha1, kind: StatefulSetVolumes, metadata: {name: %q}, spec: {volumeClaimTemplates: [%s]}}`, name, templates)
}

// mayNotWriteThere tries to write the objects that decide about the volumes of the other namespace.
func (i *intruder) mayNotWriteThere(t *testing.T) {
	t.Helper()
	there := i.victim.namespace
	for _, name := range []string{"db", "another"} {
		i.refused(t, "forbidden", volumesObject(name, "{name: data, storage: 1Gi}"), "-n", there, "create", "-f", "-")
	}
	for _, attack := range []string{
		"-n " + there + ` patch ssv db --type=merge -p {"spec":{"volumeClaimTemplates":[{"name":"data","storage":"1Gi"}]}}`,
		"-n " + there + " delete ssv db",
		"-n " + there + " annotate statefulset db storage.qos.noderesource.dev/data=1Gi",
		"-n " + there + ` patch pvc data-db-0 -p {"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`,
		"-n qos-system create token qos-storage-resize",
		"-n qos-system delete lease qos-storage-resize",
		"delete crd statefulsetvolumes.qos.noderesource.dev",
		"delete validatingadmissionpolicy qos-confine-storage-resize",
		"delete mutatingadmissionpolicy qos-changed-templates qos-size-of-new-claims",
		"-n " + there + " get pods --as=system:serviceaccount:qos-system:qos-storage-resize --as-uid=1",
	} {
		i.refused(t, "orbidden", "", strings.Fields(attack)...)
	}
}

// takesTheName creates a StatefulSet, an object and claims with the same names as those of the database. One claim
// names the volume of the database, and the other one names the StatefulSet of the database as its owner.
func (i *intruder) takesTheName(t *testing.T) {
	t.Helper()
	volume := i.victim.in(t, "get", "pvc", "data-db-0", "-o", "jsonpath={.spec.volumeName}")
	uid := i.victim.in(t, "get", "statefulset", "db", "-o", "jsonpath={.metadata.uid}")
	const claim = `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s, labels: {app: db}, %s},
  spec: {storageClassName: grows, volumeMode: Block, %s accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}}`
	manifests := strings.Join([]string{
		fmt.Sprintf(claim, "data-db-0", `annotations: {pv.kubernetes.io/bind-completed: "yes"}`, "volumeName: "+volume+","),
		fmt.Sprintf(claim, "data-db-1", `ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: db, uid: `+uid+`, controller: true}]`, ""),
		volumesObject("db", "{name: data, storage: 1Gi}"),
		volumesObject(i.victim.namespace, "{name: data, storage: 1Gi}"), // of a StatefulSet that does not exist
	}, "\n---\n")
	if output, err := i.tryWith(manifests, "-n", i.namespace, "create", "-f", "-", i.as); err != nil {
		t.Fatalf("the user cannot create his objects: %s", output)
	}
	i.stalls(t, "db", "NoStatefulSet")
	i.stalls(t, i.victim.namespace, "NoStatefulSet")

	if output, err := i.tryWith(i.set(t, "replicas: 3", "replicas: 1"), "-n", i.namespace, "create", "-f", "-", i.as); err != nil {
		t.Fatalf("the user cannot create his StatefulSet: %s", output)
	}
	i.says(t, "claim data-db-0: the claim ") // it has no volume, so it is not changed
	i.refused(t, "orbidden", "", "-n", i.namespace, "patch", "pvc", "data-db-0", "--subresource=status", "--type=merge", `-p={"status":{"phase":"Bound"}}`)
	i.refused(t, "orbidden", "", "-n", i.namespace, "patch", "ssv", "db", "--subresource=status", "--type=merge", `-p={"status":{"observedGeneration":9}}`)
}

// stalls waits until an object of the user has a reason.
func (i *intruder) stalls(t *testing.T, name, reason string) {
	t.Helper()
	i.in(t, "wait", "ssv/"+name, `--for=jsonpath={.status.conditions[?(@.type=="Ready")].reason}=`+reason, within)
}

// sendsBombs requests sizes that take hours to compare, sizes that are too large, and claims by paths. It first sends
// objects, then the annotations that the policy writes.
func (i *intruder) sendsBombs(t *testing.T) {
	t.Helper()
	many := ""
	for n := range 33 {
		many += fmt.Sprintf("{name: data-%d, storage: 1Gi}, ", n)
	}
	for want, object := range map[string]string{
		"should match":                   volumesObject("bomb", `{name: data, storage: "1e1000000000"}`),
		"must have at most 32 items":     volumesObject("bomb", strings.TrimSuffix(many, ", ")),
		"Too long":                       volumesObject("bomb", "{name: data, volumeAttributesClassName: "+strings.Repeat("a", 254)+"}"),
		"a lowercase RFC 1123 subdomain": volumesObject("bomb/../db", "{name: data, storage: 1Gi}"),
		"Duplicate value":                volumesObject("bomb", "{name: data, storage: 1Gi}, {name: data, storage: 2Gi}"),
	} {
		i.refused(t, want, object, "-n", i.namespace, "create", "--validate=false", "-f", "-")
	}

	path := "../../" + i.victim.namespace + "/persistentvolumeclaims/data"
	i.request(t, "{name: "+path+", storage: 1Gi}")
	i.stalls(t, "db", "NoTemplate")
	for _, annotation := range []string{"data=1e1000000000", "data=9999999999999999999", "data=" + strings.Repeat("9", 100_000)} {
		i.in(t, "annotate", "--overwrite", "statefulset", "db", "storage.qos.noderesource.dev/"+annotation, i.as)
		i.reported(t, "FailedToPatchPVC", "the annotations of the StatefulSet have no effect: ")
		i.in(t, "delete", "events", "--all")
	}
	if got := i.in(t, "get", "ssv", "db", "-o", "jsonpath={.spec.volumeClaimTemplates[*].name}"); got != path {
		t.Errorf("the object requests %s, want %s", got, path)
	}
}
