// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/agent"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

const files = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: test.example/cache
  classes: [{name: gold, capacity: 2}]
  test: {names: [gold]}
`

// rig is the environment of an agent: a directory with the host's files that the agent reads, and a container runtime.
type rig struct {
	options agent.Options
	runtime *nriruntime.Runtime
	backend *nodetest.Backend
	more    []classes.Kind // besides the kind of `backend`
	cancel  context.CancelFunc
	ended   chan error
}

func newRig(t *testing.T, classFile string) *rig {
	t.Helper()
	// The path of t.TempDir is too long for a unix socket.
	dir, err := os.MkdirTemp("", "qos")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	write(t, filepath.Join(dir, "host/proc/sys/kernel/random/boot_id"), "boot\n")
	write(t, filepath.Join(dir, "etc/classes.yaml"), classFile)
	runtime, err := nriruntime.New(dir, nriruntime.Options{})
	must(t, err)

	must(t, runtime.Start())
	t.Cleanup(runtime.Stop)
	options := agent.DefaultOptions()
	options.Config, options.HostRoot, options.StateDir = filepath.Join(dir, "etc"), filepath.Join(dir, "host"), filepath.Join(dir, "state")
	options.NRISocket, options.APISocket, options.MetricsAddress = runtime.Socket(), filepath.Join(dir, "qos.sock"), freeAddress(t)
	return &rig{options: options, runtime: runtime, backend: nodetest.NewBackend(), ended: make(chan error, 1)}
}

// must fails the test if there is an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o600))
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

func (r *rig) agent() *agent.Agent {
	backends := map[string]*nodetest.Backend{"test.example/cache": r.backend}
	kinds := append([]classes.Kind{nodetest.Kind("test", []classes.Scope{classes.ContainerScope}, backends)}, r.more...)
	return agent.New(r.options, kinds, slog.New(slog.DiscardHandler))
}

// start runs an agent until the end of the test, and fails the test if the agent fails.
func (r *rig) start(t *testing.T) {
	t.Helper()
	r.begin(t)
	t.Cleanup(func() {
		r.cancel()
		if err := <-r.ended; err != nil {
			t.Errorf("the agent ended with %v", err)
		}
	})
	r.synchronized(t, 1)
}

// begin runs an agent; terminate ends it.
func (r *rig) begin(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	t.Cleanup(cancel)
	a := r.agent()
	go func() { r.ended <- a.Run(ctx) }()
}

// synchronized waits until plugins have been synchronized `n` times.
func (r *rig) synchronized(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, r.runtime.WaitSynchronized(ctx, n))
}

func (r *rig) get(t *testing.T, path string) (int, string) {
	t.Helper()
	response, err := http.Get("http://" + r.options.MetricsAddress + path)
	must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(body)
}

func TestASecondInstanceDoesNotStart(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(t *testing.T, o *agent.Options)
		want   string
	}{
		{"with the same state directory", func(*testing.T, *agent.Options) {}, "another qos-nri-plugin runs on this node"},
		{"with another state directory", func(t *testing.T, o *agent.Options) { o.StateDir = t.TempDir() },
			"another process already serves this socket; stop that process, or choose another path"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, files)
			r.start(t)
			first := r.options.MetricsAddress
			test.change(t, &r.options)
			r.options.MetricsAddress = "" // two agents could not have the same address
			err := r.agent().Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error is %v, want one line with %q", err, test.want)
			}

			if n := r.runtime.Synchronizations(); n != 1 {
				t.Errorf("%d plugins were synchronized, want only the first one", n)
			}

			r.options.MetricsAddress = first
			if status, body := r.get(t, "/readyz"); status != http.StatusOK {
				t.Errorf("the first agent answers %d: %s", status, body)
			}
		})
	}
}

func TestProbesAndMetricsReportAHealthyAgent(t *testing.T) {
	r := newRig(t, files)
	r.start(t)
	for path, want := range map[string]string{
		"/healthz": "ok",
		"/readyz":  "ok",
		"/metrics": `qos_class_capacity{class="gold",resource="test.example/cache"} 2`,
	} {
		if status, body := r.get(t, path); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s answers %d without %q:\n%s", path, status, want, body)
		}
	}

	if _, body := r.get(t, "/metrics"); !strings.Contains(body, "qos_config_last_reload_successful 1") {
		t.Errorf("metrics do not report that the class files are applied:\n%s", body)
	}

	// A class that a container has is also in the metrics with its usage. The simulated container uses nothing.
	must(t, r.run(t, "test.example/cache=gold"))
	r.until(t, "/metrics", `qos_class_used_bytes_total{class="gold",resource="test.example/cache"} 0`)
}

// TestUsageIsServedToThePodItself uses an address without a host, as in the manifests. /usage, /blame and /recommend are then served,
// but only over loopback. No history is recorded here, so /blame and /recommend answer with an error.
func TestUsageIsServedToThePodItself(t *testing.T) {
	r := newRig(t, files)
	_, port, err := net.SplitHostPort(r.options.MetricsAddress)
	must(t, err)
	r.options.MetricsAddress = ":" + port
	r.start(t)
	must(t, r.run(t, "test.example/cache=gold"))

	r.options.MetricsAddress = net.JoinHostPort("127.0.0.1", port)
	if status, body := r.get(t, "/usage"); status != http.StatusOK || !strings.Contains(body, `"gold"`) {
		t.Errorf("/usage answers %d: %s", status, body)
	}
	for path, want := range map[string]string{
		"/blame":                            "nothing is recorded: start qos-nri-plugin with --history-interval=15s, on a node with cgroup v2\n",
		"/blame?pod=web":                    "invalid request: name the namespace of pod \"web\", too\n",
		"/recommend":                        "invalid request: name the pod\n",
		"/recommend?pod=web&namespace=shop": "nothing is recorded: start qos-nri-plugin with --history-interval=15s, on a node with cgroup v2\n",
		"/blame?since=5x":                   "since: time: unknown unit \"x\" in duration \"5x\"\n",
	} {
		if status, body := r.get(t, path); status/100 != 4 || body != want {
			t.Errorf("%s answers %d: %s", path, status, body)
		}
	}
	t.Run("and not to other pods", func(t *testing.T) {
		r.options.MetricsAddress = net.JoinHostPort(addressOfThisMachine(t), port)
		for path, command := range map[string]string{"/blame": "blame", "/recommend": "recommend", "/usage": "top usage"} {
			if status, body := r.get(t, path); status != http.StatusForbidden || !strings.Contains(body, "kubectl qos "+command) {
				t.Errorf("%s answers %d: %s", path, status, body)
			}
		}
	})
}

// addressOfThisMachine returns an address that is not a loopback address.
func addressOfThisMachine(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	must(t, err)
	for _, address := range addresses {
		if ip, _, err := net.ParseCIDR(address.String()); err == nil && ip.IsGlobalUnicast() {
			return ip.String()
		}
	}
	t.Skip("this machine has only loopback addresses")
	return ""
}

// TestUsageIsNotServedToUsersOfTheNode uses an address with a host, as on a node. Every user of the node could connect to it.
func TestUsageIsNotServedToUsersOfTheNode(t *testing.T) {
	r := newRig(t, files)
	r.start(t)
	for _, path := range []string{"/usage", "/blame", "/recommend"} {
		if status, _ := r.get(t, path); status != http.StatusNotFound {
			t.Errorf("%s answers %d", path, status)
		}
	}
}

func TestWithWrongClassFilesRequestsAreRefused(t *testing.T) {
	r := newRig(t, strings.ReplaceAll(files, "capacity: 2", "capacity: -2"))
	r.start(t)
	// Line 6 of the class file has the wrong capacity.
	if status, body := r.get(t, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "classes.yaml:6") {
		t.Errorf("/readyz answers %d: %s", status, body)
	}

	if _, body := r.get(t, "/metrics"); !strings.Contains(body, "qos_config_last_reload_successful 0") {
		t.Errorf("metrics do not report that the class files are not applied:\n%s", body)
	}

	if err := r.run(t, "test.example/cache=gold"); err == nil {
		t.Error("a container that requests a class runs, although no class files are applied")
	}

	if err := r.run(t, ""); err != nil {
		t.Errorf("a container that requests nothing does not run: %v", err)
	}
}

func TestClassFilesAreReadAgainAtSIGHUP(t *testing.T) {
	r := newRig(t, files)
	r.start(t)
	if err := r.run(t, "test.example/cache=silver"); err == nil {
		t.Fatal("a class that does not exist was assigned")
	}

	write(t, filepath.Join(r.options.Config, "classes.yaml"), strings.ReplaceAll(files, "gold", "silver"))
	r.hangUp(t)

	r.until(t, "/metrics", `qos_class_capacity{class="silver",resource="test.example/cache"} 2`)
	if err := r.run(t, "test.example/cache=silver"); err != nil {
		t.Error(err)
	}
}

func (r *rig) run(t *testing.T, request string) error {
	t.Helper()
	config := nriruntime.PodConfig{Name: "p"}
	if request != "" {
		config.Annotations = map[string]string{"qos.noderesource.dev/pod": request}
	}
	pod, err := r.runtime.RunPod(t.Context(), config)
	must(t, err)
	id, err := r.runtime.CreateContainer(t.Context(), pod, nriruntime.ContainerConfig{Name: "main"})
	return errors.Join(err, r.startContainer(t, id))
}

func (r *rig) startContainer(t *testing.T, id string) error {
	if id == "" {
		return nil
	}
	return r.runtime.StartContainer(t.Context(), id)
}
