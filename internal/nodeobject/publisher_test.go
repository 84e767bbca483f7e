// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodefeed"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeobject"
)

// Requests as the API server sees them.
const (
	list        = "GET /apis/qos.noderesource.dev/v1alpha1/nodeqosresources"
	watch       = "GET /apis/qos.noderesource.dev/v1alpha1/nodeqosresources watch"
	getNode     = "GET /api/v1/nodes/n1"
	applyObject = "PATCH /apis/qos.noderesource.dev/v1alpha1/nodeqosresources/n1"
	applyStatus = "PATCH /apis/qos.noderesource.dev/v1alpha1/nodeqosresources/n1/status"
)

// plugin is a Feed whose state a test sets.
type plugin struct {
	mu      sync.Mutex // guards all below
	state   nodefeed.State
	changed chan struct{}
}

func (p *plugin) Get() (nodefeed.State, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state, p.changed
}

func (p *plugin) set(state nodefeed.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = state
	close(p.changed)
	p.changed = make(chan struct{})
}

// ready is the state of a plugin that started now and has inUse assignments of gold.
func ready(inUse uint64) nodefeed.State {
	now := timestamppb.Now()
	status := &qosv1alpha1.StatusResponse{
		Conditions: []*qosv1alpha1.Condition{{Type: "ConfigurationApplied", Healthy: true, Reason: "Applied", LastTransitionTime: now}},
		Resources: &qosv1alpha1.ResourcesInfo{ContainerQosResources: []*qosv1alpha1.QOSResourceInfo{{
			Name: "k8s.io/rdt", Mutable: true, Classes: []*qosv1alpha1.QOSResourceClassInfo{{Name: "gold", Capacity: 2, InUse: inUse}},
		}}},
		Config: &qosv1alpha1.ConfigInfo{Generation: 1, Hash: "abc", LoadedAt: now},
		Plugin: &qosv1alpha1.PluginInfo{Version: "v1", StartedAt: now},
	}
	return nodefeed.State{Status: status, Assignments: &qosv1alpha1.ListAssignmentsResponse{}, Latest: status}
}

// rig is a publisher with its plugin and API server, in a bubble.
type rig struct {
	*api
	plugin *plugin
	stop   func()
	log    bytes.Buffer
}

func start(t *testing.T, a *api, state nodefeed.State) *rig {
	t.Helper()
	r := &rig{api: a, plugin: &plugin{state: state, changed: make(chan struct{})}}
	config := a.config()
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	publisher := nodeobject.New(r.plugin, objects, core.CoreV1(), nodeobject.Options{
		NodeName: "n1", Registry: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(&r.log, nil)),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- publisher.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// pass lets time go by in the bubble, until everything waits again.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // it takes no time
	synctest.Wait()
}

func (r *rig) expectRequests(t *testing.T, want ...string) {
	t.Helper()
	if got := r.takeRequests(); !slices.Equal(got, want) {
		t.Errorf("asked for\n %s\nwant\n %s", strings.Join(got, "\n "), strings.Join(want, "\n "))
	}
}

func (r *rig) writes() int {
	n := 0
	for _, request := range r.takeRequests() {
		if strings.HasPrefix(request, "PATCH ") {
			n++
		}
	}
	return n
}

// expectLog wants one line for each of want, with its text, and none beside them, since it was called last.
func (r *rig) expectLog(t *testing.T, want ...string) {
	t.Helper()
	lines := strings.FieldsFunc(r.log.String(), func(c rune) bool { return c == '\n' })
	r.log.Reset()
	if len(lines) != len(want) {
		t.Fatalf("logged\n %s\nwant %d lines", strings.Join(lines, "\n "), len(want))
	}
	for i, w := range want {
		if !strings.Contains(lines[i], w) {
			t.Errorf("logged %s, want %s", lines[i], w)
		}
	}
}

// published is the object in the API, typed.
func (r *rig) published(t *testing.T) *nodeqosv1alpha1.NodeQOSResources {
	t.Helper()
	content := r.get()
	if content == nil {
		t.Fatal("there is no object")
	}
	data, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	var typed nodeqosv1alpha1.NodeQOSResources
	if err := json.Unmarshal(data, &typed); err != nil {
		t.Fatal(err)
	}
	return &typed
}

func (r *rig) expectInUse(t *testing.T, want int64) {
	t.Helper()
	if got := r.published(t).Status.QOSResources.ContainerQOSResources[0].Classes[0].InUse; got != want {
		t.Errorf("%d in use, want %d", got, want)
	}
}

func (r *rig) expectOwner(t *testing.T, uid string) {
	t.Helper()
	owners := r.published(t).OwnerReferences
	if len(owners) != 1 || owners[0].Kind != "Node" || owners[0].Name != "n1" || string(owners[0].UID) != uid {
		t.Errorf("owned by %+v, want node n1 with UID %s", owners, uid)
	}
}

// settled is a rig that has published, and has been quiet since.
func settled(t *testing.T) *rig {
	t.Helper()
	r := start(t, serve(t, "uid-1"), ready(0))
	pass(time.Minute)
	r.takeRequests()
	return r
}

func (r *rig) ready(t *testing.T) metav1.Condition {
	t.Helper()
	conditions := r.published(t).Status.Conditions
	i := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Type == "PluginReady" })
	if i < 0 {
		t.Fatalf("no condition PluginReady in %v", conditions)
	}
	return conditions[i]
}

