// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"
	devicepluginv1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	pluginsDirectory = "device-plugins"
	kubeletSocket    = "kubelet.sock"

	// registerTimeout has room for the 10 s that kubelet takes to dial back, while it does not answer us.
	registerTimeout = 15 * time.Second
	// followTimeout is how long kubelet may take from a registration to its request for the list.
	followTimeout = 10 * time.Second
	// steadyTime is after which a registration has lasted, and the next trouble is new trouble.
	steadyTime = 10 * time.Second
)

func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 8, Cap: 10 * time.Second}
}

// keepRegistered has every endpoint registered with kubelet, until ctx ends.
func (p *Publisher) keepRegistered(ctx context.Context, dir *directory) {
	pace := pace{backoff: newBackoff()}
	for {
		dir.watch()
		err := p.registerAll(ctx)
		if ctx.Err() != nil {
			return
		}
		if !errors.Is(err, errInterrupted) {
			p.tell(err)
		}
		pace.tried(err, dir.blind())
		if !p.awaitTry(ctx, dir, &pace) {
			return
		}
	}
}

// awaitTry waits until there is something to register, or to look at again; false is that ctx has ended.
func (p *Publisher) awaitTry(ctx context.Context, dir *directory, pace *pace) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-dir.reborn:
			pace.backoff = newBackoff()
			return true
		case <-p.register:
			return true
		case <-pace.next:
			return true
		case <-p.lost:
			pace.lost()
		}
	}
}

// pace says when registrations are tried again.
type pace struct {
	backoff wait.Backoff
	next    <-chan time.Time // nil when there is nothing to try
	good    time.Time        // since when all have been registered; zero while they are not
}

// tried takes the outcome of a try. Who is blind looks again also when all is well.
func (p *pace) tried(err error, blind bool) {
	p.next = nil
	switch {
	case err != nil:
		p.good = time.Time{}
		p.next = time.After(p.backoff.Step())
		return
	case p.good.IsZero():
		p.good = time.Now()
	}
	if blind {
		p.next = time.After(steadyTime)
	}
}

// lost takes that kubelet no longer follows. One that follows and leaves again and again is not asked all the time.
func (p *pace) lost() {
	if !p.good.IsZero() && time.Since(p.good) > steadyTime {
		p.backoff = newBackoff()
	}
	p.good = time.Time{}
	p.next = time.After(p.backoff.Step())
}

// tell keeps what stands in the way of registrations, and says in the log when that changes.
func (p *Publisher) tell(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	switch problem {
	case p.problem:
	case "":
		p.log.Info("kubelet has the classes as device plugins", "classes", len(p.endpoints))
	default:
		p.log.Warn("cannot publish classes to kubelet; it is tried again", "problem", problem)
	}
	p.problem = problem
}

