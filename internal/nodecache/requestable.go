// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodecache

import (
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// Requestable is a class that pods can request by an extended resource.
type Requestable struct {
	*qosv1alpha1.QOSResourceClassInfo

	Resource *qosv1alpha1.QOSResourceInfo
	PodScope bool
}

// RequestableClasses returns the classes of a node that pods can request by an extended resource, those of containers first.
func RequestableClasses(node *qosv1alpha1.ResourcesInfo) (list []Requestable) {
	for scope, resource := range node.All() {
		for _, c := range resource.GetClasses() {
			if c.GetExtendedResource() != "" {
				list = append(list, Requestable{c, resource, scope == qosv1alpha1.Scope_SCOPE_POD})
			}
		}
	}
	return list
}
