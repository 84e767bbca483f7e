// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

func TestTheRuntimeGetsTheGroupTheValuesAndTheRecord(t *testing.T) {
	r := newRig(t)
	id := r.mustRun(t, r.pod(t, "a", "test.example/cache=gold"))
	c := r.container(t, id)
	if c.Spec.ClosID != "test-gold" || c.Spec.Unified["test.class"] != "gold" {
		t.Errorf("the spec has group %q and values %v", c.Spec.ClosID, c.Spec.Unified)
	}

	if !strings.Contains(c.Spec.Annotations[state.RecordAnnotation], "gold") {
		t.Errorf("the annotations do not record the class: %v", c.Spec.Annotations)
	}

	if got := r.backend.Enforced()[id]; got != "gold" {
		t.Errorf("the container was started in class %q", got)
	}
}

func TestAPodWithoutARequestIsNotChanged(t *testing.T) {
	r := newRig(t)
	id := r.mustRun(t, r.pod(t, "a", ""))
	c := r.container(t, id)
	if c.Spec.ClosID != "" || len(c.Spec.Unified) > 0 || c.Spec.Annotations[state.RecordAnnotation] != "" {
		t.Errorf("the spec was adjusted: %+v", c.Spec)
	}
}

func TestARefusalReachesTheRuntimeInOneLine(t *testing.T) {
	r := newRig(t)
	_, err := r.run(t, r.pod(t, "a", "test.example/cache=platinum"))
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{"pod default/a container main", `"platinum"`, "test.example/cache", "available: gold, solo, bronze"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not have %s", err, part)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q has several lines", err)
	}
}

func TestConcurrentCreationsDoNotExceedTheCapacity(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	admitted, refused := 0, 0
	for i := range 100 {
		pod := r.pod(t, fmt.Sprintf("p%d", i), "test.example/cache=gold")
		wg.Go(func() {
			_, err := r.run(t, pod)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				admitted++
			} else if strings.Contains(err.Error(), "is full") {
				refused++
			}
		})
	}

	wg.Wait()
	if admitted != 10 || refused != 90 {
		t.Errorf("admitted %d, refused %d as full; want 10 and 90", admitted, refused)
	}

	r.holds(t)
}

func TestARestartedContainerGetsAFullClassBesideItsPredecessor(t *testing.T) {
	r := newRig(t)
	pod := r.pod(t, "a", "test.example/cache=solo")
	previous := r.mustRun(t, pod)
	for range 20 {
		// The kubelet creates the new container before it removes the old one. The runtime may report the exit of the
		// old one at any time.
		if _, err := r.Exit(t.Context(), previous); err != nil {
			t.Fatal(err)
		}
		next := r.mustRun(t, pod)
		must(t, r.RemoveContainer(t.Context(), previous))
		previous = next
	}

	if got := r.node.Status().Resources[0].InUse["solo"]; got != 1 {
		t.Errorf("%d slots are in use, want 1", got)
	}

	r.holds(t)
}

func TestACreationThatFailsLaterFreesItsSlot(t *testing.T) {
	r := newRig(t)
	r.backend.Fail("enforce", fmt.Errorf("the kernel refuses"))
	if _, err := r.run(t, r.pod(t, "a", "test.example/cache=solo")); err == nil {
		t.Fatal("no error")
	}
	r.backend.Fail("enforce", nil)
	r.mustRun(t, r.pod(t, "b", "test.example/cache=solo"))
	r.holds(t)
}

func TestContainersKeepTheirSlotsWhenTheRuntimeRestarts(t *testing.T) {
	r := newRig(t)
	r.mustRun(t, r.pod(t, "a", "test.example/cache=solo"))
	for range 3 {
		r.restartRuntime(t)
	}
	if _, err := r.run(t, r.pod(t, "b", "test.example/cache=solo")); err == nil || !strings.Contains(err.Error(), "is full") {
		t.Errorf("error is %v, want that the class is full: after a restart, a running container keeps its slot", err)
	}
	r.holds(t)
}

func TestANewPluginTracksRunningContainers(t *testing.T) {
	r := newRig(t)
	id := r.mustRun(t, r.pod(t, "a", "test.example/cache=solo"))
	r.stop()
	r.begin(t, newNode(t, r.backend))
	pods := r.node.Assignments()
	if len(pods) != 1 || len(pods[0].Containers) != 1 || pods[0].Containers[0].ID != id || pods[0].Containers[0].Assignments[0].Class != "solo" {
		t.Errorf("assignments are %+v, want the container in class solo", pods)
	}
	r.holds(t)
}

func TestThePluginRegistersAfterARuntimeDiedInTheHandshake(t *testing.T) {
	runtime := newRuntime(t, nriruntime.Options{})
	died, err := nriruntime.DieDuringHandshake(runtime.Socket())
	must(t, err)
	startPlugin(t, newNode(t, nodetest.NewBackend()), runtime)
	<-died
	must(t, runtime.Start())
	t.Cleanup(runtime.Stop)
	(&rig{Runtime: runtime}).wait(t, 1)
}
