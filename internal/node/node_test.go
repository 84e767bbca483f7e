// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/checkpoint"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/nodetest"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const (
	cache = "test.example/cache"
	disk  = "test.example/disk"
	net   = "test.example/net" // of pods
)

const files = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: test.example/cache
  defaultClass: bronze
  classes: [{name: gold, capacity: 1}, {name: silver}, {name: bronze}]
  test: {names: [gold, silver, bronze]}
- name: test.example/disk
  classes: [{name: fast, capacity: 2}, {name: slow}]
  test: {names: [fast, slow]}
- name: test.example/net
  scope: pod
  test: {names: [high, low]}
`

// fixture is a node with a backend a resource, over a state directory that survives it.
type fixture struct {
	*node.Node
	kinds    []classes.Kind
	backends map[string]*nodetest.Backend
	unified  map[string]map[string]string // what the runtime was told, by container
	path     string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{
		backends: map[string]*nodetest.Backend{cache: nodetest.NewBackend(), disk: nodetest.NewBackend(), net: nodetest.NewBackend()},
		unified:  map[string]map[string]string{},
		path:     filepath.Join(t.TempDir(), "changes.json"),
	}
	f.kinds = []classes.Kind{nodetest.Kind("test", []classes.Scope{classes.ContainerScope, classes.PodScope}, f.backends)}
	f.restart(t)
	if err := f.configure(t, files); err != nil {
		t.Fatal(err)
	}
	return f
}

// restart makes the node anew, as after a kill -9, with nothing but the checkpoint left.
func (f *fixture) restart(*testing.T) {
	log := slog.New(slog.DiscardHandler)
	f.Node = node.New(node.Options{Kinds: f.kinds, Changes: checkpoint.Open(f.path, "boot", log), Log: log})
	f.Connected(f, state.RuntimeInfo{Name: "test"})
}

func (f *fixture) configure(t *testing.T, text string) error {
	t.Helper()
	config, err := classes.Parse([]classes.File{{Name: "a.yaml", Data: []byte(text)}}, f.kinds, nil)
	return f.Configure(t.Context(), classes.FileSet{Config: config, Err: err, Files: []string{"a.yaml"}})
}

// SetUnified is part of reconcile.Runtime.
func (f *fixture) SetUnified(_ context.Context, id string, unified map[string]string) error {
	f.unified[id] = maps.Clone(unified)
	return nil
}

func pod(name string, annotations map[string]string) classes.Holder {
	return classes.Holder{ID: "sandbox-" + name, SandboxID: "sandbox-" + name, PodUID: "uid-" + name, PodName: name, PodNamespace: "ns", PodAnnotations: annotations}
}

func asking(request string) map[string]string {
	return map[string]string{"qos.noderesource.dev/pod": request}
}

func container(id string) classes.Holder { return classes.Holder{ID: id, Container: "main"} }

// in returns a container of a pod.
func in(p, c classes.Holder) classes.Holder {
	c.SandboxID, c.PodUID, c.PodName, c.PodNamespace, c.PodAnnotations = p.ID, p.PodUID, p.PodName, p.PodNamespace, p.PodAnnotations
	return c
}

// run creates and starts a container, and returns it as the runtime would show it from then on.
func (f *fixture) run(t *testing.T, p classes.Holder, c classes.Holder) (classes.Holder, error) {
	t.Helper()
	_, assigned, err := f.CreateContainer(in(p, c))
	if err != nil {
		return c, err
	}
	record, err := state.Record(assigned)
	if err != nil {
		t.Fatal(err)
	}
	c.ContainerAnnotations, c.PID = map[string]string{state.RecordAnnotation: record}, 1
	return c, f.start(t, p, c)
}

// start is the hook at the start of a container, as the runtime waits for it.
func (f *fixture) start(t *testing.T, p classes.Holder, c classes.Holder) error {
	t.Helper()
	return finish(t)(f.StartContainer(in(p, c)))
}

func (f *fixture) runPod(t *testing.T, p classes.Holder) error {
	t.Helper()
	return finish(t)(f.RunPod(p))
}

func finish(t *testing.T) func(enforce func(context.Context) error, err error) error {
	t.Helper()
	return func(enforce func(context.Context) error, err error) error {
		if err != nil || enforce == nil {
			return err
		}
		return enforce(t.Context())
	}
}

func running(p classes.Holder, c classes.Holder) state.Existing {
	return state.Existing{Holder: in(p, c), Started: true}
}

func (f *fixture) mustRun(t *testing.T, p classes.Holder, c classes.Holder) classes.Holder {
	t.Helper()
	c, err := f.run(t, p, c)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// has returns the class and source of a container's resource, as reported.
func (f *fixture) has(id, resource string) string { return nodetest.Has(f.Assignments(), id, resource) }

func (f *fixture) wantClass(t *testing.T, id, resource, want string) {
	t.Helper()
	if got := f.has(id, resource); got != want {
		t.Errorf("%s of %s is reported as %q, want %q", resource, id, got, want)
	}
	class, _, _ := strings.Cut(want, "/")
	if got := f.backends[resource].Enforced()[id]; got != class {
		t.Errorf("%s of %s is enforced as %q, want %q", resource, id, got, class)
	}
}

func TestAContainerGetsWhatItAsksForAndDefaultsForTheRest(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", asking("test.example/disk=fast")), container("c1"))
	f.wantClass(t, "c1", disk, "fast/pod")
	f.wantClass(t, "c1", cache, "bronze/default")
}

func TestARefusedContainerHoldsNothing(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", asking("test.example/cache=gold")), container("c1"))
	_, err := f.run(t, pod("b", asking("test.example/cache=gold,test.example/disk=fast")), container("c2"))
	if !errors.Is(err, classes.ErrClassFull) {
		t.Fatalf("error is %v, want ErrClassFull", err)
	}
	for _, part := range []string{"ns/b", "main", cache, `"gold"`} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not name %s", err, part)
		}
	}
	if got := f.Status().Resources[1].InUse["fast"]; got != 0 {
		t.Errorf("the refused container holds %d slots of another resource", got)
	}
}

func TestASlotIsFreeWhenItsContainerStops(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", asking("test.example/cache=gold")), container("c1"))
	f.Stop("c1")
	f.Stop("c1")
	f.mustRun(t, pod("b", asking("test.example/cache=gold")), container("c2"))
}

func TestARestartedContainerDoesNotCompeteWithItsPredecessor(t *testing.T) {
	f := newFixture(t)
	p := pod("a", asking("test.example/cache=gold"))
	for _, id := range []string{"c1", "c2", "c3"} {
		f.mustRun(t, p, container(id))
	}
	f.Stop("c1")
	f.Stop("c2")
	if _, err := f.run(t, pod("b", asking("test.example/cache=gold")), container("d")); !errors.Is(err, classes.ErrClassFull) {
		t.Errorf("error is %v, want ErrClassFull while the newest container runs", err)
	}
}

func TestAContainerThatTheKernelDoesNotTakeIsNotStarted(t *testing.T) {
	f := newFixture(t)
	f.backends[disk].Fail("enforce", errors.New("no such device"))
	_, err := f.run(t, pod("a", asking("test.example/disk=fast")), container("c1"))
	if err == nil || !strings.Contains(err.Error(), `pod ns/a container main: class "fast" of test.example/disk: no such device`) {
		t.Errorf("error is %v", err)
	}
}

func TestAContainerCreatedWithoutThePluginIsNotStartedWithoutItsClass(t *testing.T) {
	f := newFixture(t)
	if err := f.start(t, pod("a", asking("test.example/cache=gold")), container("c1")); err == nil {
		t.Error("a container that asks for a class was started without it")
	}
	if err := f.start(t, pod("b", nil), container("c2")); err != nil {
		t.Errorf("a container that asks for nothing was refused: %v", err)
	}
	f.wantClass(t, "c2", cache, "bronze/default")
}

func TestAPodGetsPodScopeClasses(t *testing.T) {
	f := newFixture(t)
	if err := f.runPod(t, pod("a", asking("test.example/net=high"))); err != nil {
		t.Fatal(err)
	}
	if got := f.backends[net].Enforced()["sandbox-a"]; got != "high" {
		t.Errorf("the pod is in class %q", got)
	}
	if got := f.Assignments()[0].Assignments; len(got) != 1 || got[0].Class != "high" {
		t.Errorf("reported as %v", got)
	}
}

func TestSynchronizeRebuildsTheSameState(t *testing.T) {
	f := newFixture(t)
	pods := []classes.Holder{pod("a", asking("test.example/cache=gold,test.example/disk=slow,test.example/net=low")), pod("b", nil)}
	var exist []state.Existing
	for i, p := range pods {
		if err := f.runPod(t, p); err != nil {
			t.Fatal(err)
		}
		exist = append(exist, running(p, f.mustRun(t, p, container([]string{"c1", "c2"}[i]))))
	}
	if err := f.Update(t.Context(), classes.Owner{PodUID: "uid-b", Container: "main"}, map[string]string{disk: "fast"}); err != nil {
		t.Fatal(err)
	}
	before := f.Assignments()
	f.restart(t)
	if err := f.configure(t, files); err != nil {
		t.Fatal(err)
	}
	f.Synchronize(pods, exist)
	f.Reconcile(t.Context())
	if diff := cmp.Diff(before, f.Assignments()); diff != "" {
		t.Errorf("state differs after a restart (-before +after):\n%s", diff)
	}
	f.wantClass(t, "c2", disk, "fast/update")
}
