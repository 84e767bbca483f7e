// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nri0123_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/containerd/nri/pkg/adaptation"
	validator "github.com/containerd/nri/plugins/default-validator"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime/hostdir"
)

const heavyWeight = "default 10000\n"

// stopper is a host that treats the plugin as the process of a container: the plugin gets SIGTERM when this container is
// stopped.
type stopper struct {
	*hostdir.Host
	// own is the ID of the plugin's container, and process is the plugin's process.
	own     atomic.Pointer[string]
	process *process
}

// Delete removes a container's cgroup. If it is the plugin's container, Delete first stops the plugin with SIGTERM.
func (s *stopper) Delete(ctx context.Context, id string) error {
	if own := s.own.Load(); own != nil && *own == id {
		if err := errors.Join(s.process.Process.Signal(syscall.SIGTERM), <-s.process.ended); err != nil {
			return err
		}
	}
	return s.Host.Delete(ctx, id)
}

// leavesBetweenHooks stops and starts the plugin again and again while containers are created. If a pod requires the
// plugin, the runtime must not start its containers outside of their classes. Half of the time, the plugin is stopped
// as the kubelet stops a container.
func leavesBetweenHooks(t *testing.T, r *rig) {
	const creators, times = 4, 20
	host := &stopper{Host: r.host}
	r.validate(t, host)

	var created, refused atomic.Int64
	var wg sync.WaitGroup
	ended := make(chan struct{})
	for i := range creators {
		pod := r.requiring(t, fmt.Sprint("requires", i))
		wg.Go(func() {
			for !done(ended) {
				if r.createsInClass(t, pod) {
					created.Add(1)
				} else {
					refused.Add(1)
				}
			}
		})
	}

	for i := range times {
		host.process = r.start(t)
		for n := created.Load(); created.Load() < n+creators; { // the plugin is under load
		}
		if i%2 == 0 {
			r.stopAsContainer(t, host)
			continue
		}
		host.process.signal(t, syscall.SIGTERM)
		if err := <-host.process.ended; err != nil {
			t.Errorf("the plugin ended with %v", err)
		}
	}

	close(ended)
	wg.Wait()
	if created.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d containers were created, and %d refused", created.Load(), refused.Load())
	}
}

// validate restarts the runtime with NRI's default validator.
func (r *rig) validate(t *testing.T, host nriruntime.OCI) {
	t.Helper()
	r.Stop()
	check := adaptation.WithDefaultValidator(&validator.DefaultValidatorConfig{Enable: true})
	var err error
	if r.Runtime, err = nriruntime.New(r.dir, nriruntime.Options{OCI: host, NRI: []adaptation.Option{check}}); err != nil {
		t.Fatal(err)
	}
	must(t, r.Start())
	t.Cleanup(r.Stop)
}

// requiring runs a pod that requires the plugin, and returns the ID of the pod.
func (r *rig) requiring(t *testing.T, name string) string {
	t.Helper()
	pod, err := r.RunPod(t.Context(), nriruntime.PodConfig{Name: name, UID: name, Annotations: map[string]string{
		"container.qos.noderesource.dev/main": "blockio=heavy", "required-plugins.noderesource.dev": "[ qos-nri-plugin ]",
	}})
	must(t, err)
	return pod
}

// stopAsContainer stops the plugin as the kubelet does.
func (r *rig) stopAsContainer(t *testing.T, host *stopper) {
	t.Helper()
	pod, id := r.runWith(t, nriruntime.PodConfig{Name: "qos-nri-plugin"}, nriruntime.ContainerConfig{Name: "plugin"})
	host.own.Store(&id)
	must(t, errors.Join(r.StopContainer(t.Context(), id), r.RemovePod(t.Context(), pod)))
}

func done(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// refusals are the reasons for which a container may be refused while the plugin leaves, is away, or comes back.
func refusals() []string {
	return []string{
		"qos-nri-plugin is being stopped", "validator plugin 10-qos-nri-plugin failed: ttrpc: closed",
		`required plugin "qos-nri-plugin" not present`,
	}
}

// createsInClass creates, starts and removes a container. It reports whether the runtime started the container. A container that starts
// must be in its class, and one that does not start must be refused for one of refusals.
func (r *rig) createsInClass(t *testing.T, pod string) bool {
	id, err := r.CreateContainer(t.Context(), pod, nriruntime.ContainerConfig{Name: "main"})
	if err == nil {
		err = r.StartContainer(t.Context(), id)
	}
	if err == nil {
		if weight, err := r.host.ReadFile(id, "io.weight"); err != nil || weight != heavyWeight {
			t.Errorf("a container that requires the plugin was started with io.weight %q, %v", weight, err)
		}
	} else if !slices.ContainsFunc(refusals(), func(reason string) bool { return strings.Contains(err.Error(), reason) }) {
		t.Errorf("a container was refused with %v", err)
	}

	if id != "" {
		if err := r.RemoveContainer(t.Context(), id); err != nil {
			t.Error(err)
		}
	}

	return err == nil
}
