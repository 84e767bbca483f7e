// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeclient"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/apitest"
)

// fixture is a node with the class files of apitest.Files, and a client of its API.
type fixture struct {
	*apitest.Node
	served *apitest.Served
	client qosv1alpha1.NodeQOSClient
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{Node: apitest.NewNode()}
	must(t, f.Load(t.Context(), apitest.Files))
	f.served, f.client = serve(t, f.Node)
	return f
}

// must fails the test if there is an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func serve(t *testing.T, n nodeapi.Node) (*apitest.Served, qosv1alpha1.NodeQOSClient) {
	t.Helper()
	served, err := apitest.Serve(context.WithoutCancel(t.Context()), n, t.TempDir())
	must(t, err)

	conn, err := nodeclient.Connect(served.Socket)
	must(t, err)
	t.Cleanup(func() {
		if err := errors.Join(conn.Close(), served.Stop()); err != nil {
			t.Error(err)
		}
	})

	return served, qosv1alpha1.NewNodeQOSClient(conn)
}

func (f *fixture) mustRun(t *testing.T, namespace, name, request string, containers ...string) {
	t.Helper()
	must(t, f.RunPod(t.Context(), namespace, name, request, containers...))
}

func (f *fixture) status(t *testing.T) *qosv1alpha1.StatusResponse {
	t.Helper()
	state, err := f.client.Status(t.Context(), &qosv1alpha1.StatusRequest{})
	must(t, err)
	return state
}

// whenever ignores the values of times in messages, but not whether a time is set.
var whenever = cmp.Options{protocmp.Transform(), protocmp.FilterMessage(&timestamppb.Timestamp{}, cmp.Comparer(func(a, b protocmp.Message) bool {
	return (a == nil) == (b == nil)
}))}

func healthy(conditionType, reason, message string) *qosv1alpha1.Condition {
	return &qosv1alpha1.Condition{
		Type: conditionType, Healthy: true, Reason: reason, Message: message, LastTransitionTime: timestamppb.Now(),
	}
}

func TestStatusReportsWhatIsOfferedAndWhatIsInUse(t *testing.T) {
	f := newFixture(t)
	values := map[string]string{"L3": "0=ff;1=f"}
	f.Backends[apitest.RDT].SetValues(map[string]map[string]string{"gold": values})
	f.mustRun(t, "default", "web", "rdt=gold", "main")
	f.mustRun(t, "default", "batch", "", "one", "two")
	want := &qosv1alpha1.StatusResponse{
		Conditions: []*qosv1alpha1.Condition{
			healthy("ConfigurationApplied", "Applied", "The class files are in force."),
			healthy("RuntimeRegistered", "Registered", "Registered with the container runtime."),
			healthy("KernelAnswers", "Answers", "The kernel answers."),
		},
		Resources: &qosv1alpha1.ResourcesInfo{
			PodQosResources: []*qosv1alpha1.QOSResourceInfo{{Name: apitest.Network, Mutable: true, Kind: "test", Classes: []*qosv1alpha1.QOSResourceClassInfo{
				{Name: "fast", ExtendedResource: "vendor.example/network.fast"},
			}}},
			ContainerQosResources: []*qosv1alpha1.QOSResourceInfo{
				{Name: apitest.RDT, Mutable: true, Kind: "test", DefaultClass: "bronze", Classes: []*qosv1alpha1.QOSResourceClassInfo{
					{Name: "gold", Capacity: 1, InUse: 1, Description: "for those in a hurry", ExtendedResource: "qos.noderesource.dev/rdt.gold", Values: values},
					{Name: "bronze", InUse: 2, ExtendedResource: "qos.noderesource.dev/rdt.bronze"},
				}},
				{Name: apitest.BlockIO, Mutable: true, Kind: "test", Classes: []*qosv1alpha1.QOSResourceClassInfo{
					{Name: "high-prio", Capacity: 4, ExtendedResource: "qos.noderesource.dev/blockio.high-prio"},
					{Name: "throttled", ExtendedResource: "qos.noderesource.dev/blockio.throttled"},
				}},
			},
		},
		Plugin: &qosv1alpha1.PluginInfo{Version: "v0.1.0", StartedAt: timestamppb.Now()},
		Runtime: &qosv1alpha1.RuntimeInfo{
			Name: "containerd", Version: "v2.4.2", NriVersion: "v0.12.3", Registered: true, RegisteredAt: timestamppb.Now(),
		},
		Config: &qosv1alpha1.ConfigInfo{Generation: 1, Hash: "0123456789ab", LoadedAt: timestamppb.Now(), Files: []string{"classes.yaml"}},
	}

	if diff := cmp.Diff(want, f.status(t), whenever); diff != "" {
		t.Errorf("status differs (-want +got):\n%s", diff)
	}
}

