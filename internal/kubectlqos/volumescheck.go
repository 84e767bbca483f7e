// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// expandSecret is the parameter of a StorageClass that names the secret for the expansion on the node. The external-provisioner reads it
// when it creates a volume.
const expandSecret = "csi.storage.k8s.io/node-expand-secret-name" //nolint:gosec // the name of a parameter is no credential

// volumeProblem is a PersistentVolume that can never expand on its node.
type volumeProblem struct {
	Volume       string `json:"volume"`
	Claim        string `json:"claim"`
	StorageClass string `json:"storageClass"`
	Reason       string `json:"reason"`
	Message      string `json:"message"`
}

// checkVolumes prints the PersistentVolumes that can never expand on their node. The error has their number.
func (o *podsCommand) checkVolumes(ctx context.Context) error {
	api, err := o.connect()
	if err != nil {
		return err
	}
	storageClasses, err := api.core.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return explain(err)
	}
	volumes, err := api.core.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return explain(err)
	}

	problems := volumesWithoutSecret(volumes.Items, storageClasses.Items)
	if err := o.printVolumeProblems(problems); err != nil || len(problems) == 0 {
		return err
	}
	return fmt.Errorf("volumes that can never expand on their node: %d; docs/storage/kep-3107.md describes the repair", len(problems))
}

func (o *podsCommand) printVolumeProblems(problems []volumeProblem) error {
	if o.documents != nil {
		return printList(&o.output, o.streams.Out, problems)
	}
	if len(problems) == 0 {
		fmt.Fprintln(o.streams.ErrOut, "No problems of PersistentVolumes found.")
		return nil
	}

	var lines [][]string
	for _, p := range problems {
		lines = append(lines, []string{p.Volume, orNothing(p.Claim), p.StorageClass, p.Reason + ": " + p.Message})
	}
	text, err := newTablePrinter(o.wide(), "VOLUME", "CLAIM", "STORAGECLASS", "PROBLEM").format(lines)
	fmt.Fprint(o.streams.Out, text)
	return err
}

// volumesWithoutSecret returns the CSI volumes that name no secret for the expansion on the node, although their StorageClass names one
// and allows expansion. The API server refuses to add the secret to an existing PersistentVolume.
func volumesWithoutSecret(volumes []corev1.PersistentVolume, storageClasses []storagev1.StorageClass) (problems []volumeProblem) {
	for i := range volumes {
		v := &volumes[i]
		if v.Spec.CSI == nil || v.Spec.CSI.NodeExpandSecretRef != nil {
			continue
		}
		class := slices.IndexFunc(storageClasses, func(class storagev1.StorageClass) bool {
			return class.Name == v.Spec.StorageClassName && class.Provisioner == v.Spec.CSI.Driver && class.Parameters[expandSecret] != "" &&
				class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion
		})
		if class < 0 {
			continue
		}
		claim := ""
		if ref := v.Spec.ClaimRef; ref != nil {
			claim = ref.Namespace + "/" + ref.Name
		}
		problems = append(problems, volumeProblem{
			Volume: v.Name, Claim: claim, StorageClass: v.Spec.StorageClassName, Reason: "NoNodeExpandSecret",
			Message: "the volume was created before its StorageClass named a secret, so the driver gets none when it expands the volume; " +
				"create the PersistentVolume again with nodeExpandSecretRef",
		})
	}
	slices.SortFunc(problems, func(a, b volumeProblem) int { return strings.Compare(a.Volume, b.Volume) })
	return problems
}
