// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	devicepluginv1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// endTimeout is how long an endpoint may take to say its last word, and to end.
const endTimeout = 2 * time.Second

// endpoint is the device plugin of one class. That kubelet follows its list is what "registered" means: a kubelet that
// has gone, or has lost its connection, follows no more and is registered with again.
type endpoint struct {
	devicepluginv1beta1.UnimplementedDevicePluginServer

	extended string
	events   events
	server   *grpc.Server
	socket   socket
	ended    chan struct{} // closed when the end begins
	// leaving is for settle, and the publisher's loop's alone.
	leaving map[string]time.Time

	serving   sync.WaitGroup
	followers sync.WaitGroup

	mu          sync.Mutex // guards all below
	class       class
	devices     []device
	unaccounted int      // those who have the class, and of whom kubelet does not know
	granted     []string // device IDs handed out, until somebody takes note of them
	streams     int      // how many kubelets follow: 1, and for a moment 2
	conns       int      // connections, with or without a stream
	changed     chan struct{}
	abort       context.CancelFunc // ends what goes on no longer than the endpoint; nil if nothing has begun
}

// events is what an endpoint tells; none of it blocks.
type events struct {
	followed  func() // kubelet has begun to follow
	lost      func() // kubelet has ended to follow
	allocated func(granted bool)
}

func newEndpoint(extended string, e events) *endpoint {
	p := &endpoint{
		extended: extended, events: e,
		changed: make(chan struct{}), ended: make(chan struct{}), leaving: map[string]time.Time{},
	}
	p.server = grpc.NewServer(grpc.StatsHandler(connections{endpoint: p}))
	devicepluginv1beta1.RegisterDevicePluginServer(p.server, p)
	return p
}

// set takes what the class is now, and its list. Kubelet gets a message only if it is another one.
func (p *endpoint) set(c class, devices []device, unaccounted int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.class, p.unaccounted, p.devices = c, unaccounted, devices
	p.announce()
}

// retire takes the list of a class that is gone.
func (p *endpoint) retire(devices []device) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.class.draining, p.unaccounted, p.devices = true, 0, devices
	p.announce()
}

// announce wakes whoever waits for a change. The caller holds mu.
func (p *endpoint) announce() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// view is what an endpoint is at one moment.
type view struct {
	class       class
	devices     []device
	unaccounted int
	streams     int
	conns       int
	changed     <-chan struct{}
}

func (p *endpoint) look() view {
	p.mu.Lock()
	defer p.mu.Unlock()
	return view{
		class: p.class, devices: p.devices, unaccounted: p.unaccounted, streams: p.streams, conns: p.conns, changed: p.changed,
	}
}

func (p *endpoint) registered() bool { return p.look().streams > 0 }

// untilEnd is ctx, but no longer than the endpoint is there. There is one at a time.
func (p *endpoint) untilEnd(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.ended:
		cancel()
	default:
		p.abort = cancel
	}
	return ctx, cancel
}

// awaitFollower waits until kubelet, which has connected, follows; false is that it does not, or has gone.
func (p *endpoint) awaitFollower(ctx context.Context, atMost time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for {
		now := p.look()
		if now.streams > 0 || now.conns == 0 {
			return now.streams > 0
		}
		select {
		case <-now.changed:
		case <-ctx.Done():
			return false
		}
	}
}

// takeGrants are the device IDs that were handed out since the last call.
func (p *endpoint) takeGrants() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	granted := p.granted
	p.granted = nil
	return granted
}

// connections counts those of an endpoint, as part of stats.Handler.
type connections struct{ endpoint *endpoint }

