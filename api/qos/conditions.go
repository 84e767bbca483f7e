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
	// ConditionHeld is a condition of a class. It is not healthy while the containers or pods of the class use more than the class
	// allows. Classes that promise nothing measurable do not have it.
	ConditionHeld = "Held"
)

// These are reasons of ConditionConfigurationApplied.
const (
	ReasonApplied = "Applied"
	// ReasonRefused means that the class files have errors, or that applying them failed.
	ReasonRefused = "Refused"
)

// These are reasons of ConditionHeld. NeverReached does not show that the kernel enforces the limit, because the use
// has never reached it.
const (
	ReasonLimitNotHeld = "LimitNotHeld"
	ReasonReached      = "Reached"
	ReasonNeverReached = "NeverReached"
	ReasonNotMeasured  = "NotMeasured"
)
