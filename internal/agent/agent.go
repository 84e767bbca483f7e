// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agent is the process of the plugin. It runs the node, the NRI plugin, the node API and the metrics server.
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
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/qos-nri/qos-nri-plugin/internal/checkpoint"
	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/internal/metrics"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nriplugin"
	"github.com/qos-nri/qos-nri-plugin/internal/tracing"
	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// stopTime is how long the parts of the process may take to end after SIGTERM.
const stopTime = 5 * time.Second

// releaseInterval is how often the agent retries to release removed classes, and removes old refusals from the status.
const releaseInterval = 30 * time.Second

// Options are the flags of the process.
type Options struct {
	Config, NRISocket, NRIIndex, MetricsAddress, HostRoot, StateDir string
	APISocket, APISocketGroup, APIReadSocket, APIReadSocketGroup    string

	MountResctrl bool
	Version      string
	// Tracer sends the spans of hooks and changes. If Tracer is nil, no spans are sent.
	Tracer *tracing.Exporter
	// RepairInterval is how often the agent looks for drift and corrects it.
	RepairInterval time.Duration
	// HeldInterval is the interval at which the agent compares the promises of classes with the measured values. 0
	// means never.
	HeldInterval time.Duration
	// HistoryInterval is the interval at which the agent records the use and the waiting of containers. 0 means never.
	HistoryInterval time.Duration
}

// DefaultOptions are the defaults of the flags.
func DefaultOptions() Options {
	return Options{
		Config: "/etc/qos-nri-plugin", NRISocket: "/var/run/nri/nri.sock", NRIIndex: "10",
		APISocket: "/run/qos-nri-plugin/qos.sock", MetricsAddress: "127.0.0.1:9420",
		HostRoot: "/", StateDir: "/run/qos-nri-plugin", MountResctrl: true,
		RepairInterval: 15 * time.Second,
	}
}

// Agent is the process of the plugin.
type Agent struct {
	options Options
	kinds   []classes.Kind
	host    hostfs.Root
	// cgroups finds the host's cgroups when it is called for the first time.
	cgroups func() (*cgroup.Tree, error)
	log     *slog.Logger
}

// New returns an agent that supports the given kinds of resources. It does no I/O.
func New(o Options, kinds []classes.Kind, log *slog.Logger) *Agent {
	host := hostfs.Root(o.HostRoot)
	cgroups := sync.OnceValues(func() (*cgroup.Tree, error) { return cgroup.Detect(host) })
	return &Agent{options: o, kinds: kinds, host: host, cgroups: cgroups, log: log}
}

// Run runs the agent until ctx ends, or until a part of the agent fails.
func (a *Agent) Run(ctx context.Context) error {
	lock, err := lockStateDir(a.options.StateDir)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()

	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)

	a.log.Info("starting", "version", a.options.Version, "config", a.options.Config, "hostRoot", a.options.HostRoot)
	defer a.log.Info("qos-nri-plugin ended; running containers keep their classes")

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
	kill := func(container classes.Holder) error { return cgroup.Kill(a.host, container) }
	n := node.New(node.Options{
		Kinds: a.kinds, Changes: changes, Log: a.log, StartTime: processTimes(a.host), HasCgroup: a.hasCgroup(), Kill: kill,
		HeldInterval: a.options.HeldInterval, HistoryInterval: a.options.HistoryInterval, Counters: a.counters(),
	})
	if err := n.Unrecorded(); err != nil && a.options.HistoryInterval > 0 {
		a.log.Warn("no history is recorded", "error", err)
	}
	return n, nil
}

func (a *Agent) serve(ctx context.Context, n *node.Node, files *classFiles, hangup <-chan os.Signal) error {
	// The agent listens before the plugin registers with the runtime, so that a process that cannot use the address ends
	// without registering.
	listener, err := metrics.Listen(ctx, a.options.MetricsAddress)
	if err != nil {
		return err
	}

	hooks, tracer := newHookMetrics(), a.options.Tracer
	plugin := nriplugin.New(n, nriplugin.Options{
		Socket: a.options.NRISocket, Index: a.options.NRIIndex, Observe: observe(hooks, tracer), Log: a.log,
	})
	api := nodeapi.New(refreshing{n, tracer, plugin.Refresh}, nodeapi.Options{
		Socket: a.options.APISocket, Group: a.options.APISocketGroup,
		ReadSocket: a.options.APIReadSocket, ReadGroup: a.options.APIReadSocketGroup, Version: a.options.Version, Log: a.log,
	})
	files.onApplied, files.tracer = plugin.Refresh, tracer

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return api.Run(ctx) })
	select {
	case <-api.Ready():
	case <-ctx.Done():
		return waitAtMost(ctx, group, stopTime)
	}

	group.Go(func() error {
		changed, joined := make(chan struct{}, 1), make(chan struct{}, 1)
		// Both start before the class files are applied, so that they miss no disk and no group that is removed after
		// that.
		a.followDisks(ctx, group, changed)
		watch := a.followGroups(ctx, group, changed, func(class string) {
			if n.HasLeft(class) { // other groups get processes from the plugin itself and from the runtime, when it creates containers
				signalTo(joined)
			}
		})
		files.load(ctx) // applies the class files before containers request classes
		watch()         // resctrl may have been mounted

		group.Go(func() error { return plugin.Run(ctx) })
		group.Go(func() error { return files.follow(ctx, hangup) })
		group.Go(func() error { return a.releaseDrained(ctx, n) })
		group.Go(func() error { return a.repair(ctx, n, changed, watch) })
		group.Go(func() error {
			(&threadFollower{joined: joined, move: n.MoveThreads}).run(ctx)
			return nil
		})
		group.Go(func() error { n.FollowHeld(ctx); return nil })
		group.Go(func() error { n.FollowHistory(ctx); return nil })
		return nil
	})

	if tracer != nil {
		group.Go(func() error { tracer.Run(ctx); return nil })
	}
	if listener != nil {
		group.Go(func() error {
			return newMetricsServer(n, a.options.MetricsAddress, hooks, a.kinds).Serve(ctx, listener)
		})
	}
	return waitAtMost(ctx, group, stopTime)
}

// waitAtMost waits for all parts of the agent to end. After ctx has ended, it waits no longer than the time limit.
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
		return fmt.Errorf("not all goroutines of qos-nri-plugin ended within %s", limit)
	}
}

// releaseDrained removes the state that the backends keep for removed classes, such as resctrl groups, when these
// classes are no longer in use.
func (a *Agent) releaseDrained(ctx context.Context, n *node.Node) error {
	retry := time.NewTicker(releaseInterval)
	defer retry.Stop()

	logged := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-n.Drained():
		case <-retry.C: // an earlier release may have failed because a group still had processes
			n.ExpireRefused()
		}

		failure := ""
		if err := n.ReleaseUnused(ctx); err != nil {
			failure = err.Error()
		}
		if failure != "" && failure != logged && ctx.Err() == nil {
			a.log.Warn("cannot clean up removed classes; retrying", "error", failure)
		}
		logged = failure
	}
}

var errLocked = errors.New("another qos-nri-plugin runs on this node; " +
	"two of them would set classes of the same containers, and every container creation would fail; stop one of the two")

// lockStateDir takes the lock that allows only one instance of the plugin on the node. The lock is released when the
// file is closed or the process ends.
func lockStateDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("create the state directory: %w; choose another directory with --state-dir", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}

	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errLocked
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", file.Name(), err), file.Close())
	}
	return file, nil
}