func (connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (connections) HandleRPC(context.Context, stats.RPCStats) {}

func (connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (c connections) HandleConn(_ context.Context, event stats.ConnStats) {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	switch event.(type) {
	case *stats.ConnBegin:
		c.endpoint.conns++
	case *stats.ConnEnd:
		c.endpoint.conns--
	}
	c.endpoint.announce()
}

// GetDevicePluginOptions answers that kubelet need not ask before a container starts, nor which device we would rather.
func (p *endpoint) GetDevicePluginOptions(context.Context, *devicepluginv1beta1.Empty) (*devicepluginv1beta1.DevicePluginOptions, error) {
	return &devicepluginv1beta1.DevicePluginOptions{}, nil
}

// ListAndWatch sends the list, and again whenever it is another one, until the endpoint ends.
func (p *endpoint) ListAndWatch(_ *devicepluginv1beta1.Empty,
	stream grpc.ServerStreamingServer[devicepluginv1beta1.ListAndWatchResponse]) error {
	if !p.join() {
		return status.Error(codes.Unavailable, p.extended+" is no longer offered")
	}
	defer p.leave()
	for first, sent := true, []device(nil); ; first = false {
		now := p.look()
		if first || !slices.Equal(sent, now.devices) {
			if err := stream.Send(message(now.devices)); err != nil {
				return err
			}
			sent = now.devices
		}
		select {
		case <-now.changed:
			continue
		default:
		}
		select {
		case <-now.changed:
		case <-p.ended:
			return nil
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		}
	}
}

func message(devices []device) *devicepluginv1beta1.ListAndWatchResponse {
	response := &devicepluginv1beta1.ListAndWatchResponse{Devices: make([]*devicepluginv1beta1.Device, len(devices))}
	for i, d := range devices {
		health := devicepluginv1beta1.Unhealthy
		if d.healthy {
			health = devicepluginv1beta1.Healthy
		}
		response.Devices[i] = &devicepluginv1beta1.Device{ID: d.id, Health: health}
	}
	return response
}

func (p *endpoint) join() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.ended:
		return false
	default:
	}
	p.followers.Add(1)
	p.streams++
	p.announce()
	p.events.followed()
	return true
}

func (p *endpoint) leave() {
	defer p.followers.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams--
	p.announce()
	p.events.lost()
}

// Allocate tells kubelet by which annotation the container gets its class.
func (p *endpoint) Allocate(_ context.Context, request *devicepluginv1beta1.AllocateRequest) (*devicepluginv1beta1.AllocateResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	response, ids, err := answer(p.class, request)
	p.granted = append(p.granted, ids...)
	p.events.allocated(err == nil)
	return response, err
}

// answer decides on a request to allocate.
func answer(c class, request *devicepluginv1beta1.AllocateRequest) (response *devicepluginv1beta1.AllocateResponse, ids []string, err error) {
	if c.draining {
		return nil, nil, status.Error(codes.FailedPrecondition, fmt.Sprintf(
			"class %q of %s is no longer configured on this node; ask for another class, or another node", c.name, c.resource))
	}
	response = &devicepluginv1beta1.AllocateResponse{}
	for _, ctr := range request.GetContainerRequests() {
		if n := len(ctr.GetDevicesIds()); n != 1 {
			return nil, nil, status.Error(codes.InvalidArgument, fmt.Sprintf(
				"one container can have one unit of class %q of %s, and this one asks for %d; ask for 1 of %s",
				c.name, c.resource, n, c.extended))
		}
		ids = append(ids, ctr.GetDevicesIds()...)
		response.ContainerResponses = append(response.ContainerResponses, &devicepluginv1beta1.ContainerAllocateResponse{
			Annotations: map[string]string{annotationKey(c.extended): c.resource + "=" + c.name},
		})
	}
	return response, ids, nil
}

// end has followers get the last list, and then the end of it; it returns when nothing is left of the endpoint.
func (p *endpoint) end() {
	p.mu.Lock() // for join
	close(p.ended)
	if p.abort != nil {
		p.abort()
	}
	p.mu.Unlock()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.server.GracefulStop()
	}()
	timer := time.NewTimer(endTimeout)
	defer timer.Stop()
	select {
	case <-stopped:
	case <-timer.C:
		p.server.Stop()
		<-stopped
	}
	p.followers.Wait()
	p.socket.remove()
	p.serving.Wait()
}
