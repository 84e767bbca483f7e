// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/test/bubble"
)

// crowded returns the state of a ready plugin. The pods of namespace z hold class gold and have many refusals; their names have characters
// that JSON writes as six bytes. The pod a/web has one holder and one refusal.
func crowded(pods int) nodecache.State {
	state := held(qosv1alpha1.Source_SOURCE_CONTAINER)
	state.Assignments.Refusals = refusing("app").Assignments.Refusals
	for i := range pods {
		name := fmt.Sprintf("%s%d", strings.Repeat("<", 60), i)
		pod := &qosv1alpha1.PodAssignments{Uid: name, Namespace: "z", Name: name, QosResources: state.Assignments.Pods[0].Containers[0].QosResources}
		pod.Containers = []*qosv1alpha1.ContainerAssignments{{Name: name, QosResources: pod.QosResources}}
		state.Assignments.Pods = append([]*qosv1alpha1.PodAssignments{pod}, state.Assignments.Pods...)
		refusal := &qosv1alpha1.Refusal{PodUid: name, Namespace: "z", Pod: name, Container: name, Reason: "ClassFull", Message: name}
		state.Assignments.Refusals = append([]*qosv1alpha1.Refusal{refusal}, state.Assignments.Refusals...)
	}
	return state
}

// incomplete returns the message of the condition that something is left out, or "" without this condition.
func (r *rig) incomplete(t *testing.T) string {
	t.Helper()
	c := meta.FindStatusCondition(r.published(t).Status.Conditions, "ReportComplete")
	if c == nil {
		return ""
	}
	if c.Status != metav1.ConditionFalse || c.Reason != "TooLarge" {
		t.Errorf("the condition is %+v", c)
	}
	return c.Message
}

func (r *rig) size() int { return len(encode(r.get())) }

// TestTheObjectIsAlwaysSmallEnough gives the object many holders, refusals and volumes, with long messages.
func TestTheObjectIsAlwaysSmallEnough(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"the holders and refusals of a namespace stay beside those of a crowded one": func(t *testing.T) {
			r := start(t, serve(t, "uid-1"), crowded(900))
			bubble.Pass(time.Minute)
			s := r.published(t).Status
			holders := s.QOSResources.ContainerQOSResources[0].Classes[0].Holders
			if len(holders) == 0 || holders[len(holders)-1].Namespace != "a" || s.Refusals[len(s.Refusals)-1].Namespace != "a" {
				t.Errorf("%d holders and %d refusals are without those of namespace a", len(holders), len(s.Refusals))
			}
			if r.size() > 400<<10 {
				t.Errorf("the object has %d bytes, want at most 400 KiB", r.size())
			}
			if got := r.incomplete(t); !strings.Contains(got, "holders of classes; refusals") {
				t.Errorf("the condition says %q", got)
			}
		},
		"the messages of volumes are cut in a crowded namespace only": func(t *testing.T) {
			p := &plugin{}
			state := ready(0)
			state.Status.UnavailableResources = []*qosv1alpha1.UnavailableResource{
				{Name: "qos.noderesource.dev/claim-io", Scope: qosv1alpha1.Scope_SCOPE_VOLUME, Reason: "NoController", Message: strings.Repeat("<", 4000)},
			}
			r := p.withGold(t, state)
			r.put(func(o object) object {
				var volumes []any
				for i := range 1000 {
					namespace := "z"
					if i == 999 { // only the last volume is of another namespace
						namespace = "a"
					}
					volumes = append(volumes, map[string]any{
						"podUID": "u", "container": "main", "path": fmt.Sprintf("/%03d", i), "claim": namespace + "/data", "class": "gold"})
				}
				o["spec"].(map[string]any)["volumes"], o["spec"].(map[string]any)["volumesOmitted"] = volumes, 7
				o["metadata"].(map[string]any)["generation"] = 3
				return o
			})
			bubble.Pass(time.Minute)
			volumes := r.published(t).Status.Volumes
			if r.size() > 500<<10 || len(volumes) != 1000 || volumes[999].Message == "…" || volumes[998].Message != "…" {
				t.Errorf("the object has %d bytes and %d volumes; the last messages are %.9q, %.9q", r.size(), len(volumes), volumes[998].Message, volumes[999].Message)
			}
			if got := r.incomplete(t); !strings.Contains(got, "7 volumes of claims, which therefore have no limits; messages of volumes") {
				t.Errorf("the condition says %q", got)
			}
		},
		"the descriptions of classes are limited": func(t *testing.T) {
			state := ready(0)
			classes := &state.Status.Resources.ContainerQosResources[0].Classes
			for i := range 255 {
				*classes = append(*classes, &qosv1alpha1.QOSResourceClassInfo{Name: fmt.Sprint(i), Description: strings.Repeat("<", 1000), Degraded: strings.Repeat("<", 4000)})
			}
			r := start(t, serve(t, "uid-1"), state)
			bubble.Pass(time.Minute)
			if got := r.incomplete(t); r.size() > 128<<10 || !strings.Contains(got, "descriptions and messages") {
				t.Errorf("the object has %d bytes; the condition says %q", r.size(), got)
			}
			r.plugin.Set(ready(0))
			bubble.Pass(time.Minute)
			if got := r.incomplete(t); got != "" {
				t.Errorf("nothing is left out, but the condition says %q", got)
			}
		},
		"a status that the API server finds too large is reduced": func(t *testing.T) {
			const tooLarge = `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"message":"etcdserver: request is too large"}`
			a := serve(t, "uid-1")
			a.refuse(func(r *http.Request) (int, string, string) {
				if r.Method == http.MethodPatch && r.ContentLength > 32<<10 {
					return http.StatusInternalServerError, tooLarge, ""
				}
				return 0, "", ""
			})
			r := start(t, a, crowded(100))
			bubble.Pass(time.Minute)
			s := r.published(t).Status
			if len(s.QOSResources.ContainerQOSResources) == 0 {
				t.Fatalf("the API server has the status %+v", s)
			}
			class := s.QOSResources.ContainerQOSResources[0].Classes[0]
			if len(class.Holders) > 0 || class.HoldersOmitted != 101 || len(s.Refusals) > 0 || s.RefusalsOmitted != 101 {
				t.Errorf("the status has %d holders and %d refusals, and omits %d and %d", len(class.Holders), len(s.Refusals), class.HoldersOmitted, s.RefusalsOmitted)
			}
			if got := r.incomplete(t); !strings.Contains(got, "because the API server has refused a larger object") {
				t.Errorf("the condition says %q", got)
			}
			written := *s.LastHeartbeatTime
			bubble.Pass(12 * time.Minute) // then a status without a heartbeat would have expired
			if s := r.published(t).Status; !s.LastHeartbeatTime.After(written.Time) || s.Expired(time.Now()) {
				t.Errorf("the last heartbeat is at %v, the first at %v", s.LastHeartbeatTime, written)
			}

			r.plugin.Set(crowded(0))
			bubble.Pass(6 * time.Minute) // the status stays reduced for 5 minutes
			if got := r.incomplete(t); got != "" {
				t.Errorf("nothing is left out, but the condition says %q", got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}
