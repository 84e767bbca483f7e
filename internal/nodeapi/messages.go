// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/node/kernel"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

func statusOf(s state.Status, blocked []kernel.BlockedCall, plugin *qosv1alpha1.PluginInfo) *qosv1alpha1.StatusResponse {
	message := &qosv1alpha1.StatusResponse{
		Conditions: []*qosv1alpha1.Condition{configurationApplied(s.Config), runtimeRegistered(s.Runtime), kernelAnswers(blocked)},
		Resources:  &qosv1alpha1.ResourcesInfo{},
		Plugin:     plugin,
		Runtime:    runtimeOf(s.Runtime),
		Config:     configOf(s.Config),
	}

	for _, r := range s.Resources {
		switch {
		case r.Unavailable != nil:
			message.UnavailableResources = append(message.UnavailableResources, unavailableOf(r))
		case r.Scope == classes.PodScope:
			message.Resources.PodQosResources = append(message.Resources.PodQosResources, resourceOf(r))
		case r.Scope == classes.VolumeScope:
			message.Resources.VolumeQosResources = append(message.Resources.VolumeQosResources, resourceOf(r))
		default:
			message.Resources.ContainerQosResources = append(message.Resources.ContainerQosResources, resourceOf(r))
		}
	}
	return message
}

func configurationApplied(c state.ConfigStatus) *qosv1alpha1.Condition {
	condition := &qosv1alpha1.Condition{Type: qos.ConditionConfigurationApplied}

	switch {
	case c.Err != nil && c.Loaded.IsZero():
		condition.Reason = qos.ReasonRefused
		condition.Message = "The class files have errors, and none is in force: containers that request a class are refused. " + correct(c.Err)
	case c.Err != nil:
		condition.Reason = qos.ReasonRefused
		condition.Message = "The class files have errors, so the previous class files stay in force. " + correct(c.Err)
	case c.Loaded.IsZero():
		condition.Reason, condition.Message = "NotLoadedYet", "The class files have not been read yet; wait a moment."
	default:
		condition.Healthy, condition.Reason, condition.Message = true, qos.ReasonApplied, "The class files are in force."
	}
	return condition
}

// longestError is the maximum length of the error in a condition, in bytes.
const longestError = 512

// correct says how to correct class files. `err` has an error in each line, and correct names the first one.
func correct(err error) string {
	first, rest, _ := strings.Cut(err.Error(), "\n")
	text := "Correct them: " + printable.Text(first, longestError)
	if rest != "" {
		text += fmt.Sprintf("; and %d more", strings.Count(rest, "\n")+1)
	}
	return text + "; \"qos-nri-plugin check\" lists all errors."
}

func runtimeRegistered(r state.RuntimeInfo) *qosv1alpha1.Condition {
	condition := &qosv1alpha1.Condition{Type: qos.ConditionRuntimeRegistered}

	switch {
	case r.Synchronized:
		condition.Healthy, condition.Reason, condition.Message = true, "Registered", "Registered with the container runtime."
		if r.NoUpdates != "" {
			condition.Message += " The plugin itself writes the values of changed classes to cgroups, because " + r.NoUpdates + "."
		}
	case r.Name == "":
		condition.Reason = "NeverRegistered"
		condition.Message = "The plugin has not reached the container runtime yet, so no container gets a class. " +
			"Check that NRI is enabled in the runtime's configuration, for example with \"qos-nri-plugin check --runtime-endpoint\"."
	case r.SyncFailure != nil:
		condition.Reason = "NotSynchronized"
		condition.Message = "The container runtime does not synchronize the plugin, so no container gets a class: " + r.SyncFailure.Error() + "."
	default:
		condition.Reason = "ConnectionLost"
		condition.Message = "The connection to the container runtime is lost, so no container gets a class. " +
			"Check that the runtime runs, and that a changed configuration has not disabled NRI, for example with " +
			"\"qos-nri-plugin check --runtime-endpoint\"; the plugin registers again by itself."
	}
	return condition
}

func kernelAnswers(blocked []kernel.BlockedCall) *qosv1alpha1.Condition {
	condition := &qosv1alpha1.Condition{Type: qos.ConditionKernelAnswers}
	if len(blocked) == 0 {
		condition.Healthy, condition.Reason, condition.Message = true, "Answers", "The kernel answers."
		return condition
	}

	condition.Reason, condition.Message = "CallsBlocked", kernel.Error(blocked).Error()
	return condition
}

func runtimeOf(r state.RuntimeInfo) *qosv1alpha1.RuntimeInfo {
	return &qosv1alpha1.RuntimeInfo{
		Name: r.Name, Version: r.Version, NriVersion: r.NRIVersion, Registered: r.Synchronized, RegisteredAt: timestamp(r.Since),
		NriPlugins: slices.Clone(r.Plugins),
	}
}

func configOf(c state.ConfigStatus) *qosv1alpha1.ConfigInfo {
	info := &qosv1alpha1.ConfigInfo{
		Generation: c.Generation, Hash: c.Hash, LoadedAt: timestamp(c.Loaded), Files: slices.Clone(c.Files),
	}
	if c.Err != nil {
		info.LastError, info.LastErrorAt = c.Err.Error(), timestamp(c.Failed)
	}
	return info
}

