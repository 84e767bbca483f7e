// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package qosv1alpha1

import (
	"iter"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
)

// Name returns the lower-case name of a source, e.g. "allocated". It returns "" if nothing was requested.
func (x Source) Name() string {
	if x == Source_SOURCE_UNSPECIFIED {
		return ""
	}
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(x.String(), "SOURCE_"), "_", "-"))
}

// SourceText returns the name of the source of an assignment, e.g. "allocated". For a class of a rule, it is "rule" and the rule's name.
func (x *Assignment) SourceText() string {
	if x.GetSource() == Source_SOURCE_RULE {
		return x.GetSource().Name() + " " + x.GetRequestedBy()
	}
	return x.GetSource().Name()
}

// IsDefault reports whether the class files assign the class, because nothing was requested.
func (x *Assignment) IsDefault() bool {
	return x.GetSource() == Source_SOURCE_DEFAULT || x.GetSource() == Source_SOURCE_RULE
}

// Name returns the lower-case name of a scope, e.g. "pod". It returns "" if the scope is not known.
func (x Scope) Name() string {
	if x == Scope_SCOPE_UNSPECIFIED {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(x.String(), "SCOPE_"))
}

// All returns the resources of all scopes, those of containers first.
func (x *ResourcesInfo) All() iter.Seq2[Scope, *QOSResourceInfo] {
	return func(yield func(Scope, *QOSResourceInfo) bool) {
		lists := [][]*QOSResourceInfo{x.GetContainerQosResources(), x.GetPodQosResources(), x.GetVolumeQosResources()}
		for i, scope := range []Scope{Scope_SCOPE_CONTAINER, Scope_SCOPE_POD, Scope_SCOPE_VOLUME} {
			for _, resource := range lists[i] {
				if !yield(scope, resource) {
					return
				}
			}
		}
	}
}

// Subject returns the pod, container or volume whose request is refused.
func (x *Refusal) Subject() qos.Subject {
	return qos.Subject{PodUID: x.GetPodUid(), Container: x.GetContainer(), Volume: x.GetVolume()}
}

// Subject returns the pod or container that has the class for which the pod is to be evicted.
func (x *Eviction) Subject() qos.Subject {
	return qos.Subject{PodUID: x.GetPodUid(), Container: x.GetContainer()}
}