func TestStatusReportsWhetherTheLimitsOfAClassAreHeld(t *testing.T) {
	f := newFixture(t)
	f.SetHeld(map[string]map[string]classes.Condition{apitest.RDT: {"gold": {Type: "Held", Reason: "LimitNotHeld", Message: "40M/s of 10M/s."}}})
	want := []*qosv1alpha1.Condition{{Type: "Held", Reason: "LimitNotHeld", Message: "40M/s of 10M/s.", LastTransitionTime: timestamppb.Now()}}
	all := f.status(t).GetResources().GetContainerQosResources()[0].GetClasses()
	if diff := cmp.Diff(want, all[0].GetConditions(), whenever); diff != "" {
		t.Errorf("the conditions of class gold differ (-want +got):\n%s", diff)
	}
	if other := all[1].GetConditions(); len(other) > 0 {
		t.Errorf("class bronze has conditions: %v", other)
	}
}

func TestStatusReportsWhyClassFilesAreNotApplied(t *testing.T) {
	f := newFixture(t)
	if err := f.Load(t.Context(), "kind: Wrong\napiVersion: wrong\n"); err == nil {
		t.Fatal("wrong class files were applied")
	}

	state := f.status(t)
	if got := state.GetConfig(); got.GetGeneration() != 1 || strings.Count(got.GetLastError(), "\n") == 0 || got.GetLastErrorAt() == nil {
		t.Errorf("config is %v, want generation 1 with the problems, one a line, and their time", got)
	}

	if c := state.GetConditions()[0]; c.GetType() != qos.ConditionConfigurationApplied || c.GetHealthy() || c.GetReason() != "Refused" {
		t.Errorf("condition is %v", c)
	}
	const first = `Correct them: classes.yaml:1: kind: is "Wrong"; only QOSClassConfig is known; and 1 more;`
	if message := state.GetConditions()[0].GetMessage(); !strings.Contains(message, first) {
		t.Errorf("the condition says %q, want %q", message, first)
	}

	must(t, f.Load(t.Context(), apitest.Files))

	if got := f.status(t).GetConfig(); got.GetGeneration() != 2 || got.GetLastError() != "" || got.GetLastErrorAt() != nil {
		t.Errorf("config is %v after the files were corrected", got)
	}
}

func TestStatusReportsALostConnectionToTheRuntime(t *testing.T) {
	f := newFixture(t)
	since := f.status(t).GetRuntime().GetRegisteredAt()
	f.Disconnected()
	state := f.status(t)
	if r := state.GetRuntime(); r.GetRegistered() || r.GetName() != "containerd" || !r.GetRegisteredAt().AsTime().Equal(since.AsTime()) {
		t.Errorf("runtime is %v", r)
	}
	c := state.GetConditions()[1]
	if c.GetHealthy() || c.GetReason() != "ConnectionLost" || !strings.Contains(c.GetMessage(), "has not disabled NRI") {
		t.Errorf("condition is %v", c)
	}
}

func TestStatusListsUnavailableResourcesSeparately(t *testing.T) {
	f := newFixture(t)
	f.Backends[apitest.RDT].Lack(&classes.Unavailable{Reason: "NoCPUSupport", Message: "this CPU has no RDT; use another"})
	must(t, f.Load(t.Context(), apitest.Files))

	want := []*qosv1alpha1.UnavailableResource{{
		Name: apitest.RDT, Reason: "NoCPUSupport", Message: "this CPU has no RDT; use another", Scope: qosv1alpha1.Scope_SCOPE_CONTAINER,
	}}

	state := f.status(t)
	if diff := cmp.Diff(want, state.GetUnavailableResources(), protocmp.Transform()); diff != "" {
		t.Errorf("unavailable resources differ (-want +got):\n%s", diff)
	}

	if got := state.GetResources().GetContainerQosResources(); len(got) != 1 || got[0].GetName() != apitest.BlockIO {
		t.Errorf("resources are %v", got)
	}
}

