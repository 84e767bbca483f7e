// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
)

// claimsTimeout is the maximum duration of one call of SetClaims. It is shorter than reconcileTimeout.
const claimsTimeout = 20 * time.Second

// followed identifies the last spec that the plugin has accepted or refused.
type followed struct {
	// uid and generation identify the spec of an object. `started` is the start time of the plugin.
	// A restarted plugin may have older claims, so the spec is sent again after a restart.
	uid        string
	generation int64
	started    time.Time
	// reason and message say why the plugin refused the spec. They are empty if the plugin accepted it.
	reason, message string
}

// follow sends the spec to the plugin, unless the running plugin has already accepted or refused it. `sent` is true if
// follow has sent the spec; the plugin's state that the caller passed is then out of date. follow does not send the empty
// spec of a new object that qos-storage has not written yet: the plugin would remove the limits of all claims.
func (p *Publisher) follow(ctx context.Context, object nodeqosv1alpha1.NodeQOSResources, state nodecache.State) (sent bool, _ error) {
	wanted := p.claims
	wanted.uid, wanted.generation, wanted.started = string(object.UID), object.Generation, state.Status.GetPlugin().GetStartedAt().AsTime()
	if p.options.SetClaims == nil || !object.Spec.Written || !state.Ready() || wanted == p.claims {
		return false, nil
	}

	ctx, cancel := context.WithTimeout(ctx, claimsTimeout)
	defer cancel()
	err := p.options.SetClaims(ctx, claimsOf(object.Spec))
	wanted.reason, wanted.message = "", ""
	switch grpcstatus.Code(err) {
	case codes.OK:
	case codes.InvalidArgument:
		wanted.reason, wanted.message = nodeqosv1alpha1.ReasonInvalidClasses, grpcstatus.Convert(err).Message()
	case codes.PermissionDenied:
		wanted.reason = nodeqosv1alpha1.ReasonNotPermitted
		wanted.message = grpcstatus.Convert(err).Message() + "; give the publisher the plugin's read-write socket, " +
			"as deploy/storage and the value storage.enabled of the Helm chart do"
	default:
		return false, fmt.Errorf("apply the spec of NodeQOSResources %s to the node: %w", p.options.NodeName, err)
	}
	if wanted.reason != "" {
		wanted.message = cut(wanted.message, longestMessage)
		p.options.Log.Warn("the plugin refuses the spec of the NodeQOSResources object", "name", p.options.NodeName, "problem", wanted.message)
	}
	p.claims = wanted
	return true, nil
}

func claimsOf(spec nodeqosv1alpha1.NodeQOSResourcesSpec) *qosv1alpha1.SetVolumeClaimsRequest {
	request := &qosv1alpha1.SetVolumeClaimsRequest{}
	for _, class := range spec.VolumeClasses {
		request.Classes = append(request.Classes, qosv1alpha1.NewVolumeClass(class.Name, class.VolumeLimits))
	}
	for _, v := range spec.Volumes {
		request.Volumes = append(request.Volumes, &qosv1alpha1.ClaimedVolume{
			PodUid: v.PodUID, Container: v.Container, Path: v.Path, Claim: v.Claim, Class: v.Class,
		})
	}
	return request
}

// setVolumes sets the volumes and the observed generation of a status. Until the plugin has accepted or refused the
// current spec of the object, these fields keep their values. If the publisher cannot send specs to the plugin, they are
// cleared.
func (p *Publisher) setVolumes(desired *nodeqosv1alpha1.NodeQOSResourcesStatus, object nodeqosv1alpha1.NodeQOSResources, state nodecache.State) {
	switch {
	case p.options.SetClaims == nil:
		desired.Volumes, desired.ObservedGeneration = nil, 0
		return
	case p.claims.generation != object.Generation || p.claims.uid != string(object.UID):
		desired.Volumes, desired.ObservedGeneration = object.Status.Volumes, object.Status.ObservedGeneration
		return
	}

	since := map[nodeqosv1alpha1.VolumeStatus]nodeqosv1alpha1.VolumeStatus{}
	for _, before := range object.Status.Volumes {
		since[withoutSince(before)] = before
	}
	desired.Volumes, desired.ObservedGeneration = nil, object.Generation
	for _, volume := range object.Spec.Volumes {
		now := p.volume(volume, state)
		if now.Since == nil {
			now.Since = since[now].Since // a restarted plugin does not know when the limits came into force
		}
		desired.Volumes = append(desired.Volumes, now)
	}
}

func withoutSince(v nodeqosv1alpha1.VolumeStatus) nodeqosv1alpha1.VolumeStatus {
	v.Since = nil
	return v
}

// volume returns the state of a volume of the spec.
func (p *Publisher) volume(claimed nodeqosv1alpha1.ClaimedVolume, state nodecache.State) nodeqosv1alpha1.VolumeStatus {
	s := nodeqosv1alpha1.VolumeStatus{ClaimedVolume: claimed, State: nodeqosv1alpha1.VolumeNotEnforced}
	s.Problem = "" // the field Message has the problem
	if v := volumeInForce(claimed, state.Assignments); v != nil && p.claims.reason == "" {
		s.State, s.Device = nodeqosv1alpha1.VolumeInForce, v.GetDevice()
		if v.GetInForceSince() != nil {
			s.Since = new(seconds(v.GetInForceSince().AsTime()))
		}
		for _, a := range v.GetQosResources() {
			if foreign := a.GetForeign(); foreign != "" { // lower limits
				s.Message = cut("another program has set "+foreign, longestMessage)
			}
		}
		if claimed.Problem != "" {
			s.State, s.Reason = nodeqosv1alpha1.VolumeNotEnforced, nodeqosv1alpha1.ReasonInvalidClass
			s.Message = cut(fmt.Sprintf("%s; the volume has the limits of class %q", claimed.Problem, claimed.Class), longestMessage)
		}
		return s
	}

	s.Reason, s.Message = nodeqosv1alpha1.ReasonNotRunning, "the container does not run"
	for _, r := range state.Status.GetUnavailableResources() {
		if r.GetScope() == qosv1alpha1.Scope_SCOPE_VOLUME { // all resources of volumes are unavailable for the same reason
			s.Reason, s.Message = r.GetReason(), r.GetMessage()
		}
	}
	for _, r := range state.Assignments.GetRefusals() {
		if refused := r.Subject(); refused == claimed.Subject() || refused == claimed.Subject().WithoutVolume() {
			s.Reason, s.Message = r.GetReason(), r.GetMessage()
		}
	}
	if p.claims.reason != "" {
		s.Reason, s.Message = p.claims.reason, p.claims.message
	}
	s.Message = cut(s.Message, longestMessage)
	return s
}

// volumeInForce returns the volume if it has the class of its claim, and nil otherwise.
func volumeInForce(claimed nodeqosv1alpha1.ClaimedVolume, assignments *qosv1alpha1.ListAssignmentsResponse) *qosv1alpha1.VolumeAssignments {
	hasClass := func(a *qosv1alpha1.Assignment) bool {
		return a.GetSource() == qosv1alpha1.Source_SOURCE_CLAIM && a.GetClass() == claimed.Class
	}
	for _, pod := range assignments.GetPods() {
		if pod.GetUid() != claimed.PodUID {
			continue
		}
		for _, c := range pod.GetContainers() {
			for _, v := range c.GetVolumes() {
				if c.GetName() == claimed.Container && v.GetPath() == claimed.Path && v.GetDevice() != "" && slices.ContainsFunc(v.GetQosResources(), hasClass) {
					return v
				}
			}
		}
	}
	return nil
}
