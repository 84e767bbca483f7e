// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func storageClass(name string, expands bool, parameters map[string]string) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "d", AllowVolumeExpansion: &expands, Parameters: parameters,
	}
}

func csiVolume(name, class string, secret *corev1.SecretReference) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	v.Spec.StorageClassName = class
	v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d", NodeExpandSecretRef: secret}
	v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "db", Name: "data"}
	return v
}

// TestVolumesCheckNamesVolumesWithoutTheSecretForTheirExpansion: only the volume "late" has no secret although its StorageClass has
// one for the expansion on the node.
func TestVolumesCheckNamesVolumesWithoutTheSecretForTheirExpansion(t *testing.T) {
	secret := map[string]string{expandSecret: "${pvc.name}"}
	r := newRig(t)
	other := csiVolume("other-driver", "secret", nil)
	other.Spec.CSI.Driver = "other"
	local := csiVolume("local", "secret", nil)
	local.Spec.CSI = nil
	r.put(t,
		storageClass("secret", true, secret), storageClass("fixed", false, secret), storageClass("open", true, nil),
		csiVolume("late", "secret", nil),
		csiVolume("good", "secret", &corev1.SecretReference{Name: "s", Namespace: "db"}),
		csiVolume("never", "fixed", nil), // its StorageClass allows no expansion
		csiVolume("needs-none", "open", nil),
		csiVolume("unknown", "deleted", nil), // its StorageClass does not exist
		other, local,
	)

	got := r.run(t, "volumes", "--check")
	rows := strings.Split(strings.TrimSpace(bare(got.Out)), "\n")
	if len(rows) != 1 || !strings.HasPrefix(rows[0], "late | db/data | secret | NoNodeExpandSecret: ") {
		t.Errorf("rows:\n%s", got.Out)
	}
	if got.Code != 1 || !strings.Contains(got.Errors, "volumes that can never expand on their node: 1") {
		t.Errorf("exit code %d, errors %q", got.Code, got.Errors)
	}
}

func TestVolumesCheckPrintsNothingWithoutProblems(t *testing.T) {
	if got := newRig(t).run(t, "volumes", "--check"); got.Code != 0 || got.Out != "" {
		t.Errorf("exit code %d, output %q", got.Code, got.Out)
	}
}

func TestVolumesCheckRefusesNamesOfPods(t *testing.T) {
	if got := newRig(t).run(t, "volumes", "--check", "db"); got.Code != 2 {
		t.Errorf("exit code %d, errors %q", got.Code, got.Errors)
	}
}
