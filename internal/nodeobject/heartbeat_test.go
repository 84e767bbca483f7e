// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject_test

import (
	"testing"
	"testing/synctest"
	"time"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeobject"
	"github.com/qos-nri/qos-nri-plugin/test/bubble"
)

// lull is shorter than the time between two heartbeats.
const lull = 2 * time.Minute

// expectHeartbeats checks that, for some time, all requests are heartbeats, and the published status is never old.
func (r *rig) expectHeartbeats(t *testing.T, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		bubble.Pass(time.Minute)
		if heard := r.published(t).Status.LastHeartbeatTime; time.Since(heard.Time) > nodeqosv1alpha1.HeartbeatInterval {
			t.Errorf("the last heartbeat is %s old", time.Since(heard.Time))
		}
	}

	requests := r.takeRequests()
	for i, request := range requests {
		if request != []string{getNode, applyStatus}[i%2] {
			t.Errorf("request %d is %s, want only heartbeats", i, request)
		}
	}

	least, most := int(d/nodeqosv1alpha1.HeartbeatInterval), int(d/(nodeqosv1alpha1.HeartbeatInterval-time.Minute))+1
	if beats := len(requests) / 2; beats < least || beats > most {
		t.Errorf("%d heartbeats in %s, want %d to %d", beats, d, least, most)
	}
}

func TestPublisherRenewsTheStatus(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"in an idle hour, and writes nothing else": func(t *testing.T) {
			settled(t).expectHeartbeats(t, time.Hour)
		},
		"while the plugin is away": func(t *testing.T) {
			r := settled(t)
			away := ready(0)
			away.Latest, away.NotReadySince, away.Problem = nil, time.Now(), "does not answer"
			r.plugin.Set(away)
			bubble.Pass(lull)
			r.takeRequests()
			r.expectHeartbeats(t, time.Hour)
		},
		"until it ends, and then again when it is back": func(t *testing.T) {
			r := settled(t)
			r.stop()
			bubble.Pass(nodeqosv1alpha1.HeartbeatTimeout)
			if status := r.published(t).Status; !status.Expired(time.Now()) {
				t.Errorf("without a shim, the status with the heartbeat of %v has not expired", status.LastHeartbeatTime)
			}
			restarted := start(t, r.api, ready(0))
			bubble.Pass(time.Minute)
			restarted.expectRequests(t, watch, getNode, applyStatus)
			if status := restarted.published(t).Status; status.Expired(time.Now()) {
				t.Errorf("with a shim, the status with the heartbeat of %v has expired", status.LastHeartbeatTime)
			}
		},
		"after the clock was set back by an hour": func(t *testing.T) {
			r := settled(t)
			r.put(func(o object) object {
				o["status"].(map[string]any)["lastHeartbeatTime"] = time.Now().Add(time.Hour).Format(time.RFC3339)
				return o
			})
			bubble.Pass(time.Minute)
			r.expectRequests(t, getNode, applyStatus)
			r.expectHeartbeats(t, time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

func TestPublisherReportsWhetherAnnotationsAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := settled(t)
		for _, follows := range []bool{true, false} {
			r.stop()
			r = start(t, r.api, ready(0), func(o *nodeobject.Options) { o.FollowsAnnotations = follows })
			bubble.Pass(time.Minute)
			if got := r.published(t).Status.FollowsAnnotations; got != follows {
				t.Errorf("published %v, want %v", got, follows)
			}
		}
	})
}
