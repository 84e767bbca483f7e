// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	devicepluginv1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// endTimeout limits how long an endpoint may take to send its last list and to end.
const endTimeout = 2 * time.Second

// endpoint is the device plugin of one class. An endpoint counts as registered while kubelet watches its devices. If
// kubelet restarts or loses the connection, the publisher registers the endpoint again.
type endpoint struct {
	devicepluginv1beta1.UnimplementedDevicePluginServer

	extended string
	events   events
	server   *grpc.Server
	socket   socket
	leaving  map[string]time.Time // when each device became unwanted, see phaseOut; only publishLoop uses it

	cancelRegistration atomic.Pointer[context.CancelFunc] // ends the registration in progress; nil if there is none

	ctx              context.Context //nolint:containedctx // canceled when the endpoint ends
	stop             context.CancelFunc
	serving, streams sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	state   endpointState
	granted []string // IDs of the devices that Allocate has granted since the last takeGrants
}

// endpointState has the published devices of an endpoint, and the number of kubelet's streams.
type endpointState struct {
	class   class
	devices []device
	streams int // number of active calls of ListAndWatch: usually one, and two for a short time
	changed chan struct{}
}

type events struct {
	streamStarted, streamEnded func()
	allocated                  func(outcome string)
}

func newEndpoint(extended string, e events) *endpoint {
	p := &endpoint{
		extended: extended, events: e, leaving: map[string]time.Time{}, state: endpointState{changed: make(chan struct{})},
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.server = grpc.NewServer()
	devicepluginv1beta1.RegisterDevicePluginServer(p.server, p)
	return p
}

// look returns the current state. The state includes a channel that is closed when the state changes.
func (p *endpoint) look() endpointState {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.state
}

func (p *endpoint) registered() bool { return p.look().streams > 0 }

// update changes the state. ListAndWatch then sends a message to kubelet if the devices differ.
func (p *endpoint) update(change func(*endpointState)) {
	p.mu.Lock()
	defer p.mu.Unlock()

	change(&p.state)
	close(p.state.changed)
	p.state.changed = make(chan struct{})
}

// untilEnd returns a context that ends when ctx ends or when the endpoint ends.
func (p *endpoint) untilEnd(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	release := context.AfterFunc(p.ctx, cancel)
	return ctx, func() {
		release()
		cancel()
	}
}

// awaitStream waits until kubelet watches the devices.
func (p *endpoint) awaitStream(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()

	for now := p.look(); now.streams == 0; now = p.look() {
		select {
		case <-now.changed:
		case <-ctx.Done():
			return fmt.Errorf("kubelet has accepted the registration of %s, but has not asked for its devices", p.extended)
		}
	}
	return nil
}

func (p *endpoint) takeGrants() []string {
	p.mu.Lock()
	defer p.mu.Unlock()

	granted := p.granted
	p.granted = nil
	return granted
}

// GetDevicePluginOptions returns no options, so kubelet calls neither PreStartContainer nor GetPreferredAllocation.
func (p *endpoint) GetDevicePluginOptions(context.Context, *devicepluginv1beta1.Empty) (*devicepluginv1beta1.DevicePluginOptions, error) {
	return &devicepluginv1beta1.DevicePluginOptions{}, nil
}

func (p *endpoint) ListAndWatch(_ *devicepluginv1beta1.Empty,
	stream grpc.ServerStreamingServer[devicepluginv1beta1.ListAndWatchResponse]) error {
	if !p.streamStarted() {
		return status.Error(codes.Unavailable, p.extended+" is no longer offered")
	}
	defer p.streamEnded()

	for first, sent := true, []device(nil); ; first = false {
		now := p.look()
		if first || !slices.Equal(sent, now.devices) {
			if err := stream.Send(message(now.devices)); err != nil {
				return err
			}
			sent = now.devices
		}

		select {
		case <-now.changed: // checked before the end of the endpoint, so that the last list is sent
			continue
		default:
		}
		select {
		case <-now.changed:
		case <-p.ctx.Done():
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

// streamStarted counts a new stream. It returns false if the endpoint has ended.
func (p *endpoint) streamStarted() bool {
	started := false
	p.update(func(s *endpointState) {
		if started = p.ctx.Err() == nil; started {
			s.streams++
			p.streams.Add(1)
		}
	})
	if started {
		p.events.streamStarted()
	}
	return started
}

func (p *endpoint) streamEnded() {
	defer p.streams.Done()
	p.update(func(s *endpointState) { s.streams-- })
	p.events.streamEnded()
}

// Allocate returns the annotation with which the container gets its class.
func (p *endpoint) Allocate(_ context.Context, request *devicepluginv1beta1.AllocateRequest) (*devicepluginv1beta1.AllocateResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	response, ids, err := answer(p.state.class, request)
	if err != nil {
		p.events.allocated("refused")
		return nil, err
	}
	p.granted = append(p.granted, ids...)
	p.events.allocated("granted")
	return response, nil
}

// answer grants or refuses a request to allocate devices. It returns the IDs of the granted devices.
func answer(c class, request *devicepluginv1beta1.AllocateRequest) (response *devicepluginv1beta1.AllocateResponse, ids []string, err error) {
	if c.draining {
		return nil, nil, status.Errorf(codes.FailedPrecondition,
			"class %q of %s is no longer configured on this node; request another class, or use another node", c.name, c.resource)
	}

	response = &devicepluginv1beta1.AllocateResponse{}
	for _, ctr := range request.GetContainerRequests() {
		if n := len(ctr.GetDevicesIds()); n != 1 {
			return nil, nil, status.Errorf(codes.InvalidArgument,
				"a container can have only one unit of class %q of %s, but it requests %d; request 1 of %s",
				c.name, c.resource, n, c.extended)
		}
		ids = append(ids, ctr.GetDevicesIds()...)
		response.ContainerResponses = append(response.ContainerResponses, &devicepluginv1beta1.ContainerAllocateResponse{
			Annotations: map[string]string{annotationKey(c.extended): c.resource + "=" + c.name},
		})
	}
	return response, ids, nil
}

// end sends the last list to kubelet, ends the streams and removes the socket. It returns when all goroutines of the
// endpoint have ended.
func (p *endpoint) end() {
	p.update(func(*endpointState) { p.stop() }) // update holds mu, so no stream starts afterwards
	timer := time.AfterFunc(endTimeout, p.server.Stop)
	defer timer.Stop()
	p.server.GracefulStop()

	p.streams.Wait()
	p.socket.remove()
	p.serving.Wait()
}
