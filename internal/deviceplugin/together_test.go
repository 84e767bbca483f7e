// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	devicepluginv1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// together returns a function that returns when a number of goroutines have called it.
func together(number int64) func(ctx context.Context) {
	var missing atomic.Int64
	missing.Store(number)
	open := make(chan struct{})
	return func(ctx context.Context) {
		if missing.Add(-1) == 0 {
			close(open)
		}
		select {
		case <-open:
		case <-ctx.Done():
		}
	}
}

// TestAllClassesAreRegisteredAtTheSameTime uses a kubelet that answers registrations only after it has got those of all
// classes.
func TestAllClassesAreRegisteredAtTheSameTime(t *testing.T) {
	const number = 30
	r := newRig(t)
	var wait atomic.Pointer[func(ctx context.Context)]
	wait.Store(new(together(number)))
	r.kubelet.DuringRegister = func(ctx context.Context) { (*wait.Load())(ctx) }

	info := &qosv1alpha1.QOSResourceInfo{Name: "k8s.io/rdt"}
	for i := range number {
		name := fmt.Sprintf("c%02d", i)
		info.Classes = append(info.Classes, &qosv1alpha1.QOSResourceClassInfo{Name: name, ExtendedResource: "qos.noderesource.dev/rdt." + name})
	}
	r.plugin.ready(&qosv1alpha1.ResourcesInfo{ContainerQosResources: []*qosv1alpha1.QOSResourceInfo{info}})
	r.startKubelet()
	r.run()

	registered := func() bool {
		for _, class := range info.Classes {
			if r.kubelet.Resource(class.ExtendedResource).Allocatable == 0 {
				return false
			}
		}
		return true
	}
	r.until("all classes are registered", registered)
	for _, class := range info.Classes {
		if got := r.kubelet.Resource(class.ExtendedResource).Registrations; got != 1 {
			t.Errorf("%s was registered %d times, because a registration timed out", class.Name, got)
		}
	}
	wait.Store(new(together(number)))
	r.kubelet.Kill()
	r.soon("the shim has noticed the end of the kubelet", func() bool { return len(r.publisher.unregistered()) == number })
	r.startKubelet()
	r.until("all classes are registered again", registered)
}

// forgetful accepts registrations, and does not ask for devices, like a kubelet that ends just after its answer.
type forgetful struct {
	devicepluginv1beta1.UnimplementedRegistrationServer
	accepted atomic.Int64
}

func (f *forgetful) Register(context.Context, *devicepluginv1beta1.RegisterRequest) (*devicepluginv1beta1.Empty, error) {
	f.accepted.Add(1)
	return &devicepluginv1beta1.Empty{}, nil
}

// TestAKubeletThatRestartsBeforeItAsksForDevicesGetsTheClassesSoon ends a kubelet that has accepted the registrations of all three classes,
// but has not asked for their devices. The publisher waits for that up to watchTimeout. It must end this wait when the kubelet restarts.
func TestAKubeletThatRestartsBeforeItAsksForDevicesGetsTheClassesSoon(t *testing.T) {
	r, former, server := newRig(t), &forgetful{}, grpc.NewServer()
	must.Do(t, os.MkdirAll(r.kubelet.PluginsDir(), 0o750))
	listener := must.Get(net.Listen("unix", filepath.Join(r.kubelet.PluginsDir(), kubeletSocket)))(t)
	devicepluginv1beta1.RegisterRegistrationServer(server, former)
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	r.plugin.ready(offered(2))
	r.run()
	r.soon("all classes are accepted", func() bool { return former.accepted.Load() == 3 })
	server.GracefulStop() // sends the answers first
	must.Do(t, <-served)

	restarted := time.Now()
	r.startKubelet()
	r.awaitGold(2, 2)
	if took := time.Since(restarted); took > watchTimeout/2 {
		t.Errorf("the classes were registered after %s", took)
	}
}
