// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject

import (
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/api/qos"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
)

// notReadyGrace is the length of the grace period. During this period, the object's status does not report that the
// plugin is not ready. The period is long enough for a restart of the plugin.
const notReadyGrace = 30 * time.Second

// longestDescription and longestMessage are the maximum sizes of texts in the object, in bytes. The object must stay
// small, but class files and machines may provide longer texts.
const (
	longestDescription = 1 << 10
	longestMessage     = 4 << 10
)

// desiredStatus returns the status that the object should have. It is computed from the plugin's state, the object's
// present status and the time. Unchanged fields keep their timestamps, so that a restart of the plugin or the shim
// changes nothing.
//
// While the plugin is not ready, desiredStatus uses the plugin's last ready state. If the plugin has not been
// ready since the publisher started, the second result is false during the grace period. After the grace period,
// desiredStatus returns the present status, with the condition that the plugin is not ready.
func desiredStatus(
	state nodecache.State, before nodeqosv1alpha1.NodeQOSResourcesStatus, now time.Time,
) (status nodeqosv1alpha1.NodeQOSResourcesStatus, known bool) {
	overdue := !state.Ready() && graceLeft(state, now) == 0
	switch {
	case state.Status != nil:
		h, info, old := newHolders(state.Assignments), state.Status.GetResources(), before.QOSResources
		status.QOSResources.PodQOSResources = h.resources(qosv1alpha1.Scope_SCOPE_POD, info.GetPodQosResources(), old.PodQOSResources, now)
		status.QOSResources.ContainerQOSResources = h.resources(
			qosv1alpha1.Scope_SCOPE_CONTAINER, info.GetContainerQosResources(), old.ContainerQOSResources, now)
		status.QOSResources.VolumeQOSResources = h.resources(
			qosv1alpha1.Scope_SCOPE_VOLUME, info.GetVolumeQosResources(), old.VolumeQOSResources, now)
		keepSince(status.QOSResources.VolumeQOSResources, old.VolumeQOSResources)
		status.UnavailableResources = unavailable(state.Status.GetUnavailableResources())
		setNodeFields(&status, state.Status, before, now)
	case overdue:
		status = *before.DeepCopy()
	default:
		return status, false
	}

	if overdue && state.Latest != nil { // the plugin is connected, but has no class files applied or no runtime
		setNodeFields(&status, state.Latest, before, now)
	}
	ready := pluginReady(state, overdue)
	status.Conditions = append(without(status.Conditions, ready.Type), dated(ready, before.Conditions, now))
	reportDraining(&status, before.Conditions, now)
	return status, true
}

// graceLeft returns how much of the grace period is left. During this period, a plugin that is not ready is still
// reported as ready. graceLeft returns 0 if the plugin is ready.
func graceLeft(state nodecache.State, now time.Time) time.Duration {
	if state.Ready() {
		return 0
	}
	return max(notReadyGrace-now.Sub(state.NotReadySince), 0)
}

func setNodeFields(
	status *nodeqosv1alpha1.NodeQOSResourcesStatus, s *qosv1alpha1.StatusResponse, before nodeqosv1alpha1.NodeQOSResourcesStatus, now time.Time,
) {
	status.Conditions = conditions(s.GetConditions(), before.Conditions, now)
	status.Config = config(s.GetConfig(), before.Config)
	status.Plugin = nodeqosv1alpha1.PluginStatus{Version: s.GetPlugin().GetVersion()}
	status.Runtime = nodeqosv1alpha1.RuntimeStatus{
		Name: s.GetRuntime().GetName(), Version: s.GetRuntime().GetVersion(), NRIVersion: s.GetRuntime().GetNriVersion(),
	}
}

func pluginReady(state nodecache.State, overdue bool) metav1.Condition {
	ready := metav1.Condition{
		Type: nodeqosv1alpha1.ConditionPluginReady, Status: metav1.ConditionTrue, Reason: nodeqosv1alpha1.ReasonReady,
		Message: "qos-nri-plugin answers, has class files in force and is registered with the container runtime.",
	}
	if overdue {
		ready.Status, ready.Message = metav1.ConditionFalse, cut(state.Problem, longestMessage)
		ready.Reason, ready.LastTransitionTime = nodeqosv1alpha1.ReasonNotReady, metav1.NewTime(state.NotReadySince)
		if state.Latest == nil {
			ready.Reason = nodeqosv1alpha1.ReasonNotAnswering
		}
	}
	return ready
}

// resources returns the resources of a scope, or nil if there are none. A list that is empty, but not nil, would make qosResources an
// empty object in the JSON. Server-side apply turns an empty object whose lists it removes into null, which the API server refuses.
func (h *holders) resources(
	scope qosv1alpha1.Scope, infos []*qosv1alpha1.QOSResourceInfo, before []nodeqosv1alpha1.QOSResourceInfo, now time.Time,
) (all []nodeqosv1alpha1.QOSResourceInfo) {
	known := make(map[string]nodeqosv1alpha1.QOSResourceInfo, len(before))
	for _, resource := range before {
		known[resource.Name] = resource
	}
	for _, info := range infos {
		foreign := h.of(classKey{scope, info.GetName(), ""})
		all = append(all, nodeqosv1alpha1.QOSResourceInfo{
			Name: info.GetName(), Mutable: info.GetMutable(), DefaultClass: info.GetDefaultClass(),
			Classes: h.classes(scope, info, known[info.GetName()].Classes, now), Foreign: foreign.foreign, ForeignOmitted: foreign.omitted,
			Conditions: conditions(info.GetConditions(), known[info.GetName()].Conditions, now),
		})
	}
	return all
}

