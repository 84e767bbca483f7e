// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeobject"
	"github.com/qos-nri/qos-nri-plugin/test/bubble"
)

// plugin simulates the plugin, and records the claims that it gets.
type plugin struct {
	mu  sync.Mutex // guards all below
	got []*qosv1alpha1.SetVolumeClaimsRequest
	err error
	// apply, if it is set, is called for each request.
	apply func()
}

func (p *plugin) set(_ context.Context, claims *qosv1alpha1.SetVolumeClaimsRequest) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got = append(p.got, claims)
	if p.apply != nil {
		p.apply()
	}
	return p.err
}

func (p *plugin) follow(o *nodeobject.Options) { o.SetClaims = p.set }

// withGold starts a publisher for a plugin in the given state, and then writes generation 2 of the spec, with a volume of class gold.
func (p *plugin) withGold(t *testing.T, state nodecache.State) *rig {
	t.Helper()
	r := start(t, serve(t, "uid-1"), state, p.follow)
	bubble.Pass(time.Minute)
	r.setSpec("gold", 2)
	return r
}

// fail makes all requests fail with this error, or succeed if it is nil.
func (p *plugin) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// take returns the claims since the last call.
func (p *plugin) take() []*qosv1alpha1.SetVolumeClaimsRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.got = nil }()
	return p.got
}

// setSpec writes a spec with one volume as qos-storage does.
func (a *api) setSpec(class string, generation int) {
	a.put(func(o object) object {
		o["metadata"].(map[string]any)["generation"] = generation
		o["metadata"].(map[string]any)["uid"] = "uid-of-object"
		o["spec"] = map[string]any{
			"written":       true,
			"volumeClasses": []any{map[string]any{"name": class, "maxReadBps": 500}},
			"volumes":       []any{map[string]any{"podUID": "u", "container": "main", "path": "/data", "claim": "db/data-0", "class": class}},
		}
		return o
	})
}

// withClaim returns the state of a ready plugin. The claim of its only volume gives the volume a class. The limits are
// in force if `device` is not empty.
func withClaim(class, device string) nodecache.State {
	state := ready(0)
	volume := &qosv1alpha1.VolumeAssignments{Path: "/data", Device: device, QosResources: []*qosv1alpha1.Assignment{
		{Name: "qos.noderesource.dev/claim-io", Class: class, Source: qosv1alpha1.Source_SOURCE_CLAIM, RequestedBy: "db/data-0"},
	}}
	state.Assignments = &qosv1alpha1.ListAssignmentsResponse{Pods: []*qosv1alpha1.PodAssignments{
		{Uid: "u", Namespace: "db", Name: "db-0", Containers: []*qosv1alpha1.ContainerAssignments{{Name: "main", Volumes: []*qosv1alpha1.VolumeAssignments{volume}}}},
	}}
	return state
}

// expectVolume checks the only volume and the observed generation of the published status.
func (r *rig) expectVolume(t *testing.T, want nodeqosv1alpha1.VolumeStatus, generation int64) {
	t.Helper()
	want.PodUID, want.Container, want.Path, want.Claim = "u", "main", "/data", "db/data-0"
	s := r.published(t).Status
	if diff := cmp.Diff([]nodeqosv1alpha1.VolumeStatus{want}, s.Volumes); diff != "" || s.ObservedGeneration != generation {
		t.Errorf("volumes of generation %d, want %d (-want +got):\n%s", s.ObservedGeneration, generation, diff)
	}
}

func inForce(class string) nodeqosv1alpha1.VolumeStatus {
	return nodeqosv1alpha1.VolumeStatus{
		ClaimedVolume: nodeqosv1alpha1.ClaimedVolume{Class: class}, State: nodeqosv1alpha1.VolumeInForce, Device: "253:3",
	}
}

func notEnforced(class, reason, message string) nodeqosv1alpha1.VolumeStatus {
	return nodeqosv1alpha1.VolumeStatus{
		ClaimedVolume: nodeqosv1alpha1.ClaimedVolume{Class: class}, State: nodeqosv1alpha1.VolumeNotEnforced, Reason: reason, Message: message,
	}
}

