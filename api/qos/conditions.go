// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

// These are the types of the conditions of the plugin as a whole, in the node API and in NodeQOSResources. A backend may also
// report ConditionConfigurationApplied for its resource.
const (
	// ConditionConfigurationApplied is healthy if the class files that were read last are applied.
	ConditionConfigurationApplied = "ConfigurationApplied"
	// ConditionRuntimeRegistered is healthy while the plugin is registered with the container runtime and synchronized with it.
	ConditionRuntimeRegistered = "RuntimeRegistered"
	// ConditionKernelAnswers is healthy while no call of the plugin into the kernel is blocked.
	ConditionKernelAnswers = "KernelAnswers"
)

// These are reasons of ConditionConfigurationApplied.
const (
	ReasonApplied = "Applied"
	// ReasonRefused means that the class files have errors, or that applying them failed.
	ReasonRefused = "Refused"
)
