// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"cmp"
	"slices"
	"time"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/podevents"
	"github.com/qos-nri/qos-nri-plugin/internal/podspec"
)

// announce records an event with the classes of the pod, and of each container, that the pod's condition does not have yet. "kubectl
// describe pod" prints the status of the condition without its message, but prints events.
func (s *podState) announce(o *observed) {
	current := podspec.AssignedCondition(o.pod)
	if current != nil && len(current.Message) > maxMessage/2 {
		return // the condition may not have all containers
	}

	add := func(container string, assignments []*qosv1alpha1.Assignment) {
		inCondition := func(a *qosv1alpha1.Assignment) bool {
			_, _, _, found := podspec.Assigned(current, container, a.GetName())
			return found
		}
		classes := slices.DeleteFunc(slices.Clone(assignments), func(a *qosv1alpha1.Assignment) bool { return a.GetClass() == "" })
		if len(classes) == 0 || s.announced[container] || slices.ContainsFunc(assignments, inCondition) {
			return
		}

		now := time.Now()
		s.announced[container] = true
		s.events.Set(podevents.Record{
			Reason: podevents.ClassAssigned, Container: container, Message: cmp.Or(container, "pod") + ": " + describe(classes),
			Count: 1, First: now, Last: now,
		})
	}
	add("", o.assignments.GetQosResources())
	for _, c := range o.containers() {
		add(c.GetName(), c.GetQosResources())
	}
}