// notYetInForce is the status of a volume whose limits are not in force, if no other reason is known.
func notYetInForce(class string) nodeqosv1alpha1.VolumeStatus {
	return notEnforced(class, "NotRunning", "the container does not run")
}

func TestThePluginGetsTheSpecAfterEachChangeAndEachRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plugin{}
		r := start(t, serve(t, "uid-1"), ready(0), p.follow)
		bubble.Pass(time.Minute)
		p.take()

		r.setSpec("gold", 2)
		bubble.Pass(time.Minute)
		want := []*qosv1alpha1.SetVolumeClaimsRequest{{
			Classes: []*qosv1alpha1.VolumeClass{{Name: "gold", MaxReadBps: 500}},
			Volumes: []*qosv1alpha1.ClaimedVolume{{PodUid: "u", Container: "main", Path: "/data", Claim: "db/data-0", Class: "gold"}},
		}}

		if diff := cmp.Diff(want, p.take(), protocmp.Transform()); diff != "" {
			t.Errorf("the plugin got (-want +got):\n%s", diff)
		}

		r.expectVolume(t, notYetInForce("gold"), 2)

		// The plugin restarts, which its new start time shows. Now the limits are in force.
		r.plugin.Set(withClaim("gold", "253:3"))
		bubble.Pass(time.Minute)
		r.expectVolume(t, inForce("gold"), 2)
		if got := p.take(); len(got) != 1 {
			t.Errorf("after a restart the plugin got %v, want the spec once", got)
		}

		bubble.Pass(time.Hour)
		if got := p.take(); len(got) > 0 {
			t.Errorf("without a change the plugin got %v, want nothing", got)
		}
	})
}

func TestAnObjectThatIsMadeAgainKeepsTheLimitsUntilItsSpecIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plugin{}
		r := p.withGold(t, ready(0))
		bubble.Pass(time.Minute)
		p.take()

		r.put(func(o object) object {
			o["metadata"].(map[string]any)["uid"] = "uid-of-another"
			delete(o, "spec")
			return o
		})

		bubble.Pass(time.Minute)
		if got := p.take(); len(got) > 0 {
			t.Errorf("without a written spec, the plugin got %v, want nothing", got)
		}

		r.put(func(o object) object {
			o["spec"] = map[string]any{"written": true}
			return o
		})

		bubble.Pass(time.Minute)
		if got := p.take(); len(got) != 1 || len(got[0].GetVolumes()) > 0 {
			t.Errorf("after the spec was written, the plugin got %v, want one request without volumes", got)
		}
	})
}

// TestAVolumeIsReportedInForceOnlyWithTheClassOfTheSpec changes the class in the spec from gold to silver, while the limits of
// gold are in force. Until the plugin has accepted generation 3 of the spec, the status remains that of generation 2.
func TestAVolumeIsReportedInForceOnlyWithTheClassOfTheSpec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plugin{}
		r := p.withGold(t, withClaim("gold", "253:3"))
		bubble.Pass(time.Minute)
		r.expectVolume(t, inForce("gold"), 2)

		p.fail(status.Error(codes.Unavailable, "the plugin ends"))
		r.setSpec("silver", 3)
		bubble.Pass(time.Minute)
		r.expectVolume(t, inForce("gold"), 2)

		p.fail(nil)
		bubble.Pass(5 * time.Minute)
		// The plugin has accepted the spec, but its state still has class gold.
		r.expectVolume(t, notYetInForce("silver"), 3)
	})
}

// TestAVolumeIsNotInForceBeforeThePluginGotTheNewLimits replaces the limits of a class while its limits are in force. The
// publisher must not report the volume as in force for the new spec until the plugin enforces the new limits.
func TestAVolumeIsNotInForceBeforeThePluginGotTheNewLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plugin{}
		state := withClaim("gold", "253:3")
		r := p.withGold(t, state)
		bubble.Pass(time.Minute)

		p.apply = func() { // the plugin accepts the new limits, which are not in force yet
			after := withClaim("gold", "")
			after.Status = state.Status
			r.plugin.Set(after)
		}

		r.setSpec("gold", 3)
		for range 100 {
			bubble.Pass(100 * time.Millisecond)
			if s := r.published(t).Status; s.ObservedGeneration == 3 && s.Volumes[0].State == nodeqosv1alpha1.VolumeInForce {
				t.Fatal("a volume is reported as in force before the plugin got its limits")
			}
		}

		r.expectVolume(t, notYetInForce("gold"), 3)
	})
}

