// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
)

const defaultMark = "*"

// nodeRows returns a row for each node and resource, including unavailable resources. A node without resources gets one row.
func nodeRows(nodes []nodeqosv1alpha1.NodeQOSResources, now time.Time) [][]string {
	var rows [][]string
	for i := range nodes {
		node, before := &nodes[i], len(rows)
		add := func(resource, scope, mutable, classes string) {
			rows = append(rows, []string{
				node.Name, readyText(node, now), resource, scope, mutable, orNothing(runtimeText(node.Status.Runtime)),
				orNothing(node.Status.Plugin.Version), orNothing(short(node.Status.Config.Hash)), classes,
			})
		}
		for scope, r := range node.Status.QOSResources.All() {
			add(r.Name, string(scope), yesNo(r.Mutable), strings.Join(classTexts(r), "  "))
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

// readyText returns the status of the condition PluginReady, if necessary with a detail in parentheses: the age of an
// expired report, the reason why the plugin is not ready, or another condition that is not True.
func readyText(node *nodeqosv1alpha1.NodeQOSResources, now time.Time) string {
	ready := readyCondition(node)
	switch {
	case ready == nil:
		return "Unknown"
	case node.Status.Expired(now):
		return "Unknown (last report " + lastReport(node, now) + ")"
	case ready.Status != metav1.ConditionTrue:
		return string(ready.Status) + " (" + ready.Reason + ")"
	}

	for _, c := range node.Status.Conditions {
		if c.Status != metav1.ConditionTrue {
			return string(ready.Status) + " (" + c.Type + " " + string(c.Status) + ")"
		}
	}
	return string(ready.Status)
}

// readyCondition returns the condition PluginReady of a node. It returns nil if the node does not have this condition yet.
func readyCondition(node *nodeqosv1alpha1.NodeQOSResources) *metav1.Condition {
	return meta.FindStatusCondition(node.Status.Conditions, nodeqosv1alpha1.ConditionPluginReady)
}

// current reports whether the plugin of a node is ready and the node's status has not expired.
func current(node *nodeqosv1alpha1.NodeQOSResources, now time.Time) bool {
	ready := readyCondition(node)
	return ready != nil && ready.Status == metav1.ConditionTrue && !node.Status.Expired(now)
}

// lastReport returns how long ago a node last reported, rounded down. An exact duration would differ every minute, and
// a watch would print the node every minute.
func lastReport(node *nodeqosv1alpha1.NodeQOSResources, now time.Time) string {
	age := now.Sub(node.Status.LastHeartbeatTime.Time)
	for _, unit := range []time.Duration{24 * time.Hour, time.Hour, 10 * time.Minute} {
		if age >= unit {
			age = age.Truncate(unit)
		}
	}
	return duration.HumanDuration(age) + " ago"
}

// notCurrent returns the reason why the state of a node is not current, and a sentence about it. Both are "" if the
// state is current, or if nothing is known about the plugin.
func notCurrent(node *nodeqosv1alpha1.NodeQOSResources, now time.Time) (reason, sentence string) {
	if node.Status.Expired(now) {
		return "NodeNotReported", fmt.Sprintf("the last report of qos-kubelet-shim on %s was %s", node.Name, lastReport(node, now))
	}
	if ready := readyCondition(node); ready != nil && ready.Status != metav1.ConditionTrue {
		return "PluginNotReady", fmt.Sprintf("qos-nri-plugin of %s has not been ready since %s", node.Name, timeText(&ready.LastTransitionTime))
	}
	return "", ""
}

// classTexts formats the classes of a resource as KEP-3008 does, and adds their use: "gold (1/2)".
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

func short(hash string) string { return hash[:min(12, len(hash))] }
