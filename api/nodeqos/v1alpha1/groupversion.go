// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 has the kinds that take the place of fields in KEPs: NodeQOSResources for the status of a node and QOSLimitRange for
// the default classes of a namespace (KEP-3008), and StatefulSetVolumes for the volumes of a StatefulSet (KEP-0661).
//
// +kubebuilder:object:generate=true
// +groupName=qos.noderesource.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// These constants name the API group, its version, and its kinds. Kind and Plural belong to NodeQOSResources.
// LimitRangeKind and LimitRangePlural belong to QOSLimitRange, StatefulSetVolumesKind and StatefulSetVolumesPlural to StatefulSetVolumes.
const (
	GroupName = "qos.noderesource.dev"
	Version   = "v1alpha1"
	Kind      = "NodeQOSResources"
	Plural    = "nodeqosresources"

	LimitRangeKind   = "QOSLimitRange"
	LimitRangePlural = "qoslimitranges"

	StatefulSetVolumesKind   = "StatefulSetVolumes"
	StatefulSetVolumesPlural = "statefulsetvolumes"
)

// GroupVersion is the group and version of the kinds of this package.
//
//nolint:gochecknoglobals // callers of every API package expect it, and nothing changes it
var GroupVersion = schema.GroupVersion{Group: GroupName, Version: Version}

// Resource returns the GroupResource of a kind's plural name. Constructors of API errors and RESTMappers use it.
func Resource(plural string) schema.GroupResource {
	return GroupVersion.WithResource(plural).GroupResource()
}

// AddToScheme registers the kinds of this package with a scheme, for typed clients and caches.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&NodeQOSResources{}, &NodeQOSResourcesList{}, &QOSLimitRange{}, &QOSLimitRangeList{}, &StatefulSetVolumes{}, &StatefulSetVolumesList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