// registerAll binds and registers every endpoint that kubelet does not follow. It goes on after what concerns one class
// alone, and returns the first problem.
func (p *Publisher) registerAll(ctx context.Context) error {
	if err := p.checkDirectory(); err != nil {
		return err
	}
	p.sweepOnce(ctx)
	var problems []error
	var waiting []*endpoint
	for _, e := range p.sorted() {
		if err := p.bind(ctx, e); err != nil {
			problems = append(problems, err)
		} else if !e.registered() {
			waiting = append(waiting, e)
		}
	}
	for _, e := range waiting {
		err := p.registerOne(ctx, e)
		if err != nil {
			problems = append(problems, err)
		}
		if errors.Is(err, errNoKubelet) || ctx.Err() != nil {
			break
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return problems[0]
}

// checkDirectory says what is wrong with kubelet's directory, in words for whoever set --kubelet-dir.
func (p *Publisher) checkDirectory() error {
	entries, err := os.Open(p.dir)
	if err == nil {
		_, err = entries.Readdirnames(1)
		_ = entries.Close()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no %s; set --kubelet-dir to kubelet's --root-dir, and mount it", p.dir)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s cannot be read: permission denied; run as the user who owns it, root as a rule, or correct --kubelet-dir", p.dir)
	case err != nil && !errors.Is(err, io.EOF):
		return fmt.Errorf("%s cannot be read: %w; set --kubelet-dir to kubelet's --root-dir", p.dir, err)
	}
	return nil
}

func (p *Publisher) sweepOnce(ctx context.Context) {
	if !p.swept {
		p.swept = sweep(ctx, p.dir) == nil
	}
}

func (p *Publisher) bind(ctx context.Context, e *endpoint) error {
	name, err := socketName(p.dir, e.extended)
	if err != nil {
		return err
	}
	err = e.socket.bind(ctx, filepath.Join(p.dir, name), func(l net.Listener) {
		e.serving.Go(func() { _ = e.server.Serve(l) }) // it ends with its listener, which is no news
	})
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("make a socket in %s: permission denied; mount it writable, and run as the user who owns it, root as a rule", p.dir)
	case err != nil:
		return fmt.Errorf("make the socket of %s: %w", e.extended, err)
	}
	return nil
}

// errNoKubelet says that it is not the class that kubelet minds.
var errNoKubelet = errors.New("kubelet does not answer")

// errInterrupted says that a registration had no sense any more, and is tried again at once.
var errInterrupted = errors.New("the socket was removed in between")

// attempt is a registration under way.
type attempt struct {
	endpoint *endpoint
	cancel   context.CancelFunc
}

// registerOne tells kubelet of an endpoint. It serves before that: kubelet dials back before it answers, and tries for
// 10 s. A kubelet that starts may remove the socket after we have looked at it: then we do not wait for that.
func (p *Publisher) registerOne(ctx context.Context, e *endpoint) error {
	name, err := socketName(p.dir, e.extended)
	if err != nil {
		return err
	}
	wanted, cancel := e.untilEnd(ctx)
	defer cancel()
	trying, cancel := context.WithCancel(wanted)
	defer cancel()
	p.setAttempt(&attempt{endpoint: e, cancel: cancel})
	defer p.setAttempt(nil)
	if err := p.bind(trying, e); err != nil {
		return err
	}
	socket := filepath.Join(p.dir, kubeletSocket)
	err = register(trying, socket, name, e.extended)
	switch {
	case wanted.Err() != nil:
		return nil
	case err != nil && trying.Err() != nil:
		return errInterrupted
	case err != nil:
		return explain(err, socket, e.extended)
	}
	p.metrics.registrations.Inc()
	if !e.awaitFollower(wanted, followTimeout) && wanted.Err() == nil {
		return fmt.Errorf("kubelet has taken the registration of %s, and not asked for its devices", e.extended)
	}
	return nil
}

func (p *Publisher) setAttempt(a *attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attempt = a
}

// socketRemoved takes that somebody has removed one of our sockets.
func (p *Publisher) socketRemoved() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.attempt != nil && !p.attempt.endpoint.socket.there() {
		p.attempt.cancel()
	}
	poke(p.register)
}

func explain(err error, socket, extended string) error {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return fmt.Errorf("%w on %s; does it run, and is --kubelet-dir its --root-dir?", errNoKubelet, socket)
	default:
		return fmt.Errorf("kubelet refuses %s: %s", extended, status.Convert(err).Message())
	}
}

func register(ctx context.Context, socket, endpoint, extended string) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	conn, err := dial(socket)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = devicepluginv1beta1.NewRegistrationClient(conn).Register(ctx, &devicepluginv1beta1.RegisterRequest{
		Version: devicepluginv1beta1.Version, Endpoint: endpoint, ResourceName: extended,
		Options: &devicepluginv1beta1.DevicePluginOptions{},
	})
	return err
}

// dial makes a connection to one of kubelet's sockets, for one request.
func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///localhost",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
	)
}