func (h *holders) classes(
	scope qosv1alpha1.Scope, info *qosv1alpha1.QOSResourceInfo, before []nodeqosv1alpha1.QOSResourceClassInfo, now time.Time,
) []nodeqosv1alpha1.QOSResourceClassInfo {
	known := make(map[string][]metav1.Condition, len(before))
	for _, class := range before {
		known[class.Name] = class.Conditions
	}
	all := make([]nodeqosv1alpha1.QOSResourceClassInfo, 0, len(info.GetClasses()))
	for _, class := range info.GetClasses() {
		holders := h.of(classKey{scope, info.GetName(), class.GetName()})
		all = append(all, nodeqosv1alpha1.QOSResourceClassInfo{
			Name: class.GetName(), Capacity: signed(class.GetCapacity()), InUse: signed(class.GetInUse()),
			Description: cut(class.GetDescription(), longestDescription), Degraded: cut(class.GetDegraded(), longestMessage),
			Draining: class.GetDraining(), ExtendedResource: class.GetExtendedResource(),
			Conditions: conditions(class.GetConditions(), known[class.GetName()], now),
			Holders:    holders.holders, HoldersOmitted: holders.omitted,
		})
	}
	return all
}

func unavailable(resources []*qosv1alpha1.UnavailableResource) []nodeqosv1alpha1.UnavailableResource {
	scopes := map[qosv1alpha1.Scope]nodeqosv1alpha1.Scope{
		qosv1alpha1.Scope_SCOPE_CONTAINER: nodeqosv1alpha1.ScopeContainer, qosv1alpha1.Scope_SCOPE_POD: nodeqosv1alpha1.ScopePod,
		qosv1alpha1.Scope_SCOPE_VOLUME: nodeqosv1alpha1.ScopeVolume,
	}
	all := make([]nodeqosv1alpha1.UnavailableResource, 0, len(resources))
	for _, r := range resources {
		all = append(all, nodeqosv1alpha1.UnavailableResource{
			Name: r.GetName(), Scope: scopes[r.GetScope()], Reason: r.GetReason(), Message: cut(r.GetMessage(), longestMessage),
		})
	}
	return all
}

// config returns the status of the class files. It leaves out ConfigInfo.Generation, because the plugin counts generations
// from the beginning again after a restart.
func config(info *qosv1alpha1.ConfigInfo, before nodeqosv1alpha1.ConfigStatus) nodeqosv1alpha1.ConfigStatus {
	status := nodeqosv1alpha1.ConfigStatus{Hash: info.GetHash(), Error: cut(info.GetLastError(), longestMessage)}
	switch {
	case status.Hash == "":
	case status.Hash == before.Hash && before.LoadedAt != nil:
		status.LoadedAt = before.LoadedAt
	case info.GetLoadedAt() != nil:
		loaded := seconds(info.GetLoadedAt().AsTime())
		status.LoadedAt = &loaded
	}
	return status
}

func signed(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// conditions converts the plugin's conditions to Kubernetes conditions. If several conditions have the same type, it
// keeps the last one, because the API allows each type only once.
func conditions(reported []*qosv1alpha1.Condition, before []metav1.Condition, now time.Time) []metav1.Condition {
	if len(reported) == 0 {
		return nil
	}
	all := make([]metav1.Condition, 0, len(reported))
	for _, r := range reported {
		all = append(without(all, r.GetType()), dated(condition(r), before, now))
	}
	return all
}

func condition(r *qosv1alpha1.Condition) metav1.Condition {
	c := metav1.Condition{Type: r.GetType(), Status: metav1.ConditionFalse, Reason: r.GetReason(), Message: cut(r.GetMessage(), longestMessage)}
	switch {
	case r.GetReason() == qos.ReasonNotMeasured:
		c.Status = metav1.ConditionUnknown
	case r.GetHealthy():
		c.Status = metav1.ConditionTrue
	}
	if c.Reason == "" { // the reason is optional in the node API, but required in Kubernetes
		c.Reason = "AsExpected"
	}
	if r.GetLastTransitionTime() != nil {
		c.LastTransitionTime = metav1.NewTime(r.GetLastTransitionTime().AsTime())
	}
	return c
}

// dated sets the time of a condition's last transition. If the condition had the same status before, it keeps the
// earlier time. Otherwise it uses the condition's own time. If the condition has no time, it uses the present time.
func dated(c metav1.Condition, before []metav1.Condition, now time.Time) metav1.Condition {
	if c.LastTransitionTime.IsZero() {
		c.LastTransitionTime = metav1.NewTime(now)
	}
	if b := meta.FindStatusCondition(before, c.Type); b != nil && b.Status == c.Status {
		c.LastTransitionTime = b.LastTransitionTime
		// The message of a connection error may be different at every attempt. The earlier message is kept, so that the
		// status does not change.
		if c.Reason == nodeqosv1alpha1.ReasonNotAnswering && b.Reason == c.Reason {
			c.Message = b.Message
		}
	}
	c.LastTransitionTime = seconds(c.LastTransitionTime.Time)
	return c
}

func without(conditions []metav1.Condition, kind string) []metav1.Condition {
	return slices.DeleteFunc(conditions, func(c metav1.Condition) bool { return c.Type == kind })
}

func cut(text string, limit int) string { return kubeapi.Cut(text, limit, "…") }