func TestStatusMarksClassesThatDrain(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, "default", "web", "rdt=gold", "main")
	without := strings.ReplaceAll(strings.ReplaceAll(apitest.Files, "{name: gold, capacity: 1, description: for those in a hurry}, ", ""), "[gold, bronze]", "[bronze]")
	must(t, f.Load(t.Context(), without))

	want := []*qosv1alpha1.QOSResourceClassInfo{
		{Name: "bronze", ExtendedResource: "qos.noderesource.dev/rdt.bronze"},
		{Name: "gold", InUse: 1, ExtendedResource: "qos.noderesource.dev/rdt.gold", Draining: true},
	}

	classesOf := func() []*qosv1alpha1.QOSResourceClassInfo {
		return f.status(t).GetResources().GetContainerQosResources()[0].GetClasses()
	}

	if diff := cmp.Diff(want, classesOf(), protocmp.Transform()); diff != "" {
		t.Errorf("classes differ (-want +got):\n%s", diff)
	}

	f.Stop("id-web-main")
	want[1].InUse = 0
	if diff := cmp.Diff(want, classesOf(), protocmp.Transform()); diff != "" {
		t.Errorf("classes differ while the container may be started again (-want +got):\n%s", diff)
	}

	f.StopPod("sandbox-web")
	if diff := cmp.Diff(want[:1], classesOf(), protocmp.Transform()); diff != "" {
		t.Errorf("classes differ after the last pod (-want +got):\n%s", diff)
	}
}

