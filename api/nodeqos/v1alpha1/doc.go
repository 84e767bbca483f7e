// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 has the kind NodeQOSResources: what KEP-3008 adds to the status of a node, as an object beside the Node.
//
// +kubebuilder:object:generate=true
// +groupName=qos.noderesource.dev
package v1alpha1
