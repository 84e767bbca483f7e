// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject

import (
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
)

// awayGrace is how long the plugin may be away before that is told, so that its restart is no news.
const awayGrace = 30 * time.Second

// Bounds of texts, in bytes. The class files and the machine decide how long those are, and the object must stay small.
const (
	longestDescription = 1 << 10
	longestMessage     = 4 << 10
)

// statusOf says what the object's status should be, given what the plugin told, what the object says already, and the time. What is the
// same as before keeps its time, so that a restart of the plugin or of the shim changes nothing. ok is false while there is nothing to
// tell yet.
//
// While the plugin is away, all that it told last stays; if it has not told anything since the shim started, all that the object says stays.
func statusOf(state nodecache.State, before nodeqosv1alpha1.NodeQOSResourcesStatus, now time.Time) (status nodeqosv1alpha1.NodeQOSResourcesStatus, ok bool) {
	away := !state.Ready() && now.Sub(state.NotReadySince) >= awayGrace
	switch {
	case state.Status != nil:
		status = told(state.Status, state.Assignments, before, now)
	case away:
		status = *before.DeepCopy()
	default:
		return status, false
	}
	if away && state.Latest != nil {
		// It answers, but has no class files in force, or no runtime: what it says about these two is of now.
		node(&status, state.Latest, before, now)
	}
	ready := pluginReady(state, away)
	status.Conditions = append(without(status.Conditions, ready.Type), dated(ready, before.Conditions, now))
	return status, true
}

// told is the status without the condition PluginReady.
func told(
	s *qosv1alpha1.StatusResponse, assignments *qosv1alpha1.ListAssignmentsResponse, before nodeqosv1alpha1.NodeQOSResourcesStatus, now time.Time,
) nodeqosv1alpha1.NodeQOSResourcesStatus {
	list := newHolderList(assignments)
	status := nodeqosv1alpha1.NodeQOSResourcesStatus{
		QOSResources: nodeqosv1alpha1.QOSResourceStatus{
			PodQOSResources: resources(s.GetResources().GetPodQosResources(), before.QOSResources.PodQOSResources, list.pods, now),
			ContainerQOSResources: resources(s.GetResources().GetContainerQosResources(), before.QOSResources.ContainerQOSResources,
				list.containers, now),
		},
		UnavailableResources: unavailable(s.GetUnavailableResources()),
	}
	node(&status, s, before, now)
	return status
}

// node fills in what is of the node as a whole.
func node(status *nodeqosv1alpha1.NodeQOSResourcesStatus, s *qosv1alpha1.StatusResponse, before nodeqosv1alpha1.NodeQOSResourcesStatus, now time.Time) {
	status.Conditions = conditions(s.GetConditions(), before.Conditions, now)
	status.Config = config(s.GetConfig(), before.Config)
	status.Plugin = nodeqosv1alpha1.PluginStatus{Version: s.GetPlugin().GetVersion()}
	status.Runtime = nodeqosv1alpha1.RuntimeStatus{
		Name: s.GetRuntime().GetName(), Version: s.GetRuntime().GetVersion(), NRIVersion: s.GetRuntime().GetNriVersion(),
	}
}

func pluginReady(state nodecache.State, away bool) metav1.Condition {
	ready := metav1.Condition{
		Type: nodeqosv1alpha1.ConditionPluginReady, Status: metav1.ConditionTrue, Reason: nodeqosv1alpha1.ReasonReady,
		Message: "qos-nri-plugin answers, has class files in force and is registered with the container runtime.",
	}
	if away {
		ready.Status, ready.Message = metav1.ConditionFalse, cut(state.Problem, longestMessage)
		ready.Reason, ready.LastTransitionTime = nodeqosv1alpha1.ReasonNotReady, metav1.NewTime(state.NotReadySince)
		if state.Latest == nil {
			ready.Reason = nodeqosv1alpha1.ReasonNotAnswering
		}
	}
	return ready
}

func resources(
	infos []*qosv1alpha1.QOSResourceInfo, before []nodeqosv1alpha1.QOSResourceInfo, holders holdersOf, now time.Time,
) []nodeqosv1alpha1.QOSResourceInfo {
	known := make(map[string]nodeqosv1alpha1.QOSResourceInfo, len(before))
	for _, resource := range before {
		known[resource.Name] = resource
	}
	all := make([]nodeqosv1alpha1.QOSResourceInfo, 0, len(infos))
	for _, info := range infos {
		all = append(all, nodeqosv1alpha1.QOSResourceInfo{
			Name: info.GetName(), Mutable: info.GetMutable(), DefaultClass: info.GetDefaultClass(),
			Classes:    classesOf(info, holders),
			Conditions: conditions(info.GetConditions(), known[info.GetName()].Conditions, now),
		})
	}
	return all
}

func classesOf(info *qosv1alpha1.QOSResourceInfo, holders holdersOf) []nodeqosv1alpha1.QOSResourceClassInfo {
	all := make([]nodeqosv1alpha1.QOSResourceClassInfo, 0, len(info.GetClasses()))
	for _, class := range info.GetClasses() {
		listed, omitted := holders(info.GetName(), class.GetName())
		all = append(all, nodeqosv1alpha1.QOSResourceClassInfo{
			Name: class.GetName(), Capacity: signed(class.GetCapacity()), InUse: signed(class.GetInUse()),
			Description: cut(class.GetDescription(), longestDescription), Degraded: cut(class.GetDegraded(), longestMessage),
			Draining: class.GetDraining(), ExtendedResource: class.GetExtendedResource(),
			Holders: listed, HoldersOmitted: omitted,
		})
	}
	return all
}

func unavailable(resources []*qosv1alpha1.UnavailableResource) []nodeqosv1alpha1.UnavailableResource {
	all := make([]nodeqosv1alpha1.UnavailableResource, 0, len(resources))
	for _, r := range resources {
		all = append(all, nodeqosv1alpha1.UnavailableResource{
			Name: r.GetName(), Scope: scope(r.GetScope()), Reason: r.GetReason(), Message: cut(r.GetMessage(), longestMessage),
		})
	}
	return all
}

func scope(s qosv1alpha1.Scope) nodeqosv1alpha1.Scope {
	switch s {
	case qosv1alpha1.Scope_SCOPE_CONTAINER:
		return nodeqosv1alpha1.ScopeContainer
	case qosv1alpha1.Scope_SCOPE_POD:
		return nodeqosv1alpha1.ScopePod
	case qosv1alpha1.Scope_SCOPE_UNSPECIFIED:
	}
	return ""
}

// config leaves out how often the process has loaded files: that begins again with every process, and says nothing about the files.
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

// seconds is a time as the Kubernetes API keeps it.
func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }
