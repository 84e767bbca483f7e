// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	qos "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// traffic makes changes of classes and, at the same time, calls to the runtime. Each call has a deadline, so a runtime that hangs
// fails the test.
type traffic struct {
	pod *pod
	// `turns` has the other workers. Each one works once after a number of changes, unless it is still working.
	turns []turn
	// `slower` multiplies the number of changes between two turns of a worker. It limits the time of long runs.
	slower int64
	// These count what the workers have done.
	changes, reloads, resizes, containers atomic.Int64
}

// turn makes a worker work after each `every` changes. The channel is closed after the last change.
type turn struct {
	every int64
	begin chan struct{}
}

// changesUnderLoad changes the class of a container QOS_CHANGES times, while the runtime resizes, creates, starts, stops and removes
// containers, and while the class file changes. With NRI before 0.12.1, an update that a plugin requests then hangs the runtime.
func changesUnderLoad(t *testing.T, p *pod) { underLoad(t, p, throttled(t)) }

// TestChangesUnderLoad runs only the case changesUnderLoad, on a machine that may lack RDT and have only the disk /dev/vda.
func TestChangesUnderLoad(t *testing.T) {
	n := startNode(t)
	writeClassFile(t, `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/blockio
  classes: [{name: throttled}, {name: slower}]
  blockio:
    Classes:
      throttled: [{Devices: [/dev/vda], ThrottleReadBps: 2M, ThrottleWriteBps: 1M}]
      slower: [{Devices: [/dev/vda], ThrottleReadBps: 700k}]
`)
	n.startPlugin(t)
	t.Cleanup(func() { n.plugin.end(t, syscall.SIGTERM) })
	p := n.runPod(t, "shared", map[string]string{keyOf("changed"): "blockio=throttled", keyOf("reloaded"): "blockio=slower"})
	t.Run("changes of classes do not hang the runtime", func(t *testing.T) {
		underLoad(t, p, ioLimits{deviceNumber(t, "/dev/vda"): {"rbps": "2000000", "wbps": "1000000"}})
	})
}

// underLoad is changesUnderLoad on a machine where the class "throttled" has these limits.
func underLoad(t *testing.T, p *pod, want ioLimits) {
	changes := int64(fromEnvironment(t, "QOS_CHANGES", 100))
	changed, reloaded := p.run(t, spec{name: "changed"}), p.run(t, spec{name: "reloaded"})
	before := mustRead(t, filepath.Join(configDir, "classes.yaml"))
	w, began := &traffic{pod: p, slower: 1 + changes/2500}, time.Now()
	workers, ctx := errgroup.WithContext(t.Context())
	api := p.node.api(t)

	w.work(ctx, workers, 25, func(i int) error {
		return w.reload(ctx, t, api, strings.Replace(before, "ThrottleReadBps: 700k", fmt.Sprintf("ThrottleReadBps: %dk", 701+i%9), 1))
	})
	for _, c := range []*container{changed, reloaded} {
		w.work(ctx, workers, 10, func(i int) error { return w.resize(ctx, c, i) })
	}
	for _, name := range []string{"passing-1", "passing-2"} {
		w.work(ctx, workers, 50, func(i int) error { return w.runContainer(ctx, t, name, i) })
	}
	workers.Go(func() error { return w.change(ctx, api, changes) })
	err := workers.Wait()

	t.Logf("%d changes of classes, %d changed class files, %d resizes and %d containers in %s",
		w.changes.Load(), w.reloads.Load(), w.resizes.Load(), w.containers.Load(), time.Since(began).Round(time.Second))
	must(t, err)
	must(t, w.reload(t.Context(), t, api, before))
	must(t, w.resize(t.Context(), changed, 0)) // all changes of the class have ended
	wantLimits(t, p.node.limits(t, changed.cgroup()), want)
}

// work starts a worker, which works once after each `every` changes.
func (w *traffic) work(ctx context.Context, workers *errgroup.Group, every int64, do func(i int) error) {
	begin := make(chan struct{}, 1)
	w.turns = append(w.turns, turn{every * w.slower, begin})
	workers.Go(func() error {
		i := 0
		for range begin {
			if ctx.Err() != nil {
				return nil // another worker has failed
			}
			if err := do(i); err != nil {
				return err
			}
			i++
		}
		return nil
	})
}

// change moves the container "changed" from one class to another and back, `n` times. It ends in the class "throttled".
func (w *traffic) change(ctx context.Context, api qos.NodeQOSClient, n int64) error {
	defer func() {
		for _, turn := range w.turns {
			close(turn.begin)
		}
	}()
	for i := range n {
		class := []string{"slower", "throttled"}[(n-i)%2]
		err := w.call(ctx, func(ctx context.Context) error {
			_, err := api.UpdateContainerQOSResources(ctx, &qos.UpdateContainerQOSResourcesRequest{
				PodUid: w.pod.config.Metadata.Uid, Container: "changed", QosResources: []*qos.ContainerQOSResource{{Name: "blockio", Class: class}},
			})
			return err
		})
		if err != nil {
			return fmt.Errorf("change %d of the class: %w", i+1, err)
		}
		w.changes.Add(1)
		for _, turn := range w.turns {
			if i%turn.every == 0 {
				select {
				case turn.begin <- struct{}{}:
				default:
				}
			}
		}
	}
	return nil
}

// reload writes a class file, and waits until the plugin has changed the containers of the classes.
func (w *traffic) reload(ctx context.Context, t *testing.T, api qos.NodeQOSClient, classFile string) error {
	return w.call(ctx, func(ctx context.Context) error {
		watch, err := api.Watch(ctx, &qos.WatchRequest{})
		if err != nil {
			return err
		}
		first, err := watch.Recv()
		writeClassFile(t, classFile)
		for now := first; err == nil && now.GetStatus().GetConfig().GetGeneration() == first.GetStatus().GetConfig().GetGeneration(); {
			now, err = watch.Recv()
		}
		if err != nil {
			return fmt.Errorf("wait for a changed class file: %w", err)
		}
		w.reloads.Add(1)
		return nil
	})
}

// resize resizes a container as the kubelet does.
func (w *traffic) resize(ctx context.Context, c *container, i int) error {
	err := w.call(ctx, func(ctx context.Context) error {
		_, err := c.pod.node.runtime.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{
			ContainerId: c.id, Linux: &cri.LinuxContainerResources{CpuShares: int64(300 + i%9)},
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("resize a container: %w", err)
	}
	w.resizes.Add(1)
	return nil
}

// runContainer creates, starts, stops and removes a container.
func (w *traffic) runContainer(ctx context.Context, t *testing.T, name string, i int) error {
	runtime := w.pod.node.runtime
	c, err := w.pod.create(t, spec{name: name, attempt: uint32(i)}) //nolint:gosec // a small number
	if err != nil {
		return fmt.Errorf("create a container: %w", err)
	}

	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"start", func(ctx context.Context) error {
			_, err := runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: c.id})
			return err
		}},
		{"stop", func(ctx context.Context) error {
			_, err := runtime.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: c.id})
			return err
		}},
		{"remove", func(ctx context.Context) error {
			_, err := runtime.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: c.id})
			return err
		}},
	} {
		if err := w.call(ctx, step.do); err != nil {
			return fmt.Errorf("%s a container: %w", step.what, err)
		}
	}
	w.containers.Add(1)
	return nil
}

// call makes one call, and limits its time. An error of another worker does not cancel the call, so that the test can
// remove the containers of the workers.
func (w *traffic) call(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return do(ctx)
}
