// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
)

// defaultMark is behind the name of a class that is given to what asks for nothing.
const defaultMark = "*"

func nodeHeader(wide bool) []string {
	header := []string{"NODE", "READY", "RESOURCE", "CLASSES (IN USE/CAPACITY)"}
	if wide {
		header = []string{"NODE", "READY", "RESOURCE", "SCOPE", "MUTABLE", "RUNTIME", "PLUGIN", "CONFIG", header[3]}
	}
	return header
}

// nodeRows has a row for each node and resource, also for those that the node lacks, and one for a node that has none.
func nodeRows(nodes []*nodeqosv1alpha1.NodeQOSResources, wide bool) table {
	var rows table
	for _, node := range nodes {
		before := len(rows)
		add := func(resource, scope, mutable, what string) {
			row := []string{node.Name, readyText(node), resource, what}
			if wide {
				row = []string{node.Name, readyText(node), resource, scope, mutable, orNothing(runtimeText(node.Status.Runtime)),
					orNothing(node.Status.Plugin.Version), orNothing(short(node.Status.Config.Hash)), what}
			}
			rows = append(rows, row)
		}
		for _, r := range scopedResources(node) {
			add(r.Name, string(r.scope), yesNo(r.Mutable), strings.Join(classTexts(r.QOSResourceInfo), "  "))
		}
		for _, u := range node.Status.UnavailableResources {
			add(u.Name, orNothing(string(u.Scope)), nothing, "unavailable: "+u.Reason)
		}
		if len(rows) == before {
			add(nothing, nothing, nothing, nothing)
		}
	}
	return rows
}

// scopedResource is a resource with its scope.
type scopedResource struct {
	*nodeqosv1alpha1.QOSResourceInfo
	scope nodeqosv1alpha1.Scope
}

// scopedResources are those that a node has, of containers first.
func scopedResources(node *nodeqosv1alpha1.NodeQOSResources) []scopedResource {
	var all []scopedResource
	status := &node.Status.QOSResources
	for i := range status.ContainerQOSResources {
		all = append(all, scopedResource{&status.ContainerQOSResources[i], nodeqosv1alpha1.ScopeContainer})
	}
	for i := range status.PodQOSResources {
		all = append(all, scopedResource{&status.PodQOSResources[i], nodeqosv1alpha1.ScopePod})
	}
	return all
}

// readyText is whether the plugin of a node works, and which of the other conditions is not as it should be.
func readyText(node *nodeqosv1alpha1.NodeQOSResources) string {
	ready := readyCondition(node)
	if ready == nil {
		return "Unknown"
	}
	if ready.Status != metav1.ConditionTrue {
		return string(ready.Status) + " (" + ready.Reason + ")"
	}
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Status != metav1.ConditionTrue {
			return string(ready.Status) + " (" + c.Type + " " + string(c.Status) + ")"
		}
	}
	return string(ready.Status)
}

// readyCondition says whether the plugin of a node works; nil when nobody has said so yet.
func readyCondition(node *nodeqosv1alpha1.NodeQOSResources) *metav1.Condition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == nodeqosv1alpha1.ConditionPluginReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// classTexts has each class as the KEP's table has it, with what is in use: "gold (1/2)".
func classTexts(r *nodeqosv1alpha1.QOSResourceInfo) []string {
	texts := make([]string, 0, len(r.Classes))
	for i := range r.Classes {
		class := &r.Classes[i]
		name := class.Name
		if name == r.DefaultClass {
			name += defaultMark
		}
		inside := []string{strconv.FormatInt(class.InUse, 10) + "/" + capacityText(class)}
		if class.Draining {
			inside = append(inside, "draining")
		}
		if class.Degraded != "" {
			inside = append(inside, "degraded")
		}
		texts = append(texts, name+" ("+strings.Join(inside, ", ")+")")
	}
	return texts
}

func capacityText(class *nodeqosv1alpha1.QOSResourceClassInfo) string {
	switch {
	case class.Draining:
		return "0"
	case class.Capacity == 0:
		return unlimited
	}
	return strconv.FormatInt(class.Capacity, 10)
}

func runtimeText(r nodeqosv1alpha1.RuntimeStatus) string {
	return strings.TrimSpace(r.Name + " " + r.Version)
}

// short is the beginning of a hash, which is enough for people to tell two apart.
func short(hash string) string { return hash[:min(12, len(hash))] }
