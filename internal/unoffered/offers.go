// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package unoffered

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/podevents"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

// maxNames is how many of the offered classes a message lists.
const maxNames = 10

// request is an extended resource in the limits of a container.
type request struct{ container, name string }

// requestsOf returns the extended resources that a pod waits for, or nil while the scheduler has not found that no node fits.
func requestsOf(pod *corev1.Pod) (requests []request) {
	unschedulable := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
	if !unschedulable || pod.DeletionTimestamp != nil {
		return nil
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			for name := range c.Resources.Limits {
				if _, base, _ := strings.Cut(string(name), "/"); strings.Contains(base, ".") {
					requests = append(requests, request{container: c.Name, name: string(name)})
				}
			}
		}
	}
	return requests
}

// offers are the classes that any node offers. The zero value has none.
type offers struct {
	names []string // extended resources
	// prefixes are what the extended resources of classes begin with.
	prefixes []string
}

// add adds the classes of a node. A draining class is not offered. A class of a node that no longer reports is.
func (o *offers) add(node *nodeqosv1alpha1.NodeQOSResources) {
	r := node.Status.QOSResources
	for _, resource := range slices.Concat(r.ContainerQOSResources, r.PodQOSResources, r.VolumeQOSResources) {
		for i := range resource.Classes {
			class := &resource.Classes[i]
			if class.ExtendedResource == "" || class.Draining || slices.Contains(o.names, class.ExtendedResource) {
				continue
			}
			o.names = append(o.names, class.ExtendedResource)
			o.prefixes = append(o.prefixes, strings.TrimSuffix(class.ExtendedResource, class.Name))
		}
	}
}

// records returns an event for each request of a class that no node offers.
func (o *offers) records(requests []request) (records []podevents.Record) {
	now := time.Now()
	for _, r := range requests {
		ours := strings.HasPrefix(r.name, classes.Domain+"/") ||
			slices.ContainsFunc(o.prefixes, func(prefix string) bool { return strings.HasPrefix(r.name, prefix) })
		if !ours || slices.Contains(o.names, r.name) {
			continue
		}
		records = append(records, podevents.Record{
			Reason: podevents.ClassNotOffered, Warning: true, Container: r.container, Series: r.name, Message: o.message(r),
			Count: 1, First: now, Last: now,
		})
	}
	return records
}

func (o *offers) message(r request) string {
	names := slices.Sorted(slices.Values(o.names))
	offered := "nodes offer " + printable.List(names, maxNames)
	if len(names) == 0 {
		offered = "no node offers any class"
	}
	return "no node offers " + r.name + classes.Suggestion(r.name, names) + ", so the pod waits; " + offered
}

func convert(from *unstructured.Unstructured, to *nodeqosv1alpha1.NodeQOSResources) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(from.Object, to)
}
