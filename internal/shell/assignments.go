// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/columns"
)

// wholePod is how people see what belongs to a pod rather than to one of its containers.
const wholePod = "<pod>"

// Assignments is who has which class, for people: a row for each container, or pod, and resource; then who was refused, and who is to
// be evicted.
func Assignments(list *qosv1alpha1.ListAssignmentsResponse) string {
	rows := table{{"NAMESPACE", "POD", "CONTAINER", "RESOURCE", "CLASS", "SOURCE", "REQUESTED BY"}}
	for _, pod := range list.GetPods() {
		rows = append(rows, assignmentRows(pod, wholePod, pod.GetQosResources())...)
		for _, ctr := range pod.GetContainers() {
			rows = append(rows, assignmentRows(pod, ctr.GetName(), ctr.GetQosResources())...)
		}
	}
	var text strings.Builder
	if len(rows) == 1 {
		text.WriteString("No pods with QoS-class resources run on this node.\n")
	} else {
		rows.appendTo(&text)
	}
	refusalTable(&text, list.GetRefusals())
	evictionTable(&text, list.GetEvictions())
	return text.String()
}

func refusalTable(text *strings.Builder, refusals []*qosv1alpha1.Refusal) {
	if len(refusals) == 0 {
		return
	}
	rows := table{{"NAMESPACE", "POD", "CONTAINER", "REFUSED", "TIMES", "LAST", "MESSAGE"}}
	for _, r := range refusals {
		rows = append(rows, []string{
			r.GetNamespace(), r.GetPod(), containerText(r.GetContainer()), r.GetReason(), strconv.FormatUint(r.GetCount(), 10),
			timeText(r.GetLastTime()), r.GetMessage(),
		})
	}
	text.WriteByte('\n')
	rows.appendTo(text)
}

func evictionTable(text *strings.Builder, evictions []*qosv1alpha1.Eviction) {
	if len(evictions) == 0 {
		return
	}
	rows := table{{"NAMESPACE", "POD", "CONTAINER", "TO BE EVICTED", "MESSAGE"}}
	for _, e := range evictions {
		rows = append(rows, []string{e.GetNamespace(), e.GetPod(), containerText(e.GetContainer()), e.GetReason(), e.GetMessage()})
	}
	text.WriteByte('\n')
	rows.appendTo(text)
}

func containerText(name string) string {
	if name == "" {
		return wholePod
	}
	return name
}

func assignmentRows(pod *qosv1alpha1.PodAssignments, container string, assignments []*qosv1alpha1.Assignment) [][]string {
	rows := make([][]string, 0, len(assignments))
	for _, a := range assignments {
		rows = append(rows, []string{
			pod.GetNamespace(), pod.GetName(), container, a.GetName(), classText(a.GetClass()), sourceText(a.GetSource()), a.GetRequestedBy(),
		})
	}
	return rows
}

func sourceText(s qosv1alpha1.Source) string { return cmp.Or(s.Name(), "-") }

// Change says what became of a request for other classes: before and after are the same container's assignments; before is
// nil when they are not known.
func Change(pod *qosv1alpha1.PodAssignments, before, after *qosv1alpha1.ContainerAssignments, resources []string) string {
	var text strings.Builder
	for _, resource := range resources {
		to := classText(classOf(after, resource))
		what := "is " + to + " now"
		if before != nil {
			what = describeChange(classText(classOf(before, resource)), to)
		}
		subject := "pod " + PodName(pod)
		if after.GetName() != "" {
			subject += " container " + after.GetName()
		}
		change := fmt.Sprintf("%s: %s %s", subject, resource, what)
		text.WriteString(columns.Plain(change) + "\n")
	}
	return text.String()
}

func describeChange(from, to string) string {
	if from == to {
		return "stays " + to
	}
	return from + " -> " + to
}

func classOf(ctr *qosv1alpha1.ContainerAssignments, resource string) string {
	for _, a := range ctr.GetQosResources() {
		if a.GetName() == resource {
			return a.GetClass()
		}
	}
	return ""
}
