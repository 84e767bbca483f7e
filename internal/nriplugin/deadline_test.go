// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// stick makes an operation of the backend hang until the test ends, or `release` is called.
func (r *rig) stick(t *testing.T, operation string) (reached <-chan struct{}, release func()) {
	t.Helper()
	released := make(chan struct{})
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release) // this cleanup runs before the one that stops the plugin
	return r.backend.Stick(operation, released), release
}

func await(t *testing.T, reached <-chan struct{}) {
	t.Helper()
	select {
	case <-reached:
	case <-time.After(time.Minute):
		t.Fatal("the backend was never called")
	}
}

// wantHooksAnswered creates, starts and stops containers, and checks that no hook takes longer than the runtime's timeout: the
// runtime would then disconnect the plugin.
func (r *rig) wantHooksAnswered(t *testing.T, name string) {
	t.Helper()
	before := r.Synchronizations()
	for i, request := range []string{"", "test.example/cache=bronze"} {
		id := r.mustRun(t, r.pod(t, fmt.Sprint(name, i), request))
		if got := r.inUse("bronze"); got != i { // only the second container requests bronze
			t.Errorf("%d slots of bronze are in use, want %d", got, i)
		}
		if err := r.StopContainer(t.Context(), id); err != nil {
			t.Error(err)
		}
		if got := r.inUse("bronze"); got != 0 {
			t.Errorf("%d slots of bronze are in use after the stop, want none", got)
		}
		if err := r.RemoveContainer(t.Context(), id); err != nil {
			t.Error(err)
		}
	}

	if got := r.Synchronizations(); got != before {
		t.Error("the plugin was disconnected")
	}
}

func (r *rig) inUse(class string) int { return r.node.Status().Resources[0].InUse[class] }

func TestHooksDoNotWaitForCallsThatHangInTheKernel(t *testing.T) {
	t.Run("a reload", func(t *testing.T) {
		r := newRig(t)
		reached, release := r.stick(t, "apply")
		done := make(chan error, 1)
		go func() { done <- r.configureAgain() }()
		await(t, reached)
		r.wantHooksAnswered(t, "a")
		r.restartRuntime(t)
		r.wantHooksAnswered(t, "b")
		// After the synchronization, the plugin moves containers to their classes. The moves wait for the reload, but the
		// plugin registers and answers hooks.
		r.restartRuntime(t)
		r.wantHooksAnswered(t, "c")
		release()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Run("an update", func(t *testing.T) {
		r := newRig(t)
		id := r.mustRun(t, r.pod(t, "changed", ""))
		reached, release := r.stick(t, "enforce solo")
		done := make(chan error, 1)
		changed := r.subject(t, id)
		go func() {
			done <- r.node.Update(context.Background(), changed, map[string]string{"test.example/cache": "solo"})
		}()
		await(t, reached)
		r.wantHooksAnswered(t, "a")
		// the update holds the only slot of class solo
		if _, err := r.run(t, r.pod(t, "late", "test.example/cache=solo")); err == nil || !strings.Contains(err.Error(), "is full") {
			t.Errorf("error is %v, want that the class is full during the update", err)
		}

		r.restartRuntime(t)
		r.wantHooksAnswered(t, "b")
		release()
		if err := <-done; err != nil {
			t.Error(err)
		}

		if got := r.backend.Enforced()[id]; got != "solo" {
			t.Errorf("after the update, the container is in class %q, want solo", got)
		}
	})
	t.Run("the check of containers after a synchronization", func(t *testing.T) {
		r := newRig(t)
		r.mustRun(t, r.pod(t, "running", "test.example/cache=gold"))
		reached, _ := r.stick(t, "observe")
		r.restartRuntime(t)
		await(t, reached)
		r.wantHooksAnswered(t, "a")
		r.restartRuntime(t)
		r.wantHooksAnswered(t, "b")
	})
}

// configureAgain applies the class files again.
func (r *rig) configureAgain() error {
	config, err := classes.Parse([]classes.File{{Name: "a.yaml", Data: []byte(files)}}, kinds(r.backend), nil)
	if err != nil {
		return err
	}
	return r.node.Configure(context.Background(), classes.FileSet{Config: config})
}

func TestAHookThatHangsInTheKernelFailsAndDelaysNoOther(t *testing.T) {
	for _, test := range []struct {
		name    string
		timeout time.Duration // the request timeout of the runtime
		want    string
	}{
		{"within 60% of the default timeout", adaptation.DefaultPluginRequestTimeout, "the kernel did not answer within 1.2s"},
		{"within 60% of another timeout", 600 * time.Millisecond, "the kernel did not answer within 360ms"},
	} {
		t.Run(test.name, func(t *testing.T) {
			runtimeWaitsFor(t, test.timeout)
			r := newRig(t)
			r.offerPodClass(t)
			synchronized := r.Synchronizations()
			r.stick(t, "enforce")
			if _, err := r.run(t, r.pod(t, "a", "test.example/cache=solo")); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the container's error is %v, want one with %q", err, test.want)
			}

			_, err := r.sandbox(t, "b")
			if want := "pod default/b: enforce the classes: " + test.want; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the pod's error is %v, want one with %q", err, want)
			}

			r.mustRun(t, r.pod(t, "c", ""))
			if got := r.Synchronizations(); got != synchronized {
				t.Error("the plugin was disconnected")
			}

			for _, resource := range r.node.Status().Resources {
				for class, n := range resource.InUse {
					t.Errorf("%d slots of class %s of %s are in use, although no container or pod of a class runs", n, class, resource.Name)
				}
			}
		})
	}
}
