// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"encoding/json"
	"fmt"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// RecordAnnotation is an annotation that the plugin sets on a container when the container is created. It lists the
// assignments of the container. The runtime returns the annotation to a plugin that has restarted. The annotation is
// not a request for classes: only Synchronize reads it.
const RecordAnnotation = "assigned." + classes.Domain

// Record returns the value of RecordAnnotation. The value is empty if no class is assigned.
func Record(assignments []classes.Assignment) (string, error) {
	assigned := make([]classes.Assignment, 0, len(assignments))
	for _, a := range assignments {
		if a.Class != classes.SystemDefault {
			assigned = append(assigned, a)
		}
	}
	if len(assigned) == 0 {
		return "", nil
	}
	value, err := json.Marshal(assigned)
	if err != nil {
		return "", fmt.Errorf("record assignments: %w", err)
	}
	return string(value), nil
}

// recordedOn reads the RecordAnnotation of a container. It returns nil if the container has no such annotation, or if
// the value is not valid. Some runtimes copy the annotations of a pod to its containers. If the pod has the annotation
// too, a user may have forged it, and recordedOn returns nil.
func recordedOn(h classes.Holder) []classes.Assignment {
	value, ok := h.ContainerAnnotations[RecordAnnotation]
	if _, forged := h.PodAnnotations[RecordAnnotation]; forged || !ok {
		return nil
	}

	var assigned []classes.Assignment
	if json.Unmarshal([]byte(value), &assigned) != nil {
		return nil
	}
	return assigned
}
