// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/invariant"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// TestManyContainersAreSynchronizedWithoutStoringTheirLargeSpecs creates more containers than the runtime can list in one message.
func TestManyContainersAreSynchronizedWithoutStoringTheirLargeSpecs(t *testing.T) {
	const containers, size = 500, 20 << 10
	r := newRig(t)
	world := invariant.Machine{API: serveAPI(t, r.node), Live: invariant.LiveIn(r.Runtime), Classes: func() map[string]map[string]string {
		return map[string]map[string]string{"test.example/cache": r.backend.Enforced()}
	}}

	large := nriruntime.ContainerConfig{Name: "main", Env: []string{"LARGE=" + strings.Repeat("x", size)}}
	requests := []string{"", "test.example/cache=bronze", "test.example/cache="}
	for i := range containers {
		id := r.createWith(t, r.pod(t, fmt.Sprint("p", i), requests[i%len(requests)]), large)
		if i%10 == 0 {
			continue // the container is created, but not started
		}
		must(t, r.StartContainer(t.Context(), id))
	}

	world.Hold(t)
	before := usage(t)
	for range 2 {
		r.restartRuntime(t)
	}

	// A spec has more than 20 KiB, and a synchronization may store at most 1 KiB of it. Buffers that are used again have different sizes, so
	// the smallest of three measurements counts.
	grown := math.MaxInt
	for range 3 {
		r.restartRuntime(t)
		world.Hold(t)
		grown = min(grown, usage(t).heap-before.heap)
	}
	if grown > containers<<10 {
		t.Errorf("the heap has grown by %d KiB, want at most 1 KiB per container", grown>>10)
	}
}

// TestCreationsDuringSynchronizationsKeepTheirClasses reconnects the plugin while containers are created, started and
// removed.
func TestCreationsDuringSynchronizationsKeepTheirClasses(t *testing.T) {
	const reconnections, workers = 15, 6
	r := newMachineRig(t, simcgroup.New())
	done := make(chan struct{})
	var working sync.WaitGroup
	for worker := range workers {
		working.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				if err := r.work(t, worker, i); err != nil {
					t.Error(err)
				}
			}
		})
	}

	for range reconnections {
		r.stop()
		n := r.Synchronizations()
		r.plugin, r.stop = startPlugin(t, r.node, r.Runtime)
		r.wait(t, n+1)
	}

	close(done)
	working.Wait()
	r.node.Reconcile(t.Context())
	r.world.Hold(t)
}

// work creates a container, and may end it. Some errors are expected: the plugin refuses containers while it
// disconnects, and refuses to start a container that was created while the plugin was not connected. Requests also fail
// when the plugin disconnects.
func (r *machineRig) work(t *testing.T, worker, i int) error {
	t.Helper()
	requests := []string{"rdt=silver", "", "blockio=slow", "rdt=,blockio=slow"}
	config := nriruntime.PodConfig{Name: fmt.Sprintf("w%d-%d", worker, i)}
	if request := requests[i%len(requests)]; request != "" {
		config.Annotations = map[string]string{"qos.noderesource.dev/pod": request}
	}

	pod, err := r.RunPod(t.Context(), config)
	if err != nil {
		return err
	}

	_, err = r.run(t, pod)
	switch {
	case err == nil && i%3 == 0:
		return nil // the container keeps running
	case err == nil,
		strings.Contains(err.Error(), "qos-nri-plugin is being stopped"), strings.Contains(err.Error(), "ttrpc: closed"):
		return r.RemovePod(t.Context(), pod)
	}

	return err
}
