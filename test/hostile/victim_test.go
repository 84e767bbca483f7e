// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"

	"github.com/qos-nri/qos-nri-plugin/internal/agent"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

// patience is how long a test waits for what must happen. It is also the runtime's timeout, so that a slow machine fails no hook.
const patience = time.Minute

func TestMain(m *testing.M) {
	adaptation.SetPluginRegistrationTimeout(patience)
	adaptation.SetPluginRequestTimeout(patience)
	os.Exit(m.Run())
}

const classFile = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: test.example/cache
  classes: [{name: gold, capacity: 1}, {name: silver}]
  test: {names: [gold, silver]}
`

// victim is an agent that is attacked, with its runtime.
type victim struct {
	options agent.Options
	runtime *nriruntime.Runtime
	backend *nodetest.Backend
}

// newVictim returns an agent that does not run yet, and a runtime that runs.
func newVictim(t *testing.T) *victim {
	t.Helper()
	dir, err := os.MkdirTemp("", "qos") // the path of a socket must be short
	must(t, err)

	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	write(t, filepath.Join(dir, "host/proc/sys/kernel/random/boot_id"), "boot\n")
	write(t, filepath.Join(dir, "etc/classes.yaml"), classFile)
	v := &victim{backend: nodetest.NewBackend()}
	if v.runtime, err = nriruntime.New(dir, nriruntime.Options{}); err != nil {
		t.Fatal(err)
	}

	must(t, v.runtime.Start())

	t.Cleanup(v.runtime.Stop)

	v.options = agent.DefaultOptions()
	v.options.Config, v.options.HostRoot, v.options.StateDir = filepath.Join(dir, "etc"), filepath.Join(dir, "host"), filepath.Join(dir, "state")
	v.options.NRISocket, v.options.APISocket, v.options.MetricsAddress = v.runtime.Socket(), filepath.Join(dir, "qos.sock"), freeAddress(t)
	v.options.RepairInterval = 100 * time.Millisecond
	return v
}

func write(t *testing.T, path, content string) {
	t.Helper()
	err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600))
	must(t, err)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// begin runs the agent until the end of the test.
func (v *victim) begin(t *testing.T) {
	t.Helper()
	kinds := []classes.Kind{nodetest.Kind("test", []classes.Scope{classes.ContainerScope}, map[string]*nodetest.Backend{"test.example/cache": v.backend})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- agent.New(v.options, kinds, slog.New(slog.DiscardHandler)).Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the agent ended with %v", err)
		}
	})
}

func (v *victim) wait(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, v.runtime.WaitSynchronized(ctx, 1))
}

func (v *victim) start(t *testing.T) {
	t.Helper()
	v.begin(t)
	v.wait(t)
}

// run runs a pod with a container, and returns the container's ID.
func (v *victim) run(t *testing.T, name, request string) (string, error) {
	t.Helper()
	pod, err := v.runtime.RunPod(t.Context(), nriruntime.PodConfig{Name: name, Annotations: map[string]string{"qos.noderesource.dev/pod": request}})
	must(t, err)
	id, err := v.runtime.CreateContainer(t.Context(), pod, nriruntime.ContainerConfig{Name: "main"})
	if err != nil {
		return id, err
	}
	return id, v.runtime.StartContainer(t.Context(), id)
}

// wantThrives runs pods one after another in a class of capacity 1, and checks that each pod gets the class, that the
// plugin stays registered, and that its liveness probe succeeds.
func (v *victim) wantThrives(t *testing.T, pods int) {
	t.Helper()
	before := v.runtime.Synchronizations()
	for range pods {
		id, err := v.run(t, "plain", "test.example/cache=gold")
		if err != nil {
			t.Fatalf("a pod does not get its class: %v", err)
		}
		if got := v.backend.Enforced()[id]; got != "gold" {
			t.Errorf("the container is in class %q, want gold", got)
		}
		if _, err := v.run(t, "second", "test.example/cache=gold"); err == nil {
			t.Error("a second container got a class of capacity 1")
		}
		if err := errors.Join(v.runtime.StopContainer(t.Context(), id), v.runtime.RemoveContainer(t.Context(), id)); err != nil {
			t.Error(err)
		}
	}

	if got := v.runtime.Synchronizations(); got != before {
		t.Errorf("the plugin was disconnected %d times", got-before)
	}

	v.wantAlive(t)
}

// wantAlive waits until the liveness probe is answered. The kubelet tries several times too.
func (v *victim) wantAlive(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		response, err := http.Get("http://" + v.options.MetricsAddress + "/healthz")
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return
			}
			err = errors.New(response.Status)
		}
		if time.Now().After(deadline) {
			t.Fatalf("/healthz does not answer: %v", err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
