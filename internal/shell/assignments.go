// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Assignments formats the classes of pods and containers, the refusals, and the pods that are to be evicted.
func Assignments(list *qosv1alpha1.ListAssignmentsResponse) string {
	var text strings.Builder
	rows := table{{"NAMESPACE", "POD", "CONTAINER", "RESOURCE", "CLASS", "SOURCE", "REQUESTED BY"}}
	add := func(pod *qosv1alpha1.PodAssignments, container string, assignments []*qosv1alpha1.Assignment) {
		for _, a := range assignments {
			requestedBy := a.GetRequestedBy()
			if a.IsDefault() {
				requestedBy = "" // the source has the name of the rule
			}
			rows = append(rows, []string{
				pod.GetNamespace(), pod.GetName(), containerText(container), a.GetName(), shownText(a),
				cmp.Or(a.SourceText(), "-"), requestedBy,
			})
		}
	}
	for _, pod := range list.GetPods() {
		add(pod, "", pod.GetQosResources())
		for _, ctr := range pod.GetContainers() {
			add(pod, ctr.GetName(), ctr.GetQosResources())
			for _, volume := range ctr.GetVolumes() {
				add(pod, ctr.GetName()+" "+volume.GetPath(), volume.GetQosResources())
			}
		}
	}
	if len(rows) == 1 {
		text.WriteString("No pods with QoS-class resources run on this node.\n")
	}
	rows.appendTo(&text)

	refused := table{{"NAMESPACE", "POD", "CONTAINER", "REFUSED", "TIMES", "LAST", "MESSAGE"}}
	for _, r := range list.GetRefusals() {
		refused = append(refused, []string{
			r.GetNamespace(), r.GetPod(), containerText(r.GetContainer()), r.GetReason(), strconv.FormatUint(r.GetCount(), 10),
			timeText(r.GetLastTime()), r.GetMessage(),
		})
	}
	refused.appendTo(&text)

	evicted := table{{"NAMESPACE", "POD", "CONTAINER", "TO BE EVICTED", "MESSAGE"}}
	for _, e := range list.GetEvictions() {
		evicted = append(evicted, []string{e.GetNamespace(), e.GetPod(), containerText(e.GetContainer()), e.GetReason(), e.GetMessage()})
	}
	evicted.appendTo(&text)
	return text.String()
}

// Change formats the result of a change of the classes of `wanted`. `before` and `after` are the assignments of one container. `before` is
// nil if the assignments before the change are unknown.
func Change(pod *qosv1alpha1.PodAssignments, before, after *qosv1alpha1.ContainerAssignments, wanted []classes.Pair) string {
	var text strings.Builder
	for _, pair := range wanted {
		to := classText(classOf(after, pair.Resource))
		what := "is " + to + " now"
		if from := classText(classOf(before, pair.Resource)); before != nil && from == to {
			what = "stays " + to
		} else if before != nil {
			what = from + " -> " + to
		}

		subject := "pod " + PodName(pod)
		if after.GetName() != "" {
			subject += " container " + after.GetName()
		}
		change := fmt.Sprintf("%s: %s %s", subject, pair.Resource, what)
		text.WriteString(program.Printable(change) + "\n")
	}
	return text.String()
}

// shownText returns the class. If another program has set something for a container or pod without a class, shownText
// returns the description of this setting. Stale properties of a class, and what limits its effect, follow its name.
func shownText(a *qosv1alpha1.Assignment) string {
	if a.GetForeign() != "" {
		return "<" + a.GetForeign() + ">"
	}
	text := classText(a.GetClass())
	if a.GetStale() != "" {
		text += " [stale: " + a.GetStale() + "]"
	}
	if a.GetLimited() != "" {
		text += " [" + a.GetLimited() + "]"
	}
	return text
}

func classOf(ctr *qosv1alpha1.ContainerAssignments, resource string) string {
	for _, a := range ctr.GetQosResources() {
		if a.GetName() == resource {
			return a.GetClass()
		}
	}
	return ""
}
