// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/checkpoint"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/nriplugin"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/invariant"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

const files = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: test.example/cache
  classes: [{name: gold, capacity: 10}, {name: solo, capacity: 1}, {name: bronze}]
  test: {names: [gold, solo, bronze]}
`

// rig is the plugin, registered over a socket with a runtime.
type rig struct {
	*nriruntime.Runtime
	node    *node.Node
	backend *nodetest.Backend
	plugin  *nriplugin.Plugin
	// stop ends the plugin.
	stop func()
}

// newRig returns a rig. The options are those of the runtime's side of NRI.
func newRig(t *testing.T, options ...adaptation.Option) *rig {
	t.Helper()
	return newRigOn(t, nriruntime.Options{NRI: options})
}

// newRigOn returns a rig whose runtime has the given options.
func newRigOn(t *testing.T, options nriruntime.Options) *rig {
	t.Helper()
	r := &rig{Runtime: startRuntime(t, options), backend: nodetest.NewBackend()}
	r.begin(t, newNode(t, r.backend))
	return r
}

// begin starts a plugin with a node, and waits until the plugin is synchronized.
func (r *rig) begin(t *testing.T, n *node.Node) {
	t.Helper()
	before := r.Synchronizations()
	r.node = n
	r.plugin, r.stop = startPlugin(t, n, r.Runtime)
	r.wait(t, before+1)
}

// must fails the test if there is an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// runtimeWaits is the request timeout of the runtime in all tests except those of timeouts. The default of 2 s may be
// too short with the race detector, for the synchronization of many containers on a busy machine.
const runtimeWaits = time.Minute

func TestMain(m *testing.M) {
	adaptation.SetPluginRequestTimeout(runtimeWaits)
	os.Exit(m.Run())
}

// runtimeWaitsFor sets the request timeout until the end of the test.
func runtimeWaitsFor(t *testing.T, timeout time.Duration) {
	t.Helper()
	adaptation.SetPluginRequestTimeout(timeout)
	t.Cleanup(func() { adaptation.SetPluginRequestTimeout(runtimeWaits) })
}

// startRuntime starts a runtime, which runs until the end of the test.
func startRuntime(t *testing.T, options nriruntime.Options) *nriruntime.Runtime {
	t.Helper()
	runtime := newRuntime(t, options)
	must(t, runtime.Start())
	t.Cleanup(runtime.Stop)
	return runtime
}

// newRuntime returns a runtime that is not started yet.
func newRuntime(t *testing.T, options nriruntime.Options) *nriruntime.Runtime {
	t.Helper()
	// t.TempDir is too long for a socket's path.
	dir, err := os.MkdirTemp("", "qos")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	runtime, err := nriruntime.New(dir, options)
	must(t, err)
	return runtime
}

func newNode(t *testing.T, backend *nodetest.Backend) *node.Node {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	// The node needs a checkpoint, so that a changed class survives a restart of the runtime during the change.
	changes := checkpoint.Open(filepath.Join(t.TempDir(), "changes.json"), "this boot", log)
	n := node.New(node.Options{Kinds: kinds(backend), Changes: changes, Log: log})
	configure(t, n, kinds(backend), files)
	return n
}

func kinds(backend *nodetest.Backend) []classes.Kind {
	scopes := []classes.Scope{classes.ContainerScope, classes.PodScope}
	return []classes.Kind{nodetest.Kind("test", scopes, map[string]*nodetest.Backend{"test.example/cache": backend, "test.example/net": backend})}
}

func configure(t *testing.T, n *node.Node, kinds []classes.Kind, text string) {
	t.Helper()
	config, err := classes.Parse([]classes.File{{Name: "a.yaml", Data: []byte(text)}}, kinds, nil)
	must(t, err)
	must(t, n.Configure(t.Context(), classes.FileSet{Config: config}))
}

// startPlugin runs the plugin until the end of the test, or until `stop` is called. `stop` returns when the runtime has
// noticed the end, so that the next hook does not fail.
func startPlugin(t *testing.T, n *node.Node, runtime *nriruntime.Runtime) (plugin *nriplugin.Plugin, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	plugin = nriplugin.New(n, nriplugin.Options{Socket: runtime.Socket(), Index: "10", Log: slog.New(slog.DiscardHandler)})
	done := make(chan error, 1)
	go func() { done <- plugin.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the plugin ended with %v", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := runtime.WaitDisconnected(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return plugin, stop
}

// wait waits until the plugin has been synchronized `n` times.
func (r *rig) wait(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, r.WaitSynchronized(ctx, n))
}

func (r *rig) pod(t *testing.T, name, request string) string {
	t.Helper()
	config := nriruntime.PodConfig{Name: name}
	if request != "" {
		config.Annotations = map[string]string{"qos.noderesource.dev/pod": request}
	}
	return r.podWith(t, config)
}

func (r *rig) podWith(t *testing.T, config nriruntime.PodConfig) string {
	t.Helper()
	id, err := r.RunPod(t.Context(), config)
	must(t, err)
	return id
}

// create creates the container of a pod, and does not start it.
func (r *rig) create(t *testing.T, pod string) string {
	t.Helper()
	return r.createWith(t, pod, nriruntime.ContainerConfig{Name: "main"})
}

func (r *rig) createWith(t *testing.T, pod string, config nriruntime.ContainerConfig) string {
	t.Helper()
	id, err := r.CreateContainer(t.Context(), pod, config)
	must(t, err)
	return id
}

// runWith creates and starts a container.
func (r *rig) runWith(t *testing.T, pod string, config nriruntime.ContainerConfig) string {
	t.Helper()
	id := r.createWith(t, pod, config)
	must(t, r.StartContainer(t.Context(), id))
	return id
}

// container returns the state of a container in the runtime.
func (r *rig) container(t *testing.T, id string) nriruntime.Container {
	t.Helper()
	c, err := r.Container(id)
	must(t, err)
	return c
}

// subject returns the identity of a container or pod.
func (r *rig) subject(t *testing.T, id string) qos.Subject {
	t.Helper()
	e, known := r.node.Get(id)
	if !known {
		t.Fatalf("%.12s is unknown", id)
	}
	return e.Subject()
}

// update changes the class of a container or pod.
func (r *rig) update(t *testing.T, id, resource, class string) error {
	t.Helper()
	return r.node.Update(t.Context(), r.subject(t, id), map[string]string{resource: class})
}

// change works like update, and fails the test if there is an error.
func (r *rig) change(t *testing.T, id, resource, class string) {
	t.Helper()
	must(t, r.update(t, id, resource, class))
}

// restartRuntime restarts the runtime, and waits until the plugin is registered again.
func (r *rig) restartRuntime(t *testing.T) {
	t.Helper()
	n := r.Synchronizations()
	must(t, r.Restart())
	r.wait(t, n+1)
}

func (r *rig) run(t *testing.T, pod string) (string, error) {
	id, err := r.CreateContainer(t.Context(), pod, nriruntime.ContainerConfig{Name: "main"})
	if err != nil {
		return "", err
	}
	return id, r.StartContainer(t.Context(), id)
}

// holds checks the invariants of package invariant.
func (r *rig) holds(t *testing.T) {
	t.Helper()
	invariant.Machine{
		API: serveAPI(t, r.node), Live: invariant.LiveIn(r.Runtime),
		Classes: func() map[string]map[string]string {
			return map[string]map[string]string{"test.example/cache": r.backend.Enforced(), "test.example/net": r.backend.Enforced()}
		},
	}.Hold(t)
}

func (r *rig) mustRun(t *testing.T, pod string) string {
	t.Helper()
	id, err := r.run(t, pod)
	if err != nil && strings.Contains(err.Error(), "ttrpc: closed") {
		id, err = r.run(t, pod) // the first call failed, and showed the runtime that the plugin had ended
	}
	must(t, err)
	return id
}
