// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/agent"
	"github.com/qos-nri/qos-nri-plugin/internal/config"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeclient"
	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
)

// endTime is the longest time that an agent may take to end.
const endTime = 15 * time.Second

// checkpoint is the agent's file in its state directory.
const checkpoint = "changes.json"

// process is an agent that runs in goroutines of this program as if it were a process that can be killed. A kill cuts the
// agent's connections, makes its calls to the machine fail, and undoes its later writes to the checkpoint.
type process struct {
	options agent.Options
	host    *mortal
	cable   *cable
	conn    *grpc.ClientConn
	api     qosv1alpha1.NodeQOSClient
	cancel  context.CancelFunc
	// ended is closed when the agent has ended. `err` is then the error of the agent.
	ended chan struct{}
	err   error
	// `killed` is closed when the process is killed. Then `checkpoint` gets the content that the checkpoint file has at
	// the kill, and `dead` is closed.
	killed, dead chan struct{}
	checkpoint   []byte
}

// startProcess starts an agent and waits until the agent answers. `runtime` is the path of the runtime's NRI socket. The
// agent connects to it through a cable, so that a kill can cut the connection.
func startProcess(ctx context.Context, o agent.Options, machine *sim.Machine, runtime string, log *slog.Logger) (*process, error) {
	p := &process{options: o, ended: make(chan struct{}), killed: make(chan struct{}), dead: make(chan struct{})}
	p.host = &mortal{machine: machine, died: p.die}
	tree, err := cgroup.Detect(p.host)
	if err != nil {
		return nil, err
	}

	if p.cable, err = newCable(o.NRISocket, runtime); err != nil {
		return nil, err
	}

	if p.conn, err = nodeclient.Connect(o.APISocket); err != nil {
		return nil, errors.Join(err, p.cable.end())
	}

	p.api = qosv1alpha1.NewNodeQOSClient(p.conn)
	known := config.Kinds(config.Host{FS: p.host, Tree: tree, MountResctrl: o.MountResctrl, Log: log})

	// The agent outlives the request that starts it.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.cancel = cancel
	go func() {
		defer close(p.ended)
		p.err = agent.New(o, known, log).Run(running)
	}()

	if _, err := p.api.Status(ctx, &qosv1alpha1.StatusRequest{}, grpc.WaitForReady(true)); err != nil {
		return nil, errors.Join(fmt.Errorf("the agent does not answer: %w", err), p.end())
	}

	return p, nil
}

// die is called at the moment of the kill. At this moment, the checkpoint file has every change that the agent has
// confirmed. The method `end` restores this content.
func (p *process) die() {
	close(p.killed)
	_ = p.conn.Close()
	p.checkpoint, _ = os.ReadFile(filepath.Join(p.options.StateDir, checkpoint)) // the file may not exist yet
	p.cable.cut()
	p.cancel()
	close(p.dead)
}

func (p *process) wasKilled() bool {
	select {
	case <-p.killed:
		return true
	default:
		return false
	}
}

// endedByItself returns the error of an agent that ended without being stopped or killed.
func (p *process) endedByItself() error {
	select {
	case <-p.ended:
	default:
		return nil
	}
	if p.wasKilled() {
		return nil
	}
	return fmt.Errorf("the agent has ended: %w", p.err)
}

// end ends the agent and waits for its goroutines. If the agent was killed, it restores the files that a killed
// process leaves: the checkpoint at the moment of the kill, and a socket that no process serves.
func (p *process) end() error {
	p.cancel()
	late := time.NewTimer(endTime)
	defer late.Stop()
	select {
	case <-p.ended:
	case <-late.C:
		return fmt.Errorf("the agent has not ended within %s", endTime)
	}
	if p.wasKilled() {
		return errors.Join(p.cable.end(), p.leave())
	}
	return errors.Join(p.conn.Close(), p.cable.end(), p.err)
}

func (p *process) leave() error {
	<-p.dead
	path := filepath.Join(p.options.StateDir, checkpoint)
	var err error
	if p.checkpoint == nil {
		err = os.RemoveAll(path)
	} else {
		err = os.WriteFile(path, p.checkpoint, 0o600)
	}

	listener, listenErr := net.ListenUnix("unix", &net.UnixAddr{Name: p.options.APISocket})
	if listenErr != nil {
		return errors.Join(err, listenErr)
	}

	listener.SetUnlinkOnClose(false)
	return errors.Join(err, listener.Close())
}
