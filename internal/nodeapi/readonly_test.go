// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeclient"
	"github.com/qos-nri/qos-nri-plugin/test/apitest"
)

// readOnly is a node with pod default/web in class gold, behind both sockets of the node API.
type readOnly struct {
	options   nodeapi.Options
	all, read *grpc.ClientConn
}

func newReadOnly(t *testing.T) *readOnly {
	t.Helper()
	n := apitest.NewNode()
	must(t, n.Load(t.Context(), apitest.Files))
	must(t, n.RunPod(t.Context(), "default", "web", "rdt=gold", "main"))

	dir := t.TempDir()
	o := nodeapi.Options{Socket: filepath.Join(dir, "qos.sock"), ReadSocket: filepath.Join(dir, "read", "qos.sock"), Log: slog.New(slog.DiscardHandler)}
	server := nodeapi.New(n, o)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	<-server.Ready()
	return &readOnly{options: o, all: connect(t, o.Socket), read: connect(t, o.ReadSocket)}
}

func connect(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := nodeclient.Connect(socket)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// class returns the class of pod default/web, as the read-only socket reports it.
func (r *readOnly) class(t *testing.T) string {
	t.Helper()
	list, err := qosv1alpha1.NewNodeQOSClient(r.read).ListAssignments(t.Context(), &qosv1alpha1.ListAssignmentsRequest{})
	must(t, err)
	return list.GetPods()[0].GetContainers()[0].GetQosResources()[0].GetClass()
}

func TestNoClassChangesOverTheReadOnlySocket(t *testing.T) {
	r := newReadOnly(t)
	change := &qosv1alpha1.UpdateContainerQOSResourcesRequest{
		PodUid: "uid-web", Container: "main", QosResources: []*qosv1alpha1.ContainerQOSResource{{Name: apitest.RDT, Class: "bronze"}},
	}

	_, err := qosv1alpha1.NewNodeQOSClient(r.read).UpdateContainerQOSResources(t.Context(), change)
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "--api-socket") {
		t.Errorf("error is %v, want code PermissionDenied and the socket for changes", err)
	}

	if class := r.class(t); class != "gold" {
		t.Errorf("after a refused change, the class is %q, want gold", class)
	}

	if _, err := qosv1alpha1.NewNodeQOSClient(r.all).UpdateContainerQOSResources(t.Context(), change); err != nil {
		t.Fatal(err)
	}

	if class := r.class(t); class != "bronze" {
		t.Errorf("after a change over the other socket, the read-only socket reports class %q", class)
	}
}

// TestTheReadOnlySocketAllowsAllRequestsThatOnlyRead sends each request of the API. If a request is added to the API,
// this test fails until the request is in the map named changes, or the socket allows the request.
func TestTheReadOnlySocketAllowsAllRequestsThatOnlyRead(t *testing.T) {
	r := newReadOnly(t)
	changes := map[string]bool{"UpdateContainerQOSResources": true, "SetVolumeClaims": true}
	api := qosv1alpha1.NodeQOS_ServiceDesc
	for _, method := range api.Methods {
		err := r.read.Invoke(t.Context(), "/"+api.ServiceName+"/"+method.MethodName, &qosv1alpha1.StatusRequest{}, &qosv1alpha1.StatusResponse{})
		if refused := status.Code(err) == codes.PermissionDenied; refused != changes[method.MethodName] {
			t.Errorf("%s: %v", method.MethodName, err)
		}
	}

	for i := range api.Streams {
		stream, err := r.read.NewStream(t.Context(), &api.Streams[i], "/"+api.ServiceName+"/"+api.Streams[i].StreamName)
		must(t, err)
		must(t, stream.SendMsg(&qosv1alpha1.WatchRequest{}))
		if err := stream.RecvMsg(&qosv1alpha1.WatchResponse{}); err != nil {
			t.Errorf("%s: %v", api.Streams[i].StreamName, err)
		}
	}
}

