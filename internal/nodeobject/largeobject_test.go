// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
)

// full returns the state of a ready plugin with this number of pods. `replaced` of them have been replaced since the first state.
func full(pods, replaced int) nodecache.State {
	state := held(qosv1alpha1.Source_SOURCE_CONTAINER)
	app := state.Assignments.Pods[0]
	for i := range pods {
		name := fmt.Sprintf("%s-%d", strings.Repeat("p", 100), replaced+i)
		state.Assignments.Pods = append(state.Assignments.Pods, &qosv1alpha1.PodAssignments{
			Uid: name, Namespace: "a", Name: name, Containers: app.Containers,
		})
	}
	return state
}

// rollout replaces a pod every ten seconds, and returns the number of writes.
func (r *rig) rollout(pods int, d time.Duration) int {
	for i, end := 0, time.Now().Add(d); time.Now().Before(end); i++ {
		r.plugin.Set(full(pods, i))
		pass(10 * time.Second)
	}
	return r.writes()
}

// TestHoldersOfALargeObject has objects of about 20 kB, which a node may write each two minutes.
func TestHoldersOfALargeObject(t *testing.T) {
	const pods = 110
	settled := func(t *testing.T) *rig {
		r := start(t, serve(t, "uid-1"), full(pods, 0))
		pass(10 * time.Minute)
		r.takeRequests()
		if size := r.size(); size < 15_000 || size > 25_000 {
			t.Fatalf("the object has %d bytes", size)
		}
		return r
	}
	for name, test := range map[string]func(*testing.T){
		"a few changes are written within half a minute": func(t *testing.T) {
			r := settled(t)
			for i := range 3 {
				r.plugin.Set(full(pods, i+1))
				pass(31 * time.Second)
				if got := r.writes(); got != 1 {
					t.Errorf("%d writes of change %d", got, i)
				}
			}
		},
		"a rollout writes 10 kB a minute, after a burst of 40 kB": func(t *testing.T) {
			r := settled(t)
			const minutes = 30
			most := 40_000 + minutes*10_000 + r.size() // the last write may exceed the limit
			if bytes := r.rollout(pods, minutes*time.Minute) * r.size(); bytes < most/2 || bytes > most {
				t.Errorf("%d bytes in half an hour, want at most %d", bytes, most)
			}
		},
		"after a rollout, all holders are written before the next heartbeat, and later changes in half a minute": func(t *testing.T) {
			r := settled(t)
			r.rollout(pods, 15*time.Minute)
			r.plugin.Set(full(pods, 1000))
			pass(3 * time.Minute)
			want := full(pods, 1000).Assignments.Pods[pods].Name
			holders := r.published(t).Status.QOSResources.ContainerQOSResources[0].Classes[0].Holders
			if len(holders) != pods+1 || holders[pods].Pod != want {
				t.Errorf("%d holders, the last of them %v", len(holders), holders[len(holders)-1])
			}
			pass(10 * time.Minute)
			r.takeRequests()
			r.plugin.Set(full(pods, 0))
			pass(31 * time.Second)
			if got := r.writes(); got != 1 {
				t.Errorf("%d writes of a later change", got)
			}
		},
		"during a rollout, changes of classes and of running containers are written at once": func(t *testing.T) {
			r := settled(t)
			r.rollout(pods, 15*time.Minute)
			state := full(pods, 1000)
			state.Status.Resources.ContainerQosResources[0].Classes[0].Capacity = 7
			for what, state := range map[string]nodecache.State{"capacity": state, "a running container": held(qosv1alpha1.Source_SOURCE_UPDATE)} {
				r.plugin.Set(state)
				pass(6 * time.Second)
				if got := r.writes(); got != 1 {
					t.Errorf("%d writes of a change of %s", got, what)
				}
			}
		},
		"a rollout with a very large object delays neither heartbeats nor, after it, small objects": func(t *testing.T) {
			r := settled(t)
			for i := range 60 {
				r.plugin.Set(full(400, i))
				pass(30 * time.Second)
				if at := r.published(t).Status.LastHeartbeatTime; time.Since(at.Time) > nodeqosv1alpha1.HeartbeatInterval {
					t.Fatalf("the last heartbeat is %s old", time.Since(at.Time))
				}
			}
			if got := r.writes(); got > 10 {
				t.Errorf("%d writes of %d bytes in half an hour", got, r.size())
			}
			pass(6 * time.Minute)
			r.takeRequests()
			r.plugin.Set(full(1, 0))
			pass(6 * time.Minute)
			r.plugin.Set(full(2, 0))
			pass(6 * time.Minute)
			r.takeRequests()
			r.plugin.Set(full(3, 0))
			pass(31 * time.Second)
			if got := r.writes(); got != 1 {
				t.Errorf("%d writes of a small change", got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}
