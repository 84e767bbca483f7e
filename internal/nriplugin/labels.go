// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin

import (
	"maps"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"k8s.io/apimachinery/pkg/api/validate/content"
)

const (
	// maxLabels is the maximum size, in bytes, of the labels of a pod that the plugin keeps. Kubernetes allows more than 1 MiB of labels.
	maxLabels = 8 << 10
	// maxLabelKey is the maximum size of the key of a label: a prefix, a slash and a name.
	maxLabelKey = content.DNS1123SubdomainMaxLength + 1 + maxLabelPart
	// maxLabelPart is the maximum size of the name in a key, and of a value.
	maxLabelPart = 63
)

// labelsOf returns those labels of a pod that a rule can name. It leaves out the labels that the kubelet adds for itself, and those that
// Kubernetes does not allow. If the labels together exceed maxLabels, it returns the first ones in the order of their keys.
func labelsOf(p *api.PodSandbox) map[string]string {
	labels, size := map[string]string{}, 0
	for _, key := range slices.Sorted(maps.Keys(p.GetLabels())) {
		value := p.GetLabels()[key]
		if strings.HasPrefix(key, "io.kubernetes.pod.") || len(key) > maxLabelKey || len(value) > maxLabelPart {
			continue
		}
		if size += len(key) + len(value); size > maxLabels {
			break
		}
		labels[key] = value
	}
	return labels
}
