// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// secretsPage has the examples of TestSecretsForExpansion.
const secretsPage = "../../../docs/storage/kep-3107.md"

// blocksOf returns the code blocks of a page that have a language, without their indentation.
func blocksOf(t *testing.T, page, language string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	must(t, err)
	for _, found := range regexp.MustCompile("(?ms)^( *)```"+language+"\n(.*?)^ *```$").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, strings.TrimPrefix(strings.ReplaceAll("\n"+found[2], "\n"+found[1], "\n"), "\n"))
	}
	return blocks
}

// script runs a code block of a page as an administrator does, in a new directory.
func (n *node) script(t *testing.T, block string) {
	t.Helper()
	command := n.kubectlCommand("")
	command.Path, command.Args = "/bin/bash", []string{"bash", "-euc", block}
	command.Env, command.Dir = append(command.Env, "PATH="+n.bin+":"+os.Getenv("PATH")), t.TempDir()
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s\n%v\n%s", block, err, output)
	}
}

// encrypted is a volume whose CSI driver expands it on the node only with the right key.
type encrypted struct {
	*node
	volumes string
}

// TestSecretsForExpansion expands volumes whose driver needs a secret on the node (KEP-3107). The plugin does not run.
func TestSecretsForExpansion(t *testing.T) {
	n := ready(t)
	e := &encrypted{n, filepath.Join(n.dir, "csi-volumes")}
	socket := n.serveVolumes(t, n.machine, e.volumes)
	n.startSidecar(t, "csi-provisioner", socket)
	n.startSidecar(t, "csi-resizer", socket)
	n.apply(t, `{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: `+csiDriver+`}, spec: {attachRequired: false, podInfoOnMount: false}}`)

	t.Run("the secret of the StorageClass reaches the driver", e.secretReachesDriver)
	t.Run("a volume without the secret is named, and repaired without touching its data", e.volumeIsRepaired)
}

// create applies the example of the page, which has a StorageClass, a Secret and a claim, and starts a pod with the claim. From now
// on, the driver needs the key.
func (e *encrypted) create(t *testing.T, manifests string) {
	t.Helper()
	e.apply(t, manifests)
	t.Cleanup(func() {
		e.kubectl(t, "delete", "pod/encrypted", "pvc/data", "secret/data-key", "storageclass/encrypted", "--ignore-not-found", within)
		e.noVolumes(t)
	})
	e.startPod(t)
	must(t, os.WriteFile(filepath.Join(e.volumes, "key."+e.volume(t)), []byte("correct horse"), 0o600))
}

func (e *encrypted) startPod(t *testing.T) {
	t.Helper()
	e.apply(t, `{apiVersion: v1, kind: Pod, metadata: {name: encrypted}, spec: {terminationGracePeriodSeconds: 1,
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}],
  containers: [{name: main, image: "localhost/workload:1", imagePullPolicy: Never, volumeDevices: [{name: data, devicePath: /dev/data}]}]}}`)
	e.running(t, "encrypted")
}

// volume returns the name of the claim's PersistentVolume, which is also that of the volume's file.
func (e *encrypted) volume(t *testing.T) string {
	t.Helper()
	return e.kubectl(t, "get", "pvc", "data", "-o", "jsonpath={.spec.volumeName}")
}

// secret returns the names of the secret in the PersistentVolume.
func (e *encrypted) secret(t *testing.T) string {
	t.Helper()
	return e.kubectl(t, "get", "pv", e.volume(t), "-o", "jsonpath={.spec.csi.nodeExpandSecretRef.namespace}/{.spec.csi.nodeExpandSecretRef.name}")
}

// fails waits until the pod has an event about its expansion that contains a text.
func (e *encrypted) fails(t *testing.T, text string) {
	t.Helper()
	e.awaitInField(t, "the pod has an event VolumeResizeFailed with "+text, text,
		"{.items[*].message}", "events", "--field-selector=reason=VolumeResizeFailed")
}

