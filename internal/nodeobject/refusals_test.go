// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/test/bubble"
)

// refusing returns the state of a ready plugin that refuses the requests of these containers of the pod a/web.
func refusing(containers ...string) nodecache.State {
	state := ready(0)
	for _, name := range containers {
		state.Assignments.Refusals = append(state.Assignments.Refusals, &qosv1alpha1.Refusal{
			PodUid: "uid-web", Namespace: "a", Pod: "web", Container: name, Reason: "ClassFull", Message: "pod a/web container " + name + ": full",
			Count: 1, LastTime: timestamppb.Now(),
		})
	}
	return state
}

// refused returns the refusal of a container of the pod a/web, as it is in the object.
func refused(container, reason string) nodeqosv1alpha1.Refusal {
	return nodeqosv1alpha1.Refusal{Namespace: "a", Pod: "web", PodUID: "uid-web", Container: container, Reason: reason, Message: "full"}
}

// refuseChange makes the publisher publish a refused change of a container of the pod a/web.
func (r *rig) refuseChange(container string) {
	change := refused(container, "ChangeRefused")
	change.Message = "pod a/web container " + container + ": full"
	r.publisher.SetRefusedChanges("a/web", []nodeqosv1alpha1.Refusal{change})
}

func (r *rig) expectRefusals(t *testing.T, want ...nodeqosv1alpha1.Refusal) {
	t.Helper()
	if diff := cmp.Diff(want, r.published(t).Status.Refusals); diff != "" {
		t.Errorf("refusals (-want +got):\n%s", diff)
	}
}

func TestPublisherReportsRefusals(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"a refusal is one write, and so is its end": func(t *testing.T) {
			r := settled(t)
			r.plugin.Set(refusing("app", "log"))
			bubble.Pass(lull)
			r.expectRequests(t, getNode, applyStatus)
			r.expectRefusals(t, refused("app", "ClassFull"), refused("log", "ClassFull"))
			r.plugin.Set(ready(0))
			bubble.Pass(lull)
			r.expectRequests(t, getNode, applyStatus)
			r.expectRefusals(t)
		},
		"a refusal that is repeated is no write": func(t *testing.T) {
			r := settled(t)
			for i := range uint64(10) {
				state := refusing("app")
				state.Assignments.Refusals[0].Count = i + 1
				r.plugin.Set(state)
				bubble.Pass(10 * time.Second)
			}
			r.expectRequests(t, getNode, applyStatus)
		},
		"many refusals in a minute are a write every half minute": func(t *testing.T) {
			r := settled(t)
			for i := range 60 {
				r.plugin.Set(refusing(fmt.Sprint("app-", i)))
				bubble.Pass(time.Second)
			}
			if got := r.writes(); got != 2 {
				t.Errorf("%d writes, want 2", got)
			}
		},
		"a refused change comes first, and does not wait with the other refusals": func(t *testing.T) {
			r := settled(t)
			r.plugin.Set(refusing("app"))
			bubble.Pass(2 * time.Second)
			r.expectRequests(t, getNode, applyStatus)
			r.plugin.Set(refusing("app", "log"))
			bubble.Pass(10 * time.Second)
			r.expectRequests(t)
			r.refuseChange("side")
			bubble.Pass(time.Second)
			r.expectRequests(t, getNode, applyStatus)
			r.expectRefusals(t, refused("side", "ChangeRefused"), refused("app", "ClassFull"), refused("log", "ClassFull"))
			r.refuseChange("side")
			bubble.Pass(lull)
			r.expectRequests(t)
		},
		"a refused change ends with its pod": func(t *testing.T) {
			r := settled(t)
			r.refuseChange("side")
			bubble.Pass(time.Minute)
			r.publisher.SetRefusedChanges("a/web", nil)
			bubble.Pass(time.Minute)
			r.expectRequests(t, getNode, applyStatus, getNode, applyStatus)
			r.expectRefusals(t)
		},
		"a shim that restarts keeps the refusals": func(t *testing.T) {
			r := start(t, serve(t, "uid-1"), refusing("app"))
			bubble.Pass(time.Minute)
			r.stop()
			r.takeRequests()
			restarted := start(t, r.api, nodecache.State{NotReadySince: time.Now(), Problem: "not yet"})
			bubble.Pass(time.Minute)
			restarted.expectRefusals(t, refused("app", "ClassFull"))
		},
		"refusals for which the object has no room are counted": func(t *testing.T) {
			var names []string
			for i := range 2000 {
				names = append(names, fmt.Sprintf("app-%04d-%s", i, strings.Repeat("x", 50)))
			}
			r := start(t, serve(t, "uid-1"), refusing(names...))
			bubble.Pass(time.Minute)
			status := r.published(t).Status
			data, err := json.Marshal(status.Refusals)
			// The refusals may have 64 KiB, and use most of this.
			if err != nil || len(data) > 64<<10 || len(data) < 56<<10 || int64(len(status.Refusals))+status.RefusalsOmitted != 2000 {
				t.Errorf("%d bytes with %d refusals, and %d omitted, want 2000 in all; the error is %v", len(data), len(status.Refusals), status.RefusalsOmitted, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}