func TestListAssignmentsReportsEveryResourceOfEveryContainer(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, "default", "web", "rdt=gold,vendor.example/network=fast", "main")
	f.mustRun(t, "other", "batch", "", "main")
	web := &qosv1alpha1.PodAssignments{
		Uid: "uid-web", Namespace: "default", Name: "web", SandboxId: "sandbox-web",
		QosResources: []*qosv1alpha1.Assignment{
			{Name: apitest.Network, Class: "fast", Source: qosv1alpha1.Source_SOURCE_POD, RequestedBy: "qos.noderesource.dev/pod"},
		},
		Containers: []*qosv1alpha1.ContainerAssignments{{Name: "main", Id: "id-web-main", QosResources: []*qosv1alpha1.Assignment{
			{Name: apitest.RDT, Class: "gold", Source: qosv1alpha1.Source_SOURCE_POD, RequestedBy: "qos.noderesource.dev/pod"},
			{Name: apitest.BlockIO},
		}}},
	}

	batch := &qosv1alpha1.PodAssignments{
		Uid: "uid-batch", Namespace: "other", Name: "batch", SandboxId: "sandbox-batch",
		QosResources: []*qosv1alpha1.Assignment{{Name: apitest.Network}},
		Containers: []*qosv1alpha1.ContainerAssignments{{Name: "main", Id: "id-batch-main", QosResources: []*qosv1alpha1.Assignment{
			{Name: apitest.RDT, Class: "bronze", Source: qosv1alpha1.Source_SOURCE_DEFAULT},
			{Name: apitest.BlockIO},
		}}},
	}

	for _, test := range []struct {
		name    string
		request *qosv1alpha1.ListAssignmentsRequest
		want    []*qosv1alpha1.PodAssignments
	}{
		{"of all pods", &qosv1alpha1.ListAssignmentsRequest{}, []*qosv1alpha1.PodAssignments{web, batch}},
		{"of a namespace", &qosv1alpha1.ListAssignmentsRequest{Namespace: "other"}, []*qosv1alpha1.PodAssignments{batch}},
		{"of a UID", &qosv1alpha1.ListAssignmentsRequest{PodUid: "uid-web"}, []*qosv1alpha1.PodAssignments{web}},
		{"of a UID in another namespace", &qosv1alpha1.ListAssignmentsRequest{PodUid: "uid-web", Namespace: "other"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			list, err := f.client.ListAssignments(t.Context(), test.request)
			must(t, err)
			if diff := cmp.Diff(test.want, list.GetPods(), protocmp.Transform()); diff != "" {
				t.Errorf("assignments differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUpdateReturnsAllClassesOfTheContainer(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, "default", "web", "", "main")
	answer, err := f.client.UpdateContainerQOSResources(t.Context(), &qosv1alpha1.UpdateContainerQOSResourcesRequest{
		PodUid: "uid-web", Container: "main", QosResources: []*qosv1alpha1.ContainerQOSResource{{Name: "rdt", Class: "gold"}},
	})
	must(t, err)

	want := &qosv1alpha1.ContainerAssignments{Name: "main", Id: "id-web-main", QosResources: []*qosv1alpha1.Assignment{
		{Name: apitest.RDT, Class: "gold", Source: qosv1alpha1.Source_SOURCE_UPDATE},
		{Name: apitest.BlockIO},
	}}

	if diff := cmp.Diff(want, answer.GetContainer(), protocmp.Transform()); diff != "" {
		t.Errorf("container differs (-want +got):\n%s", diff)
	}
}

func TestUpdateErrorsHaveTheCodesThatTheAPIDocuments(t *testing.T) {
	type resource = qosv1alpha1.ContainerQOSResource
	ask := func(uid, container string, resources ...*resource) *qosv1alpha1.UpdateContainerQOSResourcesRequest {
		return &qosv1alpha1.UpdateContainerQOSResourcesRequest{PodUid: uid, Container: container, QosResources: resources}
	}

	f := newFixture(t)
	f.mustRun(t, "default", "web", "", "main")
	f.mustRun(t, "default", "greedy", "rdt=gold", "main")
	if _, _, err := f.CreateContainer(classes.Holder{ID: "c", SandboxID: "s", PodUID: "uid-new", PodName: "new", PodNamespace: "default", Container: "main"}); err != nil {
		t.Fatal(err)
	}

	f.Backends[apitest.BlockIO].Fail("enforce throttled", errors.New("write io.max: no such device"))
	for _, test := range []struct {
		name    string
		request *qosv1alpha1.UpdateContainerQOSResourcesRequest
		code    codes.Code
		says    string
	}{
		{"no pod", ask("", "main", &resource{Name: "rdt"}), codes.InvalidArgument, "pod_uid is required"},
		{"no container for a resource of containers", ask("uid-web", "", &resource{Name: "rdt"}), codes.InvalidArgument, "is for containers, not for pods"},
		{"no resources", ask("uid-web", "main"), codes.InvalidArgument, "qos_resources is required"},
		{"a resource twice", ask("uid-web", "main", &resource{Name: "rdt"}, &resource{Name: apitest.RDT}), codes.InvalidArgument, "named twice"},
		{"an unknown pod", ask("uid-none", "main", &resource{Name: "rdt"}), codes.NotFound, "uid-none"},
		{"an unknown container", ask("uid-web", "none", &resource{Name: "rdt"}), codes.NotFound, `"none"`},
		{"an unknown resource", ask("uid-web", "main", &resource{Name: "x.example/y"}), codes.InvalidArgument, "x.example/y"},
		{"an unknown class", ask("uid-web", "main", &resource{Name: "rdt", Class: "none"}), codes.InvalidArgument, "none"},
		{"a resource of pods", ask("uid-web", "main", &resource{Name: apitest.Network, Class: "fast"}), codes.InvalidArgument, "pod"},
		{"a full class", ask("uid-web", "main", &resource{Name: "rdt", Class: "gold"}), codes.ResourceExhausted, "1 of 1 in use"},
		{"a container that does not run", ask("uid-new", "main", &resource{Name: "rdt", Class: "gold"}), codes.FailedPrecondition, "not running"},
		{"a refusal of the kernel", ask("uid-web", "main", &resource{Name: "blockio", Class: "throttled"}), codes.Internal, "no such device"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := f.client.UpdateContainerQOSResources(t.Context(), test.request)
			if status.Code(err) != test.code || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error is %v, want code %s and one line with %q", err, test.code, test.says)
			}
		})
	}

	t.Run("no runtime", func(t *testing.T) {
		f.Disconnected()
		_, err := f.client.UpdateContainerQOSResources(t.Context(), ask("uid-web", "main", &resource{Name: "blockio", Class: "high-prio"}))
		if status.Code(err) != codes.Unavailable {
			t.Errorf("error is %v, want code Unavailable", err)
		}
	})
}

// manyPods is a node with a response of several MiB.
type manyPods struct{ *node.Node }

func (manyPods) Assignments() []state.PodAssignments {
	pods := make([]state.PodAssignments, 500)
	key := strings.Repeat("k", 317) // the maximum length of an annotation's key
	for i := range pods {
		name := fmt.Sprintf("%0253d", i)
		pods[i] = state.PodAssignments{UID: name, Namespace: "default", Name: name}
		for c := range 10 {
			ctr := state.ContainerAssignments{ID: name, Name: fmt.Sprint(c)}
			for range 4 {
				ctr.Assignments = append(ctr.Assignments, state.Reported{Assignment: classes.Assignment{Resource: apitest.RDT, Class: "gold", Key: key}})
			}
			pods[i].Containers = append(pods[i].Containers, ctr)
		}
	}

	return pods
}

func TestAssignmentsOf500PodsFitInOneMessage(t *testing.T) {
	_, client := serve(t, manyPods{apitest.NewNode().Node})
	list, err := client.ListAssignments(t.Context(), &qosv1alpha1.ListAssignmentsRequest{})
	must(t, err)
	if len(list.GetPods()) != 500 {
		t.Errorf("%d pods in the response, want 500", len(list.GetPods()))
	}
}
