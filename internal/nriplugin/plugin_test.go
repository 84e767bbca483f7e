// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"context"
	"fmt"
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
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
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

func TestThePluginRegistersAgainAfterARestartOfTheRuntime(t *testing.T) {
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