func unavailableOf(r state.ResourceStatus) *qosv1alpha1.UnavailableResource {
	return &qosv1alpha1.UnavailableResource{
		Name: r.Name, Reason: r.Unavailable.Reason, Message: r.Unavailable.Message, Scope: scopeOf(r.Scope),
	}
}

func scopeOf(scope classes.Scope) qosv1alpha1.Scope {
	return qosv1alpha1.Scope(qosv1alpha1.Scope_value[enumOf("SCOPE", string(scope))])
}

func sourceOf(source classes.Source) qosv1alpha1.Source {
	return qosv1alpha1.Source(qosv1alpha1.Source_value[enumOf("SOURCE", string(source))])
}

// enumOf returns the name that a value of pkg/classes has in an enumeration of the node API. An empty or unknown value has no such name,
// so it becomes UNSPECIFIED, the value 0.
func enumOf(kind, name string) string {
	return kind + "_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

func resourceOf(r state.ResourceStatus) *qosv1alpha1.QOSResourceInfo {
	info := &qosv1alpha1.QOSResourceInfo{Name: r.Name, Mutable: r.Mutable, DefaultClass: r.DefaultClass, Kind: r.Kind}
	for _, class := range r.Classes {
		message := classOf(r, class.Name)
		message.Capacity, message.Description = class.Capacity, class.Description
		info.Classes = append(info.Classes, message)
	}

	for _, name := range slices.Sorted(maps.Keys(r.InUse)) {
		if _, offered := r.Class(name); !offered {
			message := classOf(r, name)
			message.Draining = true
			info.Classes = append(info.Classes, message)
		}
	}

	for _, c := range r.Conditions {
		info.Conditions = append(info.Conditions, conditionOf(c))
	}
	slices.SortStableFunc(info.Conditions, func(a, b *qosv1alpha1.Condition) int { return strings.Compare(a.GetType(), b.GetType()) })
	return info
}

func conditionOf(c classes.Condition) *qosv1alpha1.Condition {
	return &qosv1alpha1.Condition{Type: c.Type, Healthy: c.Healthy, Reason: c.Reason, Message: c.Message}
}

// classOf returns the fields that offered classes and draining classes have in common.
func classOf(r state.ResourceStatus, name string) *qosv1alpha1.QOSResourceClassInfo {
	message := &qosv1alpha1.QOSResourceClassInfo{Name: name, InUse: uint64(max(r.InUse[name], 0)), Degraded: r.Degraded[name], Values: r.Values[name]}
	// ExtendedResource fails if Kubernetes does not allow the name. Only a draining class can have such a name, because
	// class files with such a name are not applied. Classes of volumes have no extended resource, because Kubernetes
	// does not schedule by them.
	if extended, err := classes.ExtendedResource(r.Name, name); err == nil && r.Scope != classes.VolumeScope {
		message.ExtendedResource = extended
	}
	if held, judged := r.Held[name]; judged {
		message.Conditions = append(message.Conditions, conditionOf(held))
	}
	return message
}

func podOf(p state.PodAssignments) *qosv1alpha1.PodAssignments {
	message := &qosv1alpha1.PodAssignments{
		Uid: p.UID, Namespace: p.Namespace, Name: p.Name, SandboxId: p.SandboxID, QosResources: assignmentsOf(p.Assignments),
	}
	if p.PodQOS != "" {
		message.KubernetesResources = []*qosv1alpha1.Assignment{{Name: classes.PodQOSResource, Class: string(p.PodQOS)}}
	}
	for _, ctr := range p.Containers {
		message.Containers = append(message.Containers, containerOf(ctr))
	}
	return message
}

func containerOf(c state.ContainerAssignments) *qosv1alpha1.ContainerAssignments {
	message := &qosv1alpha1.ContainerAssignments{Name: c.Name, Id: c.ID, QosResources: assignmentsOf(c.Assignments)}
	for _, v := range c.Volumes {
		message.Volumes = append(message.Volumes, &qosv1alpha1.VolumeAssignments{
			Path: v.Path, QosResources: assignmentsOf(v.Assignments), Device: v.Device, InForceSince: timestamp(v.InForce),
		})
	}
	return message
}

func assignmentsOf(assignments []state.Reported) []*qosv1alpha1.Assignment {
	messages := make([]*qosv1alpha1.Assignment, 0, len(assignments))
	for _, a := range assignments {
		message := &qosv1alpha1.Assignment{
			Name: a.Resource, Class: a.Class, Source: sourceOf(a.Source), RequestedBy: a.Key, Foreign: a.Foreign,
			Stale: a.Stale, Limited: a.Limited, Replaced: a.Replaced,
		}
		messages = append(messages, message)
	}
	return messages
}

func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func refusalOf(r state.Refused) *qosv1alpha1.Refusal {
	return &qosv1alpha1.Refusal{
		PodUid: r.Subject.PodUID, Namespace: r.PodNamespace, Pod: r.PodName, Container: r.Subject.Container, Volume: r.Subject.Volume,
		Reason: r.Reason, Message: r.Message, Count: r.Count,
		FirstTime: timestamppb.New(r.First), LastTime: timestamppb.New(r.Last),
	}
}

func evictionOf(e state.Eviction) *qosv1alpha1.Eviction {
	return &qosv1alpha1.Eviction{
		PodUid: e.Subject.PodUID, Namespace: e.PodNamespace, Pod: e.PodName, Container: e.Subject.Container,
		Resource: e.Resource, Class: e.Class, Reason: e.Reason, Message: e.Message,
	}
}
