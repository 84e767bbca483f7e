// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/test/bubble"
)

func TestPublisherWritesOncePerChange(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"the object is created once, owned by its node, then its status": func(t *testing.T) {
			r := start(t, serve(t, "uid-1"), ready(1))
			bubble.Pass(time.Minute)
			r.expectRequests(t, watch, getNode, applyObject, applyStatus)
			r.expectOwner(t, "uid-1")
			r.expectInUse(t, 1)
			r.log.Expect(t)
		},
		"a change is one write, a second later": func(t *testing.T) {
			r := settled(t)
			r.plugin.Set(ready(1))
			bubble.Pass(time.Second - 1) // a nanosecond less than a second
			r.expectRequests(t)
			bubble.Pass(1)
			r.expectRequests(t, getNode, applyStatus)
			r.expectInUse(t, 1)
			bubble.Pass(lull)
			r.expectRequests(t)
		},
		"many changes in a minute are a write every five seconds, with the last of them": func(t *testing.T) {
			r := settled(t)
			for i := range 600 {
				r.plugin.Set(described(uint64(i + 1)))
				bubble.Pass(100 * time.Millisecond)
			}
			bubble.Pass(time.Minute)
			if got := r.writes(); got != 13 {
				t.Errorf("%d writes, want 13", got)
			}
			r.expectInUse(t, 600)
		},
		"many changes of holders in a minute are a write every half minute, with the last of them": func(t *testing.T) {
			r := settled(t)
			for i := range 600 {
				r.plugin.Set(ready(uint64(i + 1)))
				bubble.Pass(100 * time.Millisecond)
			}
			bubble.Pass(32 * time.Second)
			if got := r.writes(); got != 3 && got != 4 {
				t.Errorf("%d writes, want 3 or 4", got)
			}
			r.expectInUse(t, 600)
			bubble.Pass(lull)
			r.expectRequests(t)
		},
		"a change of a running container does not wait with the other holders": func(t *testing.T) {
			r := settled(t)
			r.plugin.Set(ready(1))
			bubble.Pass(2 * time.Second)
			r.plugin.Set(held(qosv1alpha1.Source_SOURCE_CONTAINER))
			bubble.Pass(10 * time.Second)
			r.expectRequests(t, getNode, applyStatus)
			r.plugin.Set(held(qosv1alpha1.Source_SOURCE_UPDATE))
			bubble.Pass(6 * time.Second)
			r.expectRequests(t, getNode, applyStatus)
			if got := r.published(t).Status.QOSResources.ContainerQOSResources[0].Classes[0].Holders; len(got) != 1 || got[0].Source != "update" {
				t.Errorf("the holders are %v, want one with the source update", got)
			}
			bubble.Pass(lull)
			r.expectRequests(t)
		},
		"other changes do not wait for holders": func(t *testing.T) {
			r := settled(t)
			r.plugin.Set(ready(1))
			bubble.Pass(2 * time.Second)
			r.plugin.Set(ready(2))
			bubble.Pass(10 * time.Second)
			r.expectRequests(t, getNode, applyStatus)
			r.expectInUse(t, 1)
			r.plugin.Set(described(2))
			bubble.Pass(2 * time.Second)
			r.expectRequests(t, getNode, applyStatus)
			r.expectInUse(t, 2)
			bubble.Pass(lull)
			r.expectRequests(t)
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

func TestPublisherWritesNothingForARestartWithoutChanges(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"a shim that restarts writes nothing when nothing has changed": func(t *testing.T) {
			r := settled(t)
			r.stop()
			restarted := start(t, r.api, ready(0))
			bubble.Pass(lull)
			restarted.expectRequests(t, watch, getNode)
		},
		"a shim that restarts before the plugin leaves what there is": func(t *testing.T) {
			r := settled(t)
			r.stop()
			restarted := start(t, r.api, nodecache.State{NotReadySince: time.Now(), Problem: "not yet"})
			bubble.Pass(29 * time.Second) // after 30 s, the plugin would be published as not ready
			restarted.expectRequests(t, watch)
			restarted.plugin.Set(ready(0))
			bubble.Pass(lull)
			restarted.expectRequests(t, getNode)
		},
		"a plugin that restarts changes nothing": func(t *testing.T) {
			r := settled(t)
			away := ready(0)
			away.Latest, away.NotReadySince, away.Problem = nil, time.Now(), "gone"
			r.plugin.Set(away)
			bubble.Pass(29 * time.Second)
			r.plugin.Set(ready(0))
			bubble.Pass(lull)
			r.expectRequests(t)
		},
		"a plugin that stays away is published once, with its classes as they were, and so is its return": func(t *testing.T) {
			r := settled(t)
			away := ready(2) // at the moment when the plugin goes away, the class has 2 assignments instead of 0
			away.Latest, away.NotReadySince, away.Problem = nil, time.Now(), "does not answer"
			began := away.NotReadySince
			r.plugin.Set(away)
			bubble.Pass(lull)
			r.expectInUse(t, 2)
			if got := r.ready(t); got.Status != metav1.ConditionFalse || got.Message != "does not answer" || got.LastTransitionTime.Unix() != began.Unix() {
				t.Errorf("the condition is %+v, want one that is false since %v", got, began)
			}
			// The first write has the 2 assignments. The second one, after the grace period, has the condition.
			if got := r.writes(); got != 2 {
				t.Errorf("%d writes, want 2", got)
			}
			r.plugin.Set(ready(2))
			bubble.Pass(lull)
			if got := r.ready(t); got.Status != metav1.ConditionTrue || r.writes() != 1 {
				t.Errorf("the condition is %+v, want a true one after one write", got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

func TestPublisherKeepsTheObjectBesideOtherClients(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"an object that is deleted is created again": func(t *testing.T) {
			r := settled(t)
			r.put(func(object) object { return nil })
			bubble.Pass(lull)
			r.expectRequests(t, getNode, applyObject, applyStatus)
			r.expectInUse(t, 0)
		},
		"changes of other clients are overwritten": func(t *testing.T) {
			r := settled(t)
			r.put(func(o object) object { o["status"] = object{}; return o })
			bubble.Pass(lull)
			r.expectRequests(t, getNode, applyStatus)
			r.expectInUse(t, 0)
		},
		"additions of other clients stay": func(t *testing.T) {
			r := settled(t)
			r.put(func(o object) object {
				o["metadata"].(map[string]any)["labels"] = object{"a": "b"}
				return o
			})
			bubble.Pass(lull)
			r.expectRequests(t)
		},
		"a condition of another client stays, and causes one write at most": func(t *testing.T) {
			r := settled(t)
			r.put(func(o object) object {
				status := o["status"].(map[string]any)
				status["conditions"] = append(status["conditions"].([]any), object{"type": "Foreign", "status": "True", "reason": "A", "message": ""})
				return o
			})
			bubble.Pass(time.Minute)
			if got := r.writes(); got > 1 {
				t.Errorf("%d writes, want at most 1", got)
			}
			for range 10 {
				state, _ := r.plugin.Get()
				r.plugin.Set(state)
				bubble.Pass(10 * time.Second)
			}
			r.expectRequests(t)
			if got := len(r.published(t).Status.Conditions); got != 3 {
				t.Errorf("%d conditions, want the two of the publisher and the foreign one", got)
			}
		},
		"a watch that lags behind the answers to writes causes no write": func(t *testing.T) {
			r := settled(t)
			r.lag(0)
			for _, inUse := range []uint64{1, 2} {
				r.plugin.Set(ready(inUse))
				bubble.Pass(time.Minute)
				r.expectRequests(t, getNode, applyStatus)
				r.plugin.Set(ready(inUse))
				bubble.Pass(10 * time.Second)
				r.expectRequests(t)
			}
			for behind := range 3 { // the watch catches up, one version after the other
				r.lag(2 - behind)
				bubble.Pass(10 * time.Second)
				r.expectRequests(t)
			}
		},
		"a recreated node owns the object": func(t *testing.T) {
			r := settled(t)
			r.setNode("uid-2")
			r.put(func(object) object { return nil }) // the garbage collector deletes the object of the old Node
			bubble.Pass(time.Minute)
			r.expectRequests(t, getNode, applyObject, applyStatus)
			r.expectOwner(t, "uid-2")
		},
		"a recreated node is noticed at the next write, without a garbage collector": func(t *testing.T) {
			r := settled(t)
			r.setNode("uid-2")
			r.plugin.Set(ready(1))
			bubble.Pass(time.Minute)
			r.expectRequests(t, getNode, applyObject, applyStatus)
			r.expectOwner(t, "uid-2")
		},
		"a watch that ends is resumed": func(t *testing.T) {
			r := settled(t)
			r.endWatches()
			bubble.Pass(time.Minute)
			r.expectRequests(t, watch)
			r.plugin.Set(ready(1))
			bubble.Pass(time.Minute)
			r.expectRequests(t, getNode, applyStatus)
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

func TestPublisherRetriesAndLogsFailuresOnce(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"a node name that does not exist is logged once, and retried slowly": func(t *testing.T) {
			r := start(t, serve(t, ""), ready(0))
			bubble.Pass(time.Minute)
			r.log.Expect(t, `this cluster has no node \"n1\"; set --node-name to the name of this node in \"kubectl get nodes\"`)
			r.expectSlowRetries(t)
			r.setNode("uid-1")
			bubble.Pass(2 * time.Minute)
			r.expectOwner(t, "uid-1")
			r.log.Expect(t, "works again")
		},
		"a CRD that is not installed is logged once with the remedy": func(t *testing.T) {
			a := serve(t, "uid-1")
			a.refuse(on(list, 404, "404 page not found", ""))
			r := start(t, a, ready(0))
			r.expectSlowRetries(t)
			r.log.Expect(t, "kubectl apply -f deploy/kubernetes/crd.yaml")
			r.refuse(nil)
			bubble.Pass(2 * time.Minute)
			r.expectInUse(t, 0)
			r.log.Expect(t, "works again")
		},
		"missing permission is logged once with the remedy": func(t *testing.T) {
			a := serve(t, "uid-1")
			a.refuse(on(applyStatus, 403, failure(403, "Forbidden", `x is forbidden: User "u" cannot patch resource "nodeqosresources/status" in API group "g"`), ""))
			r := start(t, a, ready(0))
			r.expectSlowRetries(t)
			r.log.Expect(t, "u may not patch nodeqosresources/status (g); bind this user to the ClusterRole of deploy/kubernetes/rbac.yaml")
		},
		"a conflict is retried": func(t *testing.T) {
			r := settled(t)
			r.refuse(on(applyStatus, 409, failure(409, "Conflict", "modified"), ""))
			r.plugin.Set(ready(1))
			bubble.Pass(time.Second)
			r.refuse(nil)
			bubble.Pass(time.Minute)
			r.expectInUse(t, 1)
			r.log.Expect(t, "modified concurrently", "works again")
		},
		"an overloaded server gets no request before its Retry-After": func(t *testing.T) {
			r := settled(t)
			r.refuse(on(applyStatus, 429, "Too many requests", "120"))
			r.plugin.Set(ready(1))
			bubble.Pass(time.Minute)
			r.plugin.Set(described(1)) // a change does not shorten the wait
			bubble.Pass(time.Minute)
			r.expectRequests(t, getNode, applyStatus)
			r.refuse(nil)
			bubble.Pass(time.Minute)
			r.expectRequests(t, getNode, applyStatus)
			r.expectInUse(t, 1)
			r.log.Expect(t, "API server is overloaded", "works again")
		},
		"a request that hangs is canceled after half a minute, and retried": func(t *testing.T) {
			r := settled(t)
			r.refuse(func(req *http.Request) (int, string, string) {
				<-req.Context().Done()
				return 503, "", ""
			})
			r.plugin.Set(ready(1))
			bubble.Pass(30 * time.Second) // the request begins after a second
			r.log.Expect(t)
			r.refuse(nil)
			bubble.Pass(time.Second)
			r.log.Expect(t, "does not answer (context deadline exceeded)")
			bubble.Pass(time.Minute)
			r.expectInUse(t, 1)
			r.log.Expect(t, "works again")
		},
		"a server that cannot stream lists gets a list request": func(t *testing.T) {
			a := serve(t, "uid-1")
			a.refuse(func(req *http.Request) (int, string, string) {
				if req.URL.Query().Get("sendInitialEvents") == "" {
					return 0, "", ""
				}
				return 422, failure(422, "Invalid", "sendInitialEvents is forbidden"), ""
			})
			r := start(t, a, ready(0))
			bubble.Pass(time.Minute)
			r.expectRequests(t, watch, list, watch, getNode, applyObject, applyStatus)
			r.log.Expect(t)
		},
		"an object that is deleted between two requests is created again": func(t *testing.T) {
			r := settled(t)
			r.refuse(func(req *http.Request) (int, string, string) {
				if strings.HasSuffix(req.URL.Path, "/status") {
					r.refuse(nil)
					r.put(func(object) object { return nil })
				}
				return 0, "", ""
			})
			r.plugin.Set(ready(1))
			bubble.Pass(time.Minute)
			r.expectInUse(t, 1)
		},
		"an API server that is away for an hour is logged once, and written to when it is back": func(t *testing.T) {
			r := settled(t)
			r.setDown(true)
			for i := range 60 {
				r.plugin.Set(ready(uint64(i + 1)))
				bubble.Pass(time.Minute)
			}
			r.log.Expect(t, "the API server at http://api.example does not answer (connection refused); the node is not affected")
			r.takeRequests()
			r.setDown(false)
			bubble.Pass(2 * time.Minute)
			r.expectRequests(t, watch, getNode, applyStatus)
			r.expectInUse(t, 60)
			r.log.Expect(t, "works again")
			bubble.Pass(lull)
			r.expectRequests(t)
		},
		"an API server that was away while nothing changed is not written to": func(t *testing.T) {
			r := settled(t)
			r.setDown(true)
			bubble.Pass(30 * time.Second)
			r.takeRequests()
			r.setDown(false)
			bubble.Pass(lull)
			r.expectRequests(t, watch)
		},
		"an expired resource version is not logged": func(t *testing.T) {
			r := settled(t)
			r.refuse(func(req *http.Request) (int, string, string) {
				if req.URL.Query().Get("watch") == "" {
					return 0, "", ""
				}
				r.refuse(nil)
				return 410, failure(410, "Expired", "too old resource version"), ""
			})
			r.endWatches()
			bubble.Pass(time.Minute)
			r.expectRequests(t, watch, watch)
			r.log.Expect(t)
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}