// secretReachesDriver runs the example of the page. Then the secret is deleted, has a wrong key, and is right again.
func (e *encrypted) secretReachesDriver(t *testing.T) {
	e.create(t, blocksOf(t, secretsPage, "yaml")[0])
	if got, want := e.secret(t), "default/data-key"; got != want {
		t.Errorf("the PersistentVolume names the secret %s, want %s", got, want)
	}
	e.script(t, blocksOf(t, secretsPage, "sh")[0])

	// Only the node of the pod may read the secret, and no other secret.
	for what, want := range map[string]string{"node-1 secret/data-key": "yes", "node-2 secret/data-key": "no", "node-1 secret/other": "no"} {
		node, secret, _ := strings.Cut(what, " ")
		if got, _ := e.try("auth", "can-i", "get", secret, "--as=system:node:"+node, "--as-group=system:nodes"); !strings.HasPrefix(got, want) {
			t.Errorf("may %s: %s, want %s", what, got, want)
		}
	}

	e.kubectl(t, "delete", "secret", "data-key")
	e.expand(t, "encrypted", "48Mi", "data")
	e.fails(t, `secrets "data-key" not found`)
	e.apply(t, `{apiVersion: v1, kind: Secret, metadata: {name: data-key}, stringData: {key: wrong}}`)
	e.fails(t, "the key is wrong")
	e.apply(t, `{apiVersion: v1, kind: Secret, metadata: {name: data-key}, stringData: {key: correct horse}}`)
	e.expanded(t, "48Mi", "data")
}

// volumeIsRepaired gives the parameters to the StorageClass after the volume was created.
func (e *encrypted) volumeIsRepaired(t *testing.T) {
	example := blocksOf(t, secretsPage, "yaml")[0]
	late := regexp.MustCompile(`(?m)^parameters:\n(  .*\n)+`).ReplaceAllString(example, "")
	if late == example {
		t.Fatal("the example has no parameters")
	}
	e.create(t, late)
	e.kubectl(t, "delete", "storageclass", "encrypted")
	e.apply(t, example)
	file := filepath.Join(e.volumes, e.volume(t))
	data, err := os.OpenFile(file, os.O_WRONLY, 0)
	must(t, err)
	_, err = data.WriteString("precious")
	must(t, errors.Join(err, data.Close()))

	e.expand(t, "encrypted", "32Mi", "data")
	e.fails(t, "the request has no key")
	wantRefusal(t, "the addition of a secret", "spec.persistentvolumesource is immutable after creation")(
		e.try("patch", "pv", e.volume(t), "-p", `{"spec":{"csi":{"nodeExpandSecretRef":{"namespace":"default","name":"data-key"}}}}`))
	output, err := e.tryQOS("", "volumes", "--check")
	if err == nil {
		t.Error("the exit code of kubectl qos volumes --check is 0")
	}
	wantLines(t, output, e.volume(t)+" default/data encrypted NoNodeExpandSecret: ")

	e.kubectl(t, "delete", "pod", "encrypted", within)
	e.script(t, blocksOf(t, secretsPage, "sh")[1])
	if got, want := e.secret(t), "default/data-key"; got != want {
		t.Errorf("the PersistentVolume names the secret %s, want %s", got, want)
	}
	if output, err := e.tryQOS("", "volumes", "--check"); err != nil {
		t.Errorf("kubectl qos volumes --check: %v: %s", err, output)
	}
	e.startPod(t)
	e.expanded(t, "32Mi", "data")
	if data, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(data), "precious") {
		t.Errorf("the volume has lost its data: %v", err)
	}
	// The script has changed it to Retain for a while.
	if got := e.kubectl(t, "get", "pv", e.volume(t), "-o", "jsonpath={.spec.persistentVolumeReclaimPolicy}"); got != "Delete" {
		t.Errorf("the reclaim policy is %s, want Delete", got)
	}
}