func TestPublisher(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"the object is made once, owned by its node, then its status": func(t *testing.T) {
			r := start(t, serve(t, "uid-1"), ready(1))
			pass(time.Minute)
			r.expectRequests(t, list, watch, getNode, applyObject, applyStatus)
			r.expectOwner(t, "uid-1")
			r.expectInUse(t, 1)
			r.expectLog(t)
		},
		"an idle hour asks for nothing": func(t *testing.T) {
			r := settled(t)
			pass(time.Hour)
			r.expectRequests(t)
		},
		"a change is one write, a second later": func(t *testing.T) {
			r := settled(t)
			r.plugin.set(ready(1))
			pass(time.Second - 1)
			r.expectRequests(t)
			pass(1)
			r.expectRequests(t, getNode, applyStatus)
			r.expectInUse(t, 1)
			pass(time.Hour)
			r.expectRequests(t)
		},
		"many changes in a minute are a write every five seconds, and the last of them is seen": func(t *testing.T) {
			r := settled(t)
			for i := range 600 {
				r.plugin.set(ready(uint64(i + 1)))
				pass(100 * time.Millisecond)
			}
			pass(time.Minute)
			if got := r.writes(); got != 13 {
				t.Errorf("%d writes", got)
			}
			r.expectInUse(t, 600)
		},
		"a shim that restarts writes nothing when nothing has changed": func(t *testing.T) {
			r := settled(t)
			r.stop()
			restarted := start(t, r.api, ready(0))
			pass(time.Hour)
			restarted.expectRequests(t, list, watch, getNode)
		},
		"a shim that restarts before the plugin leaves what there is": func(t *testing.T) {
			r := settled(t)
			r.stop()
			restarted := start(t, r.api, nodefeed.State{AwaySince: time.Now(), Problem: "not yet"})
			pass(29 * time.Second)
			restarted.expectRequests(t, list, watch)
			restarted.plugin.set(ready(0))
			pass(time.Hour)
			restarted.expectRequests(t, getNode)
		},
		"a plugin that restarts is no news": func(t *testing.T) {
			r := settled(t)
			away := ready(0)
			away.Latest, away.AwaySince, away.Problem = nil, time.Now(), "gone"
			r.plugin.set(away)
			pass(29 * time.Second)
			r.plugin.set(ready(0))
			pass(time.Hour)
			r.expectRequests(t)
		},
		"a plugin that stays away is told once, with its classes left as they were, and so is its return": func(t *testing.T) {
			r := settled(t)
			away := ready(2)
			away.Latest, away.AwaySince, away.Problem = nil, time.Now(), "does not answer"
			began := away.AwaySince
			r.plugin.set(away)
			pass(time.Hour)
			r.expectInUse(t, 2)
			if got := r.ready(t); got.Status != metav1.ConditionFalse || got.Message != "does not answer" || got.LastTransitionTime.Unix() != began.Unix() {
				t.Errorf("got %+v", got)
			}
			// What was in use changed within the grace, so that is a write of its own.
			if got := r.writes(); got != 2 {
				t.Errorf("%d writes", got)
			}
			r.plugin.set(ready(2))
			pass(time.Hour)
			if got := r.ready(t); got.Status != metav1.ConditionTrue || r.writes() != 1 {
				t.Errorf("got %+v", got)
			}
		},
		"an object that is deleted is made again": func(t *testing.T) {
			r := settled(t)
			r.put(func(object) object { return nil })
			pass(time.Hour)
			r.expectRequests(t, getNode, applyObject, applyStatus)
			r.expectInUse(t, 0)
		},
		"what somebody else writes is written over": func(t *testing.T) {
			r := settled(t)
			r.put(func(o object) object { o["status"] = object{}; return o })
			pass(time.Hour)
			r.expectRequests(t, getNode, applyStatus)
			r.expectInUse(t, 0)
		},
		"what somebody else adds beside is left alone": func(t *testing.T) {
			r := settled(t)
			r.put(func(o object) object {
				o["metadata"].(map[string]any)["labels"] = object{"a": "b"}
				return o
			})
			pass(time.Hour)
			r.expectRequests(t)
		},
		"a node that is made anew owns the object anew": func(t *testing.T) {
			r := settled(t)
			r.setNode("uid-2")
			r.put(func(object) object { return nil }) // the garbage collector
			pass(time.Minute)
			r.expectRequests(t, getNode, applyObject, applyStatus)
			r.expectOwner(t, "uid-2")
		},
		"a node that is made anew is noticed at the next write, without a garbage collector": func(t *testing.T) {
			r := settled(t)
			r.setNode("uid-2")
			r.plugin.set(ready(1))
			pass(time.Minute)
			r.expectRequests(t, getNode, applyObject, applyStatus)
			r.expectOwner(t, "uid-2")
		},
		"a watch that ends goes on where it was": func(t *testing.T) {
			r := settled(t)
			r.endWatches()
			pass(time.Minute)
			r.expectRequests(t, watch)
			r.plugin.set(ready(1))
			pass(time.Minute)
			r.expectRequests(t, getNode, applyStatus)
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

// on makes requests of one kind fail.
func on(request string, code int, body, retryAfter string) func(*http.Request) (int, string, string) {
	return func(r *http.Request) (int, string, string) {
		method, path, _ := strings.Cut(request, " ")
		if r.Method != method || r.URL.Path != path {
			return 0, "", ""
		}
		return code, body, retryAfter
	}
}

// expectAskedSlowly wants no more than a request a few seconds over an hour of failing for a reason that a person has to mend.
func (r *rig) expectAskedSlowly(t *testing.T) {
	t.Helper()
	pass(time.Hour)
	if got := len(r.takeRequests()); got < 30 || got > 500 {
		t.Errorf("asked %d times in an hour", got)
	}
}

func TestPublisherInTrouble(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"a node name that does not exist is one line, and is looked at slowly until it does": func(t *testing.T) {
			r := start(t, serve(t, ""), ready(0))
			pass(time.Minute)
			r.expectLog(t, `this cluster has no node \"n1\": give the name that \"kubectl get nodes\" has for this node by --node-name`)
			r.expectAskedSlowly(t)
			r.setNode("uid-1")
			pass(2 * time.Minute)
			r.expectOwner(t, "uid-1")
			r.expectLog(t, "works again")
		},
		"a CRD that is not installed is one line with the remedy": func(t *testing.T) {
			a := serve(t, "uid-1")
			a.refuse(on(list, 404, "404 page not found", ""))
			r := start(t, a, ready(0))
			r.expectAskedSlowly(t)
			r.expectLog(t, "kubectl apply -f deploy/kubernetes/crd.yaml")
			r.refuse(nil)
			pass(2 * time.Minute)
			r.expectInUse(t, 0)
			r.expectLog(t, "works again")
		},
		"missing permission is one line with the remedy": func(t *testing.T) {
			a := serve(t, "uid-1")
			a.refuse(on(applyStatus, 403, failure(403, "Forbidden", `x is forbidden: User "u" cannot patch resource "nodeqosresources/status" in API group "g"`), ""))
			r := start(t, a, ready(0))
			r.expectAskedSlowly(t)
			r.expectLog(t, "u may not patch nodeqosresources/status (g): bind it to the ClusterRole of deploy/kubernetes/rbac.yaml")
		},
		"a conflict is tried again": func(t *testing.T) {
			r := settled(t)
			r.refuse(on(applyStatus, 409, failure(409, "Conflict", "modified"), ""))
			r.plugin.set(ready(1))
			pass(time.Second)
			r.refuse(nil)
			pass(time.Minute)
			r.expectInUse(t, 1)
			r.expectLog(t, "somebody else changed it", "works again")
		},
		"an overloaded server is not asked before it said": func(t *testing.T) {
			r := settled(t)
			r.refuse(on(applyStatus, 429, "Too many requests", "120"))
			r.plugin.set(ready(1))
			pass(2 * time.Minute)
			r.expectRequests(t, getNode, applyStatus)
			r.refuse(nil)
			pass(time.Minute)
			r.expectRequests(t, getNode, applyStatus)
			r.expectInUse(t, 1)
			r.expectLog(t, "no time for it now", "works again")
		},
		"an object that is deleted in between is made again": func(t *testing.T) {
			r := settled(t)
			r.refuse(func(req *http.Request) (int, string, string) {
				if strings.HasSuffix(req.URL.Path, "/status") {
					r.refuse(nil)
					r.put(func(object) object { return nil })
				}
				return 0, "", ""
			})
			r.plugin.set(ready(1))
			pass(time.Minute)
			r.expectInUse(t, 1)
		},
		"an API server that is away for an hour is one line, asked seldom, and caught up with": func(t *testing.T) {
			r := settled(t)
			r.setDown(true)
			for i := range 60 {
				r.plugin.set(ready(uint64(i + 1)))
				pass(time.Minute)
			}
			r.expectLog(t, "the API server at http://api.example does not answer (connection refused); what is on the node stays as it is")
			r.takeRequests()
			r.setDown(false)
			pass(2 * time.Minute)
			r.expectRequests(t, list, watch, getNode, applyStatus)
			r.expectInUse(t, 60)
			r.expectLog(t, "works again")
			pass(time.Hour)
			r.expectRequests(t)
		},
		"an API server that was away while nothing changed is not written to": func(t *testing.T) {
			r := settled(t)
			r.setDown(true)
			pass(time.Hour)
			r.takeRequests()
			r.setDown(false)
			pass(time.Hour)
			r.expectRequests(t, list, watch, getNode)
		},
		"versions that are gone are no failure": func(t *testing.T) {
			r := settled(t)
			r.refuse(func(req *http.Request) (int, string, string) {
				if req.URL.Query().Get("watch") == "" {
					return 0, "", ""
				}
				r.refuse(nil)
				return 410, failure(410, "Expired", "too old resource version"), ""
			})
			r.endWatches()
			pass(time.Minute)
			r.expectRequests(t, watch, list, watch, getNode)
			r.expectLog(t)
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}
