// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeclient"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

// TestFloodsOfClientsDelayNoHook runs many clients of the node API and of the metrics. The clients send requests, read
// nothing, or send garbage.
func TestFloodsOfClientsDelayNoHook(t *testing.T) {
	const clients = 20
	for name, attack := range map[string]func(t *testing.T, v *victim, ended <-chan struct{}){
		"requests to the node API": func(t *testing.T, v *victim, ended <-chan struct{}) {
			conn, err := nodeclient.Connect(v.options.APISocket)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			api := qosv1alpha1.NewNodeQOSClient(conn)
			for !isClosed(ended) {
				_, _ = api.ListAssignments(t.Context(), &qosv1alpha1.ListAssignmentsRequest{})
				_, _ = api.UpdateContainerQOSResources(t.Context(), &qosv1alpha1.UpdateContainerQOSResourcesRequest{
					PodUid: "none", Container: strings.Repeat("x", 10_000)})
			}
		},
		"watches that read nothing": func(t *testing.T, v *victim, ended <-chan struct{}) {
			conn, err := nodeclient.Connect(v.options.APISocket)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = qosv1alpha1.NewNodeQOSClient(conn).WatchAssignments(t.Context(), &qosv1alpha1.WatchAssignmentsRequest{})
			<-ended
		},
		"garbage on the socket of the node API": func(_ *testing.T, v *victim, ended <-chan struct{}) {
			for !isClosed(ended) {
				sendGarbage("unix", v.options.APISocket)
			}
		},
		"garbage on the port of the metrics": func(_ *testing.T, v *victim, ended <-chan struct{}) {
			for !isClosed(ended) {
				sendGarbage("tcp", v.options.MetricsAddress)
			}
		},
		"idle connections to the metrics": func(_ *testing.T, v *victim, ended <-chan struct{}) {
			if conn, err := net.Dial("tcp", v.options.MetricsAddress); err == nil {
				defer conn.Close()
				<-ended
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVictim(t)
			v.start(t)
			ended := make(chan struct{})
			var all sync.WaitGroup
			for range clients {
				all.Go(func() { attack(t, v, ended) })
			}
			v.wantThrives(t, 5)
			close(ended)
			all.Wait()
		})
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// sendGarbage connects to the agent and sends bytes that are no request. It ignores errors, because the agent closes the connection.
func sendGarbage(network, address string) {
	conn, err := net.Dial(network, address)
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(strings.Repeat("\xff\x00garbage\r\n", 10)))
}

// TestPodsWithHugeNamesAndRequestsDelayNoOthers creates pods with texts of a megabyte, in all fields that a pod's author can
// fill.
func TestPodsWithHugeNamesAndRequestsDelayNoOthers(t *testing.T) {
	v := newVictim(t)
	v.start(t)
	large := strings.Repeat("x\n\x1b[31m", 1<<18)
	for i, annotations := range []map[string]string{
		{"qos.noderesource.dev/pod": "test.example/cache=" + large},
		{"qos.noderesource.dev/pod": large},
		{"container.qos.noderesource.dev/" + large: "test.example/cache=gold"},
		{"other.example/" + large: large},
	} {
		pod, err := v.runtime.RunPod(t.Context(), nriruntime.PodConfig{Name: fmt.Sprint(i, large), Namespace: large, Annotations: annotations})
		must(t, err)
		_, err = v.runtime.CreateContainer(t.Context(), pod, nriruntime.ContainerConfig{Name: "main"})

		// Users read the refusal, so it has at most 4 KiB, and no control characters.
		if err != nil && (len(err.Error()) > 4096 || strings.ContainsAny(err.Error(), "\n\x1b")) {
			t.Errorf("the refusal has %[2]d bytes: %.200[1]q…", err.Error(), len(err.Error()))
		}
	}

	v.wantThrives(t, 3)
}

// conflicting is another NRI plugin. For pods named "attacked", it sets a field that qos-nri-plugin also sets.
type conflicting struct{}

func (conflicting) CreateContainer(
	_ context.Context, p *api.PodSandbox, _ *api.Container,
) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	a := &api.ContainerAdjustment{}
	if p.GetName() == "attacked" {
		a.SetLinuxRDTClosID("theirs")
	}
	return a, nil, nil
}

