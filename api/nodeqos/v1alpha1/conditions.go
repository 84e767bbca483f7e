// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "github.com/qos-nri/qos-nri-plugin/api/qos"

// Types of conditions of the node as a whole. The shim reports ConditionPluginReady, ConditionReportComplete and
// ConditionClassesDraining, and the plugin reports the others.
const (
	ConditionPluginReady          = "PluginReady"
	ConditionConfigurationApplied = qos.ConditionConfigurationApplied
	ConditionRuntimeRegistered    = qos.ConditionRuntimeRegistered
	ConditionKernelAnswers        = qos.ConditionKernelAnswers
	// ConditionReportComplete is False while the object leaves something out. Otherwise the object does not have the condition.
	ConditionReportComplete = "ReportComplete"
	// ConditionClassesDraining is True while pods have requested a class that was removed from the class files. Otherwise the object
	// does not have the condition.
	ConditionClassesDraining = "ClassesDraining"
)

// ReasonClassRemoved is the reason of the condition ClassesDraining.
const ReasonClassRemoved = "ClassRemoved"

// ReasonTooLarge is the reason of the condition ReportComplete.
const ReasonTooLarge = "TooLarge"

// Reasons of the condition PluginReady.
const (
	// ReasonReady is the reason while the condition is True.
	ReasonReady = "Ready"
	// ReasonNotReady means that the plugin responds, but has no class files in force or no container runtime.
	ReasonNotReady = "NotReady"
	// ReasonNotAnswering means that the plugin does not respond.
	ReasonNotAnswering = "NotAnswering"
)

// PodConditionAssigned is the type of the pod condition that the shim writes. It is True while the pod has the classes
// that the condition's message lists. It is False when a requested class was refused, or when an annotation is ignored
// (ReasonAnnotationIgnored).
const PodConditionAssigned = GroupName + "/Assigned"

// Reasons of the pod condition. If the plugin refuses a class, the condition has the plugin's reason, e.g. "ClassFull".
const (
	// ReasonAssigned is the reason while the condition is True.
	ReasonAssigned = "Assigned"
	// ReasonRefused means that the plugin refused a class and reported no reason.
	ReasonRefused = "Refused"
	// ReasonChangeRefused means that the pod runs, but not in the classes that its annotations request now.
	ReasonChangeRefused = "ChangeRefused"
	// ReasonAnnotationIgnored means that an annotation requests nothing, because its key names no container of the pod, or
	// is not a key for requests.
	ReasonAnnotationIgnored = "AnnotationIgnored"
)
