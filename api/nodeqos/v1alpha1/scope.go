// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "iter"

// Scope is the kind of object to which a resource assigns classes.
type Scope string

// The scopes.
const (
	ScopeContainer Scope = "Container"
	ScopePod       Scope = "Pod"
	ScopeVolume    Scope = "Volume"
)

// All returns the resources of all scopes, those of containers first.
func (s *QOSResourceStatus) All() iter.Seq2[Scope, *QOSResourceInfo] {
	return func(yield func(Scope, *QOSResourceInfo) bool) {
		lists := [][]QOSResourceInfo{s.ContainerQOSResources, s.PodQOSResources, s.VolumeQOSResources}
		for i, scope := range []Scope{ScopeContainer, ScopePod, ScopeVolume} {
			for j := range lists[i] {
				if !yield(scope, &lists[i][j]) {
					return
				}
			}
		}
	}
}
