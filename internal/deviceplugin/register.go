// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"
	devicepluginv1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/qos-nri/qos-nri-plugin/internal/unixsocket"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const (
	pluginsDirectory = "device-plugins"
	kubeletSocket    = "kubelet.sock"

	// registerTimeout limits the duration of one registration. It includes the 10 s during which kubelet tries to
	// connect to the endpoint before kubelet answers.
	registerTimeout = 15 * time.Second
	// watchTimeout is how long kubelet may take to call ListAndWatch after it has accepted a registration.
	watchTimeout = 10 * time.Second
	// stableTime is how long all endpoints must stay registered before the backoff is reset.
	stableTime = 10 * time.Second
)

func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 8, Cap: 10 * time.Second}
}

// registerLoop keeps every endpoint registered with kubelet until ctx ends.
func (p *Publisher) registerLoop(ctx context.Context, dir *directory) {
	retry := retry{backoff: newBackoff()}
	for {
		dir.watch()
		err := p.registerAll(ctx)
		if ctx.Err() != nil {
			return
		}
		if !errors.Is(err, errInterrupted) {
			p.setProblem(err)
		}

		retry.record(err, dir.needsPoll())
		if !p.awaitRetry(ctx, dir, &retry) {
			return
		}
	}
}

// awaitRetry waits until the publisher must call registerAll again. It returns false if ctx has ended.
func (p *Publisher) awaitRetry(ctx context.Context, dir *directory, retry *retry) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-dir.kubeletRestarted:
			retry.backoff = newBackoff()
			return true
		case <-p.register:
			return true
		case <-retry.next:
			return true
		case <-p.lost:
			retry.lost()
		}
	}
}

// retry decides when the publisher tries again to register endpoints.
type retry struct {
	backoff     wait.Backoff
	next        <-chan time.Time // receives a value when the next attempt is due; nil if no attempt is planned
	stableSince time.Time        // when all endpoints became registered; zero if not all are registered
}

// record records the outcome of an attempt. If inotify is not available, record plans another attempt even after a success.
func (r *retry) record(err error, needsPoll bool) {
	r.next = nil
	if err != nil {
		r.stableSince, r.next = time.Time{}, time.After(r.backoff.Step())
		return
	}

	if r.stableSince.IsZero() {
		r.stableSince = time.Now()
	}
	if needsPoll {
		r.next = time.After(stableTime)
	}
}

// lost records that kubelet has ended a stream. It delays the next registration by the backoff, because kubelet may
// connect and disconnect repeatedly.
func (r *retry) lost() {
	if !r.stableSince.IsZero() && time.Since(r.stableSince) > stableTime {
		r.backoff = newBackoff()
	}
	r.stableSince, r.next = time.Time{}, time.After(r.backoff.Step())
}

func (p *Publisher) setProblem(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	problem := ""
	if err != nil {
		problem = err.Error()
	}
	switch problem {
	case p.problem:
	case "":
		p.log.Info("all classes are registered with kubelet", "classes", len(p.endpoints))
	default:
		p.log.Warn("cannot publish classes to kubelet, retrying", "problem", problem)
	}
	p.problem = problem
}

// registerAll binds and registers every endpoint that kubelet does not watch. If the registration of one class fails,
// registerAll continues with the other classes. It returns the first error.
func (p *Publisher) registerAll(ctx context.Context) error {
	if err := p.checkDirectory(); err != nil {
		return err
	}
	if err := p.checkDriver(ctx); err != nil {
		return err
	}
	if !p.cleaned {
		p.cleaned = removeStaleSockets(ctx, p.dir) == nil
	}

	var first error
	for _, e := range p.sorted() {
		_, err := p.bind(ctx, e)
		first = cmp.Or(first, err)
	}
	return cmp.Or(first, p.registerMissing(ctx))
}

// registerMissing registers all endpoints that kubelet does not watch, at the same time. So the time without devices after a restart of
// kubelet does not grow with the number of classes. It returns the first error in the order of the endpoints. Other errors take
// precedence over errInterrupted.
func (p *Publisher) registerMissing(ctx context.Context) error {
	missing := p.unregistered()
	errs := make([]error, len(missing))
	var registrations sync.WaitGroup
	for i, e := range missing {
		registrations.Go(func() { errs[i] = p.registerOne(ctx, e) })
	}
	registrations.Wait()

	lasting := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return errors.Is(err, errInterrupted) })
	return cmp.Or(cmp.Or(lasting...), cmp.Or(errs...))
}

