// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"cmp"
	"slices"
	"strings"
	"time"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/podevents"
	"github.com/qos-nri/qos-nri-plugin/internal/podspec"
)

// announce records an event with the classes of the pod and of its containers that the pod's condition does not have yet: one event,
// because many pods may start at the same time. "kubectl describe pod" prints the status of the condition without its message, but
// prints events.
func (s *podState) announce(o *observed) {
	current := podspec.AssignedCondition(o.pod)
	if current != nil && len(current.Message) > maxMessage/2 {
		return // the condition may not have all containers
	}

	var about, messages []string
	add := func(container string, assignments []*qosv1alpha1.Assignment) {
		inCondition := func(a *qosv1alpha1.Assignment) bool {
			_, _, _, found := podspec.Assigned(current, container, a.GetName())
			return found
		}
		classes := slices.DeleteFunc(slices.Clone(assignments), func(a *qosv1alpha1.Assignment) bool { return a.GetClass() == "" })
		if len(classes) == 0 || s.announced[container] || slices.ContainsFunc(assignments, inCondition) {
			return
		}
		s.announced[container] = true
		about, messages = append(about, container), append(messages, cmp.Or(container, "pod")+": "+describe(classes))
	}
	add("", o.assignments.GetQosResources())
	for _, c := range o.containers() {
		add(c.GetName(), c.GetQosResources())
	}
	if len(about) == 0 {
		return
	}

	now := time.Now()
	record := podevents.Record{
		Reason: podevents.ClassAssigned, Series: about[0], Message: strings.Join(messages, "; "), Count: 1, First: now, Last: now,
	}
	if len(about) == 1 {
		record.Container = about[0]
	}
	s.record(func(series *podevents.Series) { series.Set(record) })
}
