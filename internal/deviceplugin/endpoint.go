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

	extended  string
	publisher *Publisher
	server    *grpc.Server
	socket    socket
	leaving   map[string]time.Time // when each device became unwanted, see phaseOut; only publishLoop uses it

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

func newEndpoint(extended string, publisher *Publisher) *endpoint {
	e := &endpoint{
		extended: extended, publisher: publisher, leaving: map[string]time.Time{}, state: endpointState{changed: make(chan struct{})},
	}
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.server = grpc.NewServer()
	devicepluginv1beta1.RegisterDevicePluginServer(e.server, e)
	return e
}

// look returns the current state. The state includes a channel that is closed when the state changes.
func (e *endpoint) look() endpointState {
	e.mu.Lock()
	defer e.mu.Unlock()

	return e.state
}

func (e *endpoint) registered() bool { return e.look().streams > 0 }

// update changes the state. ListAndWatch then sends a message to kubelet if the devices differ.
func (e *endpoint) update(change func(*endpointState)) {
	e.mu.Lock()
	defer e.mu.Unlock()

	change(&e.state)
	close(e.state.changed)
	e.state.changed = make(chan struct{})
}

// untilEnd returns a context that ends when ctx ends or when the endpoint ends.
func (e *endpoint) untilEnd(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	release := context.AfterFunc(e.ctx, cancel)
	return ctx, func() {
		release()
		cancel()
	}
}

// awaitStream waits until kubelet watches the devices.
func (e *endpoint) awaitStream(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()

	for now := e.look(); now.streams == 0; now = e.look() {
		select {
		case <-now.changed:
		case <-ctx.Done():
			return fmt.Errorf("kubelet has accepted the registration of %s, but has not asked for its devices", e.extended)
		}
	}
	return nil
}

func (e *endpoint) takeGrants() []string {
	e.mu.Lock()
	defer e.mu.Unlock()

	granted := e.granted
	e.granted = nil
	return granted
}

// GetDevicePluginOptions returns no options, so kubelet calls neither PreStartContainer nor GetPreferredAllocation.
func (e *endpoint) GetDevicePluginOptions(context.Context, *devicepluginv1beta1.Empty) (*devicepluginv1beta1.DevicePluginOptions, error) {
	return &devicepluginv1beta1.DevicePluginOptions{}, nil
}

func (e *endpoint) ListAndWatch(_ *devicepluginv1beta1.Empty,
	stream grpc.ServerStreamingServer[devicepluginv1beta1.ListAndWatchResponse]) error {
	if !e.streamStarted() {
		return status.Error(codes.Unavailable, e.extended+" is no longer offered")
	}
	defer e.streamEnded()

	for first, sent := true, []device(nil); ; first = false {
		now := e.look()
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
		case <-e.ctx.Done():
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
func (e *endpoint) streamStarted() bool {
	started := false
	e.update(func(s *endpointState) {
		if started = e.ctx.Err() == nil; started {
			s.streams++
			e.streams.Add(1)
		}
	})
	if started {
		wake(e.publisher.changed)
	}
	return started
}

func (e *endpoint) streamEnded() {
	defer e.streams.Done()
	e.update(func(s *endpointState) { s.streams-- })
	e.publisher.kubeletRestarted.Store(true)
	wake(e.publisher.lost)
}

// Allocate returns the annotation with which the container gets its class.
func (e *endpoint) Allocate(_ context.Context, request *devicepluginv1beta1.AllocateRequest) (*devicepluginv1beta1.AllocateResponse, error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	response, ids, err := answer(e.state.class, request)
	outcome := "granted"
	if err != nil {
		outcome = "refused"
	}
	e.granted = append(e.granted, ids...)
	e.publisher.metrics.allocations.WithLabelValues(outcome).Inc()
	wake(e.publisher.changed)
	return response, err
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
func (e *endpoint) end() {
	e.update(func(*endpointState) { e.stop() }) // update holds mu, so no stream starts afterwards
	timer := time.AfterFunc(endTimeout, e.server.Stop)
	defer timer.Stop()
	e.server.GracefulStop()

	e.streams.Wait()
	e.socket.remove()
	e.serving.Wait()
}
