// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeobject"
	"github.com/qos-nri/qos-nri-plugin/test/bubble"
	"github.com/qos-nri/qos-nri-plugin/test/cachetest"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// These are the kinds of requests that the API server receives.
const (
	list        = "GET /apis/qos.noderesource.dev/v1alpha1/nodeqosresources"
	watch       = "GET /apis/qos.noderesource.dev/v1alpha1/nodeqosresources watch"
	getNode     = "GET /api/v1/nodes/n1"
	applyObject = "PATCH /apis/qos.noderesource.dev/v1alpha1/nodeqosresources/n1"
	applyStatus = "PATCH /apis/qos.noderesource.dev/v1alpha1/nodeqosresources/n1/status"
)

// ready returns the state of a plugin that was started now. Class gold has inUse assignments.
func ready(inUse uint64) nodecache.State {
	now := timestamppb.Now()
	status := &qosv1alpha1.StatusResponse{
		Conditions: []*qosv1alpha1.Condition{{Type: "ConfigurationApplied", Healthy: true, Reason: "Applied", LastTransitionTime: now}},
		Resources: &qosv1alpha1.ResourcesInfo{ContainerQosResources: []*qosv1alpha1.QOSResourceInfo{{
			Name: "k8s.io/rdt", Mutable: true, Classes: []*qosv1alpha1.QOSResourceClassInfo{{Name: "gold", Capacity: 2, InUse: inUse}},
		}}},
		Config: &qosv1alpha1.ConfigInfo{Generation: 1, Hash: "abc", LoadedAt: now},
		Plugin: &qosv1alpha1.PluginInfo{Version: "v1", StartedAt: now},
	}
	return nodecache.State{Status: status, Assignments: &qosv1alpha1.ListAssignmentsResponse{}, Latest: status}
}

// held returns the state of a ready plugin with one holder of class gold. The holder has the class from the given source.
func held(source qosv1alpha1.Source) nodecache.State {
	state := ready(1)
	state.Assignments = &qosv1alpha1.ListAssignmentsResponse{Pods: []*qosv1alpha1.PodAssignments{{
		Uid: "u", Namespace: "a", Name: "web", Containers: []*qosv1alpha1.ContainerAssignments{{
			Name: "app", QosResources: []*qosv1alpha1.Assignment{{Name: "k8s.io/rdt", Class: "gold", Source: source}},
		}},
	}}}
	return state
}

// described works like `ready`, but the description of the class also depends on `inUse`, so that two states differ in
// more than the holders of the class.
func described(inUse uint64) nodecache.State {
	state := ready(inUse)
	state.Status.Resources.ContainerQosResources[0].Classes[0].Description = strings.Repeat("x", int(inUse)) //nolint:gosec // it is small
	return state
}

// rig is a publisher with a simulated plugin and a simulated API server, in a synctest bubble.
type rig struct {
	*api
	plugin    *cachetest.Cache // the state of the plugin
	publisher *nodeobject.Publisher
	stop      func()
	log       bubble.Log
}

func start(t *testing.T, a *api, state nodecache.State, change ...func(*nodeobject.Options)) *rig {
	t.Helper()
	r := &rig{api: a, plugin: cachetest.New(state)}
	config := a.config()
	objects := must.Get(dynamic.NewForConfig(config))(t)
	core := must.Get(kubeapi.NewCore(config))(t)

	options := nodeobject.Options{
		NodeName: "n1", Writes: kubeapi.NewWrites(prometheus.NewRegistry()), Log: slog.New(slog.NewTextHandler(&r.log, nil)),
	}
	for _, f := range change {
		f(&options)
	}

	r.publisher = nodeobject.New(r.plugin, objects, core.Nodes(), options)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.publisher.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})

	t.Cleanup(r.stop)
	return r
}

func (r *rig) expectRequests(t *testing.T, want ...string) {
	t.Helper()
	if got := r.takeRequests(); !slices.Equal(got, want) {
		t.Errorf("requests were\n %s\nwant\n %s", strings.Join(got, "\n "), strings.Join(want, "\n "))
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

// published returns the object in the API server, converted to its Go type.
func (r *rig) published(t *testing.T) *nodeqosv1alpha1.NodeQOSResources {
	t.Helper()
	content := r.get()
	if content == nil {
		t.Fatal("the API server does not have the object")
	}

	data := must.Get(json.Marshal(content))(t)

	var typed nodeqosv1alpha1.NodeQOSResources
	must.Do(t, json.Unmarshal(data, &typed))

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
		t.Errorf("the object has the owners %+v, want node n1 with UID %s", owners, uid)
	}
}

// settled returns a rig whose publisher has published the state and has nothing more to write.
func settled(t *testing.T) *rig {
	t.Helper()
	r := start(t, serve(t, "uid-1"), ready(0))
	bubble.Pass(time.Minute)
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

// on returns a function for api.refuse that makes one kind of request fail.
func on(request string, code int, body, retryAfter string) func(*http.Request) (int, string, string) {
	return func(r *http.Request) (int, string, string) {
		method, path, _ := strings.Cut(request, " ")
		if r.Method != method || r.URL.Path != path {
			return 0, "", ""
		}
		return code, body, retryAfter
	}
}

// expectSlowRetries lets an hour pass, and checks that the publisher retries at a low rate. The error of the test is one
// that an administrator has to fix.
func (r *rig) expectSlowRetries(t *testing.T) {
	t.Helper()
	bubble.Pass(time.Hour)
	if got := len(r.takeRequests()); got < 30 || got > 500 {
		t.Errorf("%d requests in an hour, want 30 to 500", got)
	}
}
