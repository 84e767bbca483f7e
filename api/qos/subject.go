// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package qos has the names of pods, containers, volumes and conditions that the plugin, the shim and kubectl share.
// It imports no other package of this project.
package qos

import (
	"fmt"
	"strings"
)

// Subject identifies a container, a pod or a volume. It is the pod if `Container` is empty, and a volume of the container if `Volume` is
// not empty. A restarted container is the same Subject as its predecessor, although the runtime gives it a new ID, so the two
// containers need only one slot of a class.
type Subject struct {
	// PodUID is the pod's UID, or the ID of its sandbox if the runtime reports no UID.
	PodUID string
	// Container is the name of the container in the pod.
	Container string
	// Volume is the path in the container at which the volume is mounted.
	Volume string
}

// WithoutVolume returns the container of a volume. It returns a container or pod unchanged.
func (s Subject) WithoutVolume() Subject {
	s.Volume = ""
	return s
}

// String returns a description for errors and logs. It is one printable line of limited length, whatever the fields contain.
func (s Subject) String() string {
	pod := "pod " + strings.Trim(fmt.Sprintf("%.80q", s.PodUID), `"`)
	if s.Container == "" {
		return pod
	}

	container := fmt.Sprintf("container %.80q of %s", s.Container, pod)
	if s.Volume == "" {
		return container
	}
	return fmt.Sprintf("volume %s of %s", strings.Trim(fmt.Sprintf("%.80q", s.Volume), `"`), container)
}