// TestTheReadOnlySocketServesFourConnections opens more connections. The other socket has no such limit.
func TestTheReadOnlySocketServesFourConnections(t *testing.T) {
	r := newReadOnly(t)
	var served []net.Conn
	for range 13 {
		if conn := r.dial(t); isServed(conn) {
			served = append(served, conn)
		}
	}

	if len(served) != 4 {
		t.Errorf("%d connections are served, want 4", len(served))
	}

	if _, err := qosv1alpha1.NewNodeQOSClient(r.all).Status(t.Context(), &qosv1alpha1.StatusRequest{}); err != nil {
		t.Errorf("a request over the other socket: %v", err)
	}

	// the end of a connection makes room for another one
	must(t, served[0].Close())

	for !isServed(r.dial(t)) { // the server has not yet noticed that a connection was closed
		runtime.Gosched()
	}
}

// TestTheReadOnlySocketTakesFewRequestsASecond: it takes a burst of 20, and then 10 a second. The other socket has no such limit.
func TestTheReadOnlySocketTakesFewRequestsASecond(t *testing.T) {
	r := newReadOnly(t)
	answers := map[codes.Code]int{}
	for range 500 {
		_, err := qosv1alpha1.NewNodeQOSClient(r.read).Status(t.Context(), &qosv1alpha1.StatusRequest{})
		answers[status.Code(err)]++
	}
	if answers[codes.OK] < 20 || answers[codes.ResourceExhausted] == 0 || len(answers) != 2 {
		t.Errorf("answers are %v; want at least 20 of code OK, and others of code ResourceExhausted", answers)
	}
	if _, err := qosv1alpha1.NewNodeQOSClient(r.all).Status(t.Context(), &qosv1alpha1.StatusRequest{}); err != nil {
		t.Errorf("a request over the other socket: %v", err)
	}
}

// TestReportsOfEnforcementHaveALimitOfTheirOwn uses up the requests, then the reports. A burst of 200 reports is
// allowed.
func TestReportsOfEnforcementHaveALimitOfTheirOwn(t *testing.T) {
	r := newReadOnly(t)
	client := qosv1alpha1.NewNodeQOSClient(r.read)
	var err error
	for status.Code(err) != codes.ResourceExhausted {
		_, err = client.Status(t.Context(), &qosv1alpha1.StatusRequest{})
	}

	answers := map[bool]int{}
	for range 5000 {
		_, err := client.ReportEnforcement(t.Context(), &qosv1alpha1.ReportEnforcementRequest{})
		answers[status.Code(err) != codes.ResourceExhausted]++
	}
	if answers[true] < 200 || answers[false] == 0 {
		t.Errorf("%d reports are accepted, and %d refused; want at least 200 accepted, and others refused", answers[true], answers[false])
	}
}

func (r *readOnly) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", r.options.ReadSocket)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// isServed waits for the first byte of the server, or for the end of the connection.
func isServed(conn net.Conn) bool {
	n, _ := conn.Read(make([]byte, 1))
	return n > 0
}

func TestWithoutAHistoryBothSocketsSayHowToGetOne(t *testing.T) {
	r := newReadOnly(t)
	for _, api := range []qosv1alpha1.NodeQOSClient{qosv1alpha1.NewNodeQOSClient(r.all), qosv1alpha1.NewNodeQOSClient(r.read)} {
		_, blamed := api.Blame(t.Context(), &qosv1alpha1.BlameRequest{Namespace: "default", Pod: "web"})
		_, recommended := api.Recommend(t.Context(), &qosv1alpha1.RecommendRequest{Namespace: "default", Pod: "web"})
		for method, err := range map[string]error{"Blame": blamed, "Recommend": recommended} {
			if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "--history-interval") {
				t.Errorf("%s: error is %v, want code FailedPrecondition and the flag", method, err)
			}
		}
	}
}
