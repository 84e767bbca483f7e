// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"encoding/json"
	"fmt"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// RecordAnnotation is set on a container at its creation and lists its assignments. The runtime returns it to a restarted plugin.
// It is not a request: only Synchronize reads it.
const RecordAnnotation = "assigned." + classes.Domain

// Record returns the value of RecordAnnotation; empty when no class is assigned.
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

// recordedOn reads a container's RecordAnnotation; nil when there is none or it is not ours. Some runtimes copy a pod's
// annotations to its containers, so a value that the pod has too may be forged.
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
