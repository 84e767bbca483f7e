// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agent is the plugin's process: it puts node, NRI, node API and metrics together and runs them as one.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/qos-nri/qos-nri-plugin/internal/checkpoint"
	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/internal/metrics"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nriplugin"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// stopTime bounds the end of the process after SIGTERM. Running containers keep their classes.
const stopTime = 5 * time.Second

// releaseInterval is how often classes that are gone are looked at again, when the kernel was not done with them, and refusals
// that nobody repeats.
const releaseInterval = 30 * time.Second

// Options of the process; its flags.
type Options struct {
	Config, NRISocket, NRIIndex, APISocket, APISocketGroup, MetricsAddress, HostRoot, StateDir string

	MountResctrl bool
	Version      string
	// InspectInterval is how often the machine is compared with what should be.
	InspectInterval time.Duration
}

// DefaultOptions are those of a node agent.
func DefaultOptions() Options {
	return Options{
		Config: "/etc/qos-nri-plugin", NRISocket: "/var/run/nri/nri.sock", NRIIndex: "10",
		APISocket: "/run/qos-nri-plugin/qos.sock", MetricsAddress: "127.0.0.1:9420",
		HostRoot: "/", StateDir: "/run/qos-nri-plugin", MountResctrl: true,
		InspectInterval: 15 * time.Second,
	}
}

// Agent is the plugin's process.
type Agent struct {
	options Options
	kinds   []classes.Kind
	host    hostfs.Root
	log     *slog.Logger
}

// New makes an agent with the kinds of resources that it knows. It does no I/O.
func New(o Options, kinds []classes.Kind, log *slog.Logger) *Agent {
	return &Agent{options: o, kinds: kinds, host: hostfs.Root(o.HostRoot), log: log}
}

// Run serves until ctx ends, or until a part of the agent cannot go on.
func (a *Agent) Run(ctx context.Context) error {
	lock, err := lockStateDir(a.options.StateDir)
	if err != nil {
		return err
	}
	defer lock.release()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	a.log.Info("starting", "version", a.options.Version, "config", a.options.Config, "hostRoot", a.options.HostRoot)
	defer a.log.Info("ended; running containers keep their classes")
	n, err := a.newNode()
	if err != nil {
		return err
	}
	return a.serve(ctx, n, a.newClassFiles(n), hangup)
}

func (a *Agent) newNode() (*node.Node, error) {
	bootID, err := a.host.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("read the boot ID below --host-root %s: %w", a.options.HostRoot, err)
	}
	path := filepath.Join(a.options.StateDir, "changes.json")
	changes := checkpoint.Open(path, strings.TrimSpace(string(bootID)), a.log)
	return node.New(node.Options{Kinds: a.kinds, Changes: changes, Log: a.log, StartTime: processTimes(a.host)}), nil
}

func (a *Agent) serve(ctx context.Context, n *node.Node, files *classFiles, hangup <-chan os.Signal) error {
	// Before the plugin registers: what the agent cannot have must not take it away from the runtime later.
	listener, err := metrics.Listen(ctx, a.options.MetricsAddress)
	if err != nil {
		return err
	}
	hooks := newHookMetrics()
	plugin := nriplugin.New(n, nriplugin.Options{
		Socket: a.options.NRISocket, Index: a.options.NRIIndex, Observe: hooks.observe, Log: a.log,
	})
	api := nodeapi.New(n, nodeapi.Options{
		Socket: a.options.APISocket, Group: a.options.APISocketGroup, Version: a.options.Version, Log: a.log,
	})
	files.applied = plugin.Refresh
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return api.Run(ctx) })
	select {
	case <-api.Ready():
	case <-ctx.Done():
		return waitAtMost(ctx, group, stopTime)
	}
	group.Go(func() error {
		disks := make(chan struct{}, 1)
		a.followDisks(ctx, group, disks) // before they are looked at
		files.load(ctx)                  // before any container may ask
		group.Go(func() error { return plugin.Run(ctx) })
		group.Go(func() error { return files.follow(ctx, hangup) })
		group.Go(func() error { return a.releaseDrained(ctx, n) })
		group.Go(func() error { return a.watchMachine(ctx, n, disks) })
		return nil
	})
	if listener != nil {
		group.Go(func() error { return newMetricsServer(n, hooks).Serve(ctx, listener) })
	}
	return waitAtMost(ctx, group, stopTime)
}

// waitAtMost waits for all parts of the agent, but no longer than limit after ctx has ended.
func waitAtMost(ctx context.Context, group *errgroup.Group, limit time.Duration) error {
	done := make(chan error, 1)
	go func() { done <- group.Wait() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fmt.Errorf("not all parts ended within %s", limit)
	}
}

// releaseDrained lets the backends drop what they keep for classes that are gone, once nothing runs in them any more.
func (a *Agent) releaseDrained(ctx context.Context, n *node.Node) error {
	retry := time.NewTicker(releaseInterval)
	defer retry.Stop()
	warned := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-n.Drained():
		case <-retry.C: // what still had processes the last time
			n.ExpireRefused()
		}
		why := ""
		if err := n.ReleaseUnused(ctx); err != nil {
			why = err.Error()
		}
		if why != "" && why != warned && ctx.Err() == nil {
			a.log.Warn("classes that are gone could not be cleaned up; it is tried again", "error", why)
		}
		warned = why
	}
}

// errLocked says that another instance runs.
var errLocked = errors.New("another qos-nri-plugin runs on this node; two would claim the same containers and break every creation")

type stateLock struct{ file *os.File }

// lockStateDir takes the lock that only one instance on a node can have; the kernel drops it when the process ends.
func lockStateDir(dir string) (*stateLock, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the state directory: %w; name another with --state-dir", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	if err := flock(file); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", file.Name(), err), file.Close())
	}
	return &stateLock{file: file}, nil
}

func (l *stateLock) release() { _ = l.file.Close() }