func TestContainersRefusedForAConflictTakeNoSlots(t *testing.T) {
	v := newVictim(t)
	v.start(t)
	other, err := stub.New(conflicting{}, stub.WithPluginName("other"), stub.WithPluginIdx("90"), stub.WithSocketPath(v.runtime.Socket()),
		stub.WithOnClose(func() {}))
	must(t, err)
	must(t, other.Start(t.Context()))

	t.Cleanup(other.Stop)
	must(t, v.runtime.WaitSynchronized(t.Context(), 2))

	for range 5 {
		if _, err := v.run(t, "attacked", "test.example/cache=gold"); err == nil {
			t.Error("a container with a conflict was created")
		}
	}

	v.wantThrives(t, 3) // one pod after another gets the only slot of gold
}

// TestAHungKernelDelaysNoOthers runs one container whose class cannot be read any more.
func TestAHungKernelDelaysNoOthers(t *testing.T) {
	v := newVictim(t)
	v.start(t)
	id, err := v.run(t, "attacker", "test.example/cache=silver")
	must(t, err)

	released := make(chan struct{})
	defer close(released)
	<-v.backend.Stick("observe "+id, released)
	v.wantThrives(t, 3)

	changed, err := v.run(t, "changed", "test.example/cache=silver")
	must(t, err)

	conn, err := nodeclient.Connect(v.options.APISocket)
	must(t, err)
	defer conn.Close()
	c, err := v.runtime.Container(changed)
	must(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = qosv1alpha1.NewNodeQOSClient(conn).UpdateContainerQOSResources(ctx, &qosv1alpha1.UpdateContainerQOSResourcesRequest{
		PodUid: c.Spec.Annotations["io.kubernetes.cri.sandbox-uid"], Container: "main",
		QosResources: []*qosv1alpha1.ContainerQOSResource{{Name: "test.example/cache", Class: "gold"}},
	})

	if got := v.backend.Enforced()[changed]; err != nil || got != "gold" {
		t.Errorf("the class of another container is %q after a change: %v", got, err)
	}
}

// TestARuntimeThatSendsGarbageIsRetried first lets another program serve the runtime's socket. The runtime starts later.
func TestARuntimeThatSendsGarbageIsRetried(t *testing.T) {
	for name, garbage := range map[string]string{
		"nothing": "", "zeros": strings.Repeat("\x00", 1<<20), "a frame of 4 GiB": "\x00\x00\x00\x01\xff\xff\xff\xff" + strings.Repeat("x", 1<<16),
		"frames of an unknown connection": strings.Repeat("\x00\x00\x00\x63\x00\x00\x00\x01x", 10_000), "HTTP": "HTTP/1.1 400 Bad Request\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			v := newVictim(t)
			v.runtime.Stop()
			listener, err := net.Listen("unix", v.runtime.Socket())
			must(t, err)

			var accepted sync.WaitGroup
			accepted.Add(2)
			go serveGarbage(listener, garbage, &accepted)
			v.begin(t)
			accepted.Wait() // the agent has connected a second time

			if err := listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				t.Fatal(err)
			}

			must(t, v.runtime.Start())

			v.wait(t)
			v.wantThrives(t, 1)
		})
	}
}

// serveGarbage answers each connection with garbage, and marks the first two as accepted.
func serveGarbage(listener net.Listener, garbage string, accepted *sync.WaitGroup) {
	for i := 0; ; i++ {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Write([]byte(garbage))
		_ = conn.Close()
		if i < 2 {
			accepted.Done()
		}
	}
}
