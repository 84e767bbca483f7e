// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// koordinatorLabel is the pod label that has the pod's QoS class in Koordinator.
const koordinatorLabel = "koordinator.sh/qosClass"

// koordinatorClass returns the RDT class for a QoS class of Koordinator. It returns "" if Koordinator has no resctrl group for the
// QoS class. Koordinator puts pods of the class LSE into the group LSR (getPodResctrlGroup in its resctrl reconciler).
func koordinatorClass(qos string) string {
	switch qos {
	case "LSE", "LSR":
		return "lsr"
	case "LS", "BE":
		return strings.ToLower(qos)
	}
	return ""
}

// koordinatorPod plans an annotation for a pod with the label of Koordinator. The label stays, because Koordinator also uses it
// for CPU and memory. A pod that already has an annotation with an RDT class keeps it.
func (d *document) koordinatorPod(owner *yaml.Node, at place) {
	at.field = strings.TrimPrefix(at.field+".metadata", ".")
	metadata := valueOf(owner, "metadata")
	labels := valueOf(metadata, "labels")
	if !isMapping(labels) {
		return
	}
	label := d.entry(labels, koordinatorLabel, at.at(labels, ".labels"))
	if label.key == nil {
		return
	}

	class := koordinatorClass(label.node.Value)
	if class == "" {
		d.note("label %s: %s requests nothing, because Koordinator has no resctrl group for it", koordinatorLabel, describe(label.node))
		return
	}
	annotations := d.mapping(metadata, "annotations", at)
	if _, err := classes.ParsePairs(stringOf(annotations.value, classes.PodKey)); err != nil {
		d.fault(label.place, "cannot be added to annotation %s: %v", classes.PodKey, err)
		return
	}
	if !d.checkNames(&request{place: label.place, resource: classes.RDTResource, class: class}) {
		return
	}
	d.later(func() {
		annotations := childMapping(metadata, "annotations")
		pairs, _ := classes.ParsePairs(stringOf(annotations, classes.PodKey))
		if !slices.ContainsFunc(pairs, func(p classes.Pair) bool { return p.Resource == classes.RDTResource }) {
			addRequest(annotations, annotation{classes.PodKey, classes.RDTResource, class})
		}
	})
}