func TestTheStateOfAVolumeIsReported(t *testing.T) {
	limited := inForce("gold")
	limited.Message = "another program has set lower limits on 253:3 rbps=100"
	invalid := notEnforced("gold", "InvalidClass", `VolumeAttributesClass "lead" does not exist; the volume has the limits of class "gold"`)
	invalid.Device = "253:3" // the limits of gold stay in force
	for _, test := range []struct {
		name    string
		change  func(*nodecache.State)
		err     error  // of the plugin
		problem string // in the spec
		want    nodeqosv1alpha1.VolumeStatus
	}{
		{name: "another program has set lower limits", want: limited, change: func(s *nodecache.State) {
			s.Assignments.Pods[0].Containers[0].Volumes[0].QosResources[0].Foreign = "lower limits on 253:3 rbps=100"
		}},
		{name: "the plugin refuses the volume", want: notEnforced("gold", "SharedDisk", "the disk of the volume is shared"), change: func(s *nodecache.State) {
			s.Assignments = withClaim("", "").Assignments
			s.Assignments.Refusals = []*qosv1alpha1.Refusal{
				{PodUid: "u", Container: "main", Volume: "/other", Reason: "NoBlockDevice", Message: "tmpfs"},
				{PodUid: "u", Container: "main", Volume: "/data", Reason: "SharedDisk", Message: "the disk of the volume is shared", LastTime: timestamppb.Now()},
			}
		}},
		{name: "the machine has no limits of volumes", want: notEnforced("gold", "NoHierarchyInV1", "use cgroup v2"), change: func(s *nodecache.State) {
			s.Assignments.Pods = nil
			s.Status.UnavailableResources = []*qosv1alpha1.UnavailableResource{
				{Name: "qos.noderesource.dev/claim-io", Scope: qosv1alpha1.Scope_SCOPE_VOLUME, Reason: "NoHierarchyInV1", Message: "use cgroup v2"},
			}
		}},
		{name: "the plugin refuses the classes", err: status.Error(codes.InvalidArgument, `"1" is too small`),
			want: notEnforced("gold", "InvalidClasses", `"1" is too small`)},
		{name: "the publisher has the read-only socket", err: status.Error(codes.PermissionDenied, "this socket is read-only"),
			want: notEnforced("gold", "NotPermitted", "this socket is read-only; give the publisher the plugin's read-write socket, "+
				"as deploy/storage and the value storage.enabled of the Helm chart do")},
		{name: "the claim cannot have the class", problem: `VolumeAttributesClass "lead" does not exist`, want: invalid},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, state := &plugin{err: test.err}, withClaim("gold", "253:3")
				if test.change != nil {
					test.change(&state)
				}
				r := p.withGold(t, state)
				r.put(func(o object) object {
					o["spec"].(map[string]any)["volumes"].([]any)[0].(map[string]any)["problem"] = test.problem
					return o
				})
				bubble.Pass(time.Hour)
				r.expectVolume(t, test.want, 2) // the generation that withGold has written
				if got := p.take(); len(got) != 1 {
					t.Errorf("the plugin got the same spec %d times, want once", len(got))
				}
			})
		})
	}
}

// TestWithoutTheFlagTheSpecHasNoEffect: without the flag --follow-claims, the option SetClaims is nil.
func TestWithoutTheFlagTheSpecHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, serve(t, "uid-1"), withClaim("gold", "253:3"))
		bubble.Pass(time.Minute)
		r.setSpec("gold", 2)
		bubble.Pass(time.Minute)
		if s := r.published(t).Status; s.Volumes != nil || s.ObservedGeneration != 0 {
			t.Errorf("the status is %+v, want neither volumes nor observedGeneration", s)
		}
	})
}
