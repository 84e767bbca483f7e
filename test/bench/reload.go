// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"github.com/qos-nri/qos-nri-plugin/internal/nriplugin"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime/hostdir"
)

// overhead has the durations of a change of all classes by the node, and the durations of the bare writes of such a change.
type overhead struct {
	what       string
	node, bare []time.Duration
}

// measureReloads measures how long the node takes to apply a class file that changes the limits of all classes, with the limits of
// all running containers. It compares this time with bare writes:
//
//   - With cgroup v1, bare writes write the same files, and read each of them back once.
//   - With cgroup v2, the runtime writes and stores the limits. So bare writes are the same calls to the runtime, by a
//     plugin that does nothing else, and the file io.max is read back once.
func measureReloads(ctx context.Context, o options, dir string) (rows []overhead, err error) {
	for _, legacy := range []bool{true, false} {
		row := overhead{what: "cgroup v2"}
		if legacy {
			row.what = "cgroup v1"
		}
		sub := filepath.Join(dir, fmt.Sprintf("reload-%t", legacy))
		if err := measureReload(ctx, o, sub, legacy, &row); err != nil {
			return nil, fmt.Errorf("%s: %w", row.what, err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func measureReload(ctx context.Context, o options, dir string, legacy bool, row *overhead) error {
	l, err := newLocal(ctx, filepath.Join(dir, "node"), legacy, limitsFile(0))
	if err != nil {
		return err
	}

	plugin, err := l.register(ctx, filepath.Join(dir, "nri"), o.many)
	if err != nil {
		return err
	}
	defer plugin.stop()
	bare, err := newBareWriter(ctx, filepath.Join(dir, "bare"), legacy, o.many)
	if err != nil {
		return err
	}
	defer bare.stop()

	for n := range o.reloads {
		began := time.Now()
		if err := l.configure(ctx, limitsFile(n+1)); err != nil {
			return err
		}
		plugin.refresh()
		moved := l.Reconcile(ctx)
		row.node = append(row.node, time.Since(began))
		if moved != o.many {
			return fmt.Errorf("the limits of %d containers were changed, want %d", moved, o.many)
		}

		took, err := bare.write(n + 1)
		if err != nil {
			return err
		}
		row.bare = append(row.bare, took)
	}

	return nil
}

// connection is a runtime with a plugin in this process, and with containers.
type connection struct {
	runtime    *nriruntime.Runtime
	containers []string
	refresh    func()
	cancel     context.CancelFunc
	ended      chan error
}

func (c *connection) stop() {
	c.cancel()
	<-c.ended
	c.runtime.Stop()
}

// register connects the node to a runtime, and starts containers that have classes.
func (l *local) register(ctx context.Context, dir string, containers int) (*connection, error) {
	runtime, err := startRuntime(dir, l.machine)
	if err != nil {
		return nil, err
	}
	plugin := nriplugin.New(l.Node, nriplugin.Options{Socket: runtime.Socket(), Index: "10", Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(ctx)
	c := &connection{runtime: runtime, refresh: plugin.Refresh, cancel: cancel, ended: make(chan error, 1)}
	go func() { c.ended <- plugin.Run(ctx) }()
	return c, errors.Join(runtime.WaitSynchronized(ctx, 1), c.fill(ctx, containers))
}

func startRuntime(dir string, machine *hostdir.Host) (*nriruntime.Runtime, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	runtime, err := nriruntime.New(dir, nriruntime.Options{OCI: machine})
	if err != nil {
		return nil, err
	}
	return runtime, runtime.Start()
}

func (c *connection) fill(ctx context.Context, containers int) error {
	for n := range containers {
		config := pod(n, "")
		config.Annotations[requestKey] = "blockio=" + limitClass(n)
		pod, err := c.runtime.RunPod(ctx, config)
		if err != nil {
			return err
		}
		id, err := c.runtime.CreateContainer(ctx, pod, container())
		if err == nil {
			err = c.runtime.StartContainer(ctx, id)
		}
		if err != nil {
			return err
		}
		c.containers = append(c.containers, id)
	}

	return nil
}

// bareWriter writes the limits of containers, and does nothing else.
type bareWriter struct {
	*connection
	machine *hostdir.Host
	legacy  bool
	stub    stub.Stub
}

func newBareWriter(ctx context.Context, dir string, legacy bool, containers int) (*bareWriter, error) {
	host := filepath.Join(dir, "host")
	if err := os.MkdirAll(host, 0o750); err != nil {
		return nil, err
	}

	machine, err := hostdir.New(host, hostdir.Options{Legacy: legacy})
	if err != nil {
		return nil, err
	}

	runtime, err := startRuntime(filepath.Join(dir, "nri"), machine)
	if err != nil {
		return nil, err
	}

	s, err := stub.New(plainPlugin{}, stub.WithPluginName("bare"), stub.WithPluginIdx("10"), stub.WithSocketPath(runtime.Socket()),
		stub.WithOnClose(func() {}), stub.WithLogger(silence{}))
	if err != nil {
		return nil, err
	}

	w := &bareWriter{machine: machine, legacy: legacy, stub: s}
	w.connection = &connection{runtime: runtime, cancel: s.Stop, ended: make(chan error, 1)}
	err = s.Start(ctx)
	go func() { s.Wait(); w.ended <- nil }()
	return w, errors.Join(err, runtime.WaitSynchronized(ctx, 1), w.fill(ctx, containers))
}

// write writes the limits that limitsFile(n) has, and returns how long that took.
func (w *bareWriter) write(n int) (time.Duration, error) {
	calls := make([][]fileCall, len(w.containers))
	for i, id := range w.containers {
		one, err := w.calls(id, limitOf(n, i))
		if err != nil {
			return 0, err
		}
		calls[i] = one
	}

	began := time.Now()
	for i, id := range w.containers {
		if !w.legacy {
			if err := w.update(id, limitOf(n, i)); err != nil {
				return 0, err
			}
		}
		if err := repeat(calls[i]); err != nil {
			return 0, err
		}
	}

	return time.Since(began), nil
}

func (w *bareWriter) update(id string, limit int) error {
	update := &api.ContainerUpdate{}
	update.SetContainerId(id)
	update.AddLinuxUnified("io.max", fmt.Sprintf("8:0 rbps=%d wbps=%d riops=%d wiops=%d", 1000*limit, 1000*limit, limit, limit))
	failed, err := w.stub.UpdateContainers([]*api.ContainerUpdate{update})
	if err == nil && len(failed) > 0 {
		err = errors.New("the runtime could not update the container")
	}
	return err
}

// calls returns the calls that write the limits of a container with cgroup v1, and read them back. With cgroup v2, they
// only read.
func (w *bareWriter) calls(id string, limit int) (calls []fileCall, err error) {
	dir, err := w.machine.Dir(id)
	if err != nil {
		return nil, err
	}

	if !w.legacy {
		return []fileCall{{Path: filepath.Join(dir, "io.max")}}, nil
	}

	bytes, operations := fmt.Appendf(nil, "8:0 %d", 1000*limit), fmt.Appendf(nil, "8:0 %d", limit)
	for file, data := range map[string][]byte{"read_bps": bytes, "write_bps": bytes, "read_iops": operations, "write_iops": operations} {
		path := filepath.Join(dir, "blkio.throttle."+file+"_device")
		calls = append(calls, fileCall{path, data}, fileCall{Path: path})
	}

	return calls, nil
}