// checkDirectory returns an error if kubelet's directory cannot be used. The error includes the remedy.
func (p *Publisher) checkDirectory() error {
	_, err := os.ReadDir(p.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s does not exist; set --kubelet-dir to kubelet's --root-dir, and mount that directory", p.dir)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s cannot be read: permission denied; run as its owner, usually root, or correct --kubelet-dir", p.dir)
	case err != nil:
		return fmt.Errorf("%s cannot be read: %w; set --kubelet-dir to kubelet's --root-dir", p.dir, err)
	}
	return nil
}

// checkDriver returns an error if classes have to be registered while the DRA driver offers the classes of the node.
// The scheduler would count each slot twice. Classes that are registered already stay registered, because the driver
// waits for their end.
func (p *Publisher) checkDriver(ctx context.Context) error {
	if len(p.unregistered()) == 0 || !unixsocket.Served(ctx, filepath.Join(p.kubeletDir, "plugins", classes.Domain, classes.DRASocket)) {
		return nil
	}
	return errors.New("qos-dra-driver offers the classes of the node, and a node can offer a class in only one way; " +
		"remove the driver, or run it with --retire while pods have claims, and the device plugins take over")
}

func (p *Publisher) bind(ctx context.Context, e *endpoint) (name string, err error) {
	if name, err = socketName(p.dir, e.extended); err != nil {
		return "", err
	}

	err = e.socket.bind(ctx, filepath.Join(p.dir, name), func(l net.Listener) {
		e.serving.Go(func() { _ = e.server.Serve(l) }) // Serve returns an error when the listener is closed, which is expected
	})
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "", fmt.Errorf("create a socket in %s: permission denied; mount the directory writable, and run as its owner, usually root", p.dir)
	case err != nil:
		return "", fmt.Errorf("create the socket of %s: %w", e.extended, err)
	}
	return name, nil
}

// errInterrupted means that kubelet removed the socket of the endpoint during the registration. The publisher retries
// the registration at once.
var errInterrupted = errors.New("the socket was removed during the registration")

// registerOne registers an endpoint, and waits until kubelet watches its devices. It serves the endpoint before it calls
// Register, because kubelet connects to the endpoint before it answers the call. Kubelet tries to connect for up to 10 s.
// If kubelet restarts meanwhile and removes the socket, socketRemoved cancels the attempt.
func (p *Publisher) registerOne(ctx context.Context, e *endpoint) error {
	ctx, cancel := e.untilEnd(ctx)
	defer cancel()
	attemptCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.cancelRegistration.Store(&cancel)
	defer e.cancelRegistration.Store(nil)

	name, err := p.bind(attemptCtx, e)
	if err != nil {
		return err
	}
	err = register(attemptCtx, filepath.Join(p.dir, kubeletSocket), name, e.extended)
	if err == nil {
		p.metrics.registrations.Inc()
		err = e.awaitStream(attemptCtx)
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil && attemptCtx.Err() != nil:
		return errInterrupted
	}
	return err
}

func (p *Publisher) socketRemoved() {
	for _, e := range p.sorted() {
		if cancel := e.cancelRegistration.Load(); cancel != nil && !e.socket.exists() {
			(*cancel)()
		}
	}
	wake(p.register)
}

func register(ctx context.Context, socket, endpoint, extended string) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	conn, err := unixsocket.Dial(socket, maxAnswer)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()

	_, err = devicepluginv1beta1.NewRegistrationClient(conn).Register(ctx, &devicepluginv1beta1.RegisterRequest{
		Version: devicepluginv1beta1.Version, Endpoint: endpoint, ResourceName: extended,
		Options: &devicepluginv1beta1.DevicePluginOptions{},
	})
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return fmt.Errorf("kubelet does not answer on %s; check that kubelet runs, and that --kubelet-dir is kubelet's --root-dir", socket)
	default:
		return fmt.Errorf("kubelet refuses %s: %s", extended, status.Convert(err).Message())
	}
}
