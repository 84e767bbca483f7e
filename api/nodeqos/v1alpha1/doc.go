// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 has the kinds that replace fields which KEP-3008 adds to kinds of Kubernetes: NodeQOSResources for the status
// of a node, and QOSLimitRange for the default classes of a namespace.
//
// +kubebuilder:object:generate=true
// +groupName=qos.noderesource.dev
package v1alpha1
