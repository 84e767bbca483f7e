// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"os/exec"
	"strings"
	"testing"
)

// gitops runs the code of Argo CD or Flux on a manifest, as an administrator, and returns what it prints.
func (d *database) gitops(t *testing.T, program, manifest string, args ...string) string {
	t.Helper()
	command := exec.Command(d.program(program), append([]string{"-kubeconfig", d.cluster.kubeconfig("admin"), "-n", d.namespace}, args...)...)
	command.Stdin = strings.NewReader(manifest)
	log := strings.Builder{}
	command.Stderr = &log
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", program, strings.Join(args, " "), err, output, &log)
	}
	return string(output)
}

// shows checks the first line that Argo CD or Flux prints.
func (d *database) shows(t *testing.T, want, program, manifest string, args ...string) {
	t.Helper()
	output := d.gitops(t, program, manifest, args...)
	if line, _, _ := strings.Cut(output, "\n"); line != want {
		t.Errorf("%s %s prints %s\nwant %s", program, strings.Join(args, " "), output, want)
	}
}

// The statuses of the StatefulSet in Argo CD.
const (
	synced    = "StatefulSet/db Synced Healthy"
	outOfSync = "StatefulSet/db OutOfSync Healthy"
)

// gitOpsChanges lets the code of Argo CD and of Flux synchronize larger templates. The remedies are those of docs/storage/kep-0661.md.
func gitOpsChanges(t *testing.T, d *database) {
	d.installPolicies(t)
	d.policyActs(t)

	t.Run("Argo CD syncs a larger template", func(t *testing.T) { argoSyncs(t, d, "20Mi", "22Mi") })
	t.Run("Argo CD syncs a larger template by server-side apply", func(t *testing.T) { argoSyncs(t, d, "24Mi", "26Mi", "-server-side-apply") })
	t.Run("Flux applies a larger template", func(t *testing.T) { fluxApplies(t, d) })
	t.Run("the template is the stored one after kubectl qos resize --recreate", func(t *testing.T) {
		d.qos(t, "-n", d.namespace, "resize", "db", "--template=data", "--storage=32Mi", "--recreate")
		d.in(t, "rollout", "status", "statefulset/db", within)
		d.shows(t, synced, "argocd", d.withKinds(t, "32Mi"), "diff")
		d.shows(t, synced, "argocd", d.withKinds(t, "32Mi"), "-server-side-apply", "diff")
		d.shows(t, "StatefulSet/"+d.namespace+"/db unchanged", "flux", d.larger(t, "32Mi"), "diff")
	})
}

// withKinds is like larger, with the kinds of the claim templates. With server-side apply, Argo CD needs them even without the policy.
func (d *database) withKinds(t *testing.T, size string) string {
	t.Helper()
	return strings.ReplaceAll(d.larger(t, size), "- metadata: {name: ", "- apiVersion: v1\n    kind: PersistentVolumeClaim\n    metadata: {name: ")
}

// argoSyncs synchronizes the template with a larger size, and compares it with this size and with the next one. The stored template keeps its
// size, because the policy writes the larger one as an annotation. So only a server-side comparison that includes the policy shows
// no difference for this size and a difference for the next one.
func argoSyncs(t *testing.T, d *database, size, next string, options ...string) {
	argo := func(want, size string, args ...string) {
		t.Helper()
		d.shows(t, want, "argocd", d.withKinds(t, size), append(options, args...)...)
	}
	sync := func(size string) {
		t.Helper()
		d.gitops(t, "argocd", d.withKinds(t, size), append(options, "sync")...)
	}
	sync("16Mi") // the stored size
	argo(synced, "16Mi", "diff")
	argo(outOfSync, size, "diff")
	sync(size)
	d.grown(t, size)

	argo(outOfSync, size, "diff")
	argo(synced, size, "-server-side-diff", "-include-mutation-webhook", "diff")
	argo(outOfSync, next, "-server-side-diff", "-include-mutation-webhook", "diff")
	// These options show no difference for any size.
	for _, blind := range []string{"-server-side-diff", "-ignore=/spec/volumeClaimTemplates"} {
		argo(synced, size, blind, "diff")
		argo(synced, next, blind, "diff")
	}

	sync(size) // changes nothing, as with selfHeal
	d.grown(t, size)
}

// fluxApplies applies the template with a larger size. Flux then waits for the StatefulSet and for its volumes.
func fluxApplies(t *testing.T, d *database) {
	name := "StatefulSet/" + d.namespace + "/db "
	flux := func(want, size, command string) {
		t.Helper()
		d.shows(t, name+want, "flux", d.larger(t, size), command)
	}
	flux("configured", "28Mi", "apply")
	d.grown(t, "28Mi")
	flux("unchanged", "28Mi", "diff")
	flux("unchanged", "28Mi", "apply")
	flux("configured", "30Mi", "diff")

	const object = "{apiVersion: qos.noderesource.dev/v1alpha1, kind: StatefulSetVolumes, metadata: {name: db}}"
	d.gitops(t, "flux", d.larger(t, "28Mi")+"\n---\n"+object, "wait")
}
