// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/checkpoint"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/reconcile"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
)

const (
	cache = "test.example/cache"
	disk  = "test.example/disk"
	net   = "test.example/net" // a resource of pod scope
)

var ownerA = qos.Subject{PodUID: "uid-a", Container: "main"}

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

// fixture is a node and everything that outlives the node's process: the simulated kernel behind the backends, the
// runtime and the checkpoint.
type fixture struct {
	*node.Node
	kinds    []classes.Kind
	backends map[string]*nodetest.Backend // by resource, unless the kinds have real ones
	runtime  reconcile.Runtime
	unified  map[string]map[string]string // what the runtime has stored, by container
	path     string                       // of the checkpoint
}

// newFixture returns a node with a simple backend for each resource of files.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	backends := map[string]*nodetest.Backend{cache: nodetest.NewBackend(), disk: nodetest.NewBackend(), net: nodetest.NewBackend()}
	f := newFixtureOf(t, nodetest.Kind("test", []classes.Scope{classes.ContainerScope, classes.PodScope}, backends))
	f.backends = backends
	f.restart(t)
	f.mustConfigure(t, files)
	f.Synchronize(nil, nil)
	return f
}

// newFixtureOf returns a fixture with the given kind. It has no node until restart is called.
func newFixtureOf(t *testing.T, kind classes.Kind) *fixture {
	t.Helper()
	f := &fixture{kinds: []classes.Kind{kind}, unified: map[string]map[string]string{}, path: filepath.Join(t.TempDir(), "changes.json")}
	f.runtime = f
	return f
}

// restart replaces the node by a new one, as after a kill -9. The functions in `edit` change the options of the new node.
// The new node has no class files and is not synchronized.
func (f *fixture) restart(t *testing.T, edit ...func(*node.Options)) {
	t.Helper()
	o := node.Options{Kinds: f.kinds, Log: slog.New(slog.DiscardHandler), HeldInterval: heldInterval}
	o.Changes = checkpoint.Open(f.path, "boot", o.Log)
	for _, change := range edit {
		change(&o)
	}
	f.Node = node.New(o)
	f.Connected(f.runtime, state.RuntimeInfo{Name: "test"})
}

func (f *fixture) configure(t *testing.T, text string) error {
	t.Helper()
	config, err := classes.Parse([]classes.File{{Name: "a.yaml", Data: []byte(text)}}, f.kinds, nil)
	return f.Configure(t.Context(), classes.FileSet{Config: config, Err: err, Files: []string{"a.yaml"}})
}

func (f *fixture) mustConfigure(t *testing.T, text string) {
	t.Helper()
	if err := f.configure(t, text); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) SetUnified(_ context.Context, id string, unified map[string]string) error {
	f.unified[id] = maps.Clone(unified)
	return nil
}

func pod(name string, annotations map[string]string) classes.Holder {
	return classes.Holder{ID: "sandbox-" + name, SandboxID: "sandbox-" + name, PodUID: "uid-" + name, PodName: name, PodNamespace: "ns", PodAnnotations: annotations, PID: 1}
}

// requesting returns the annotation of a request.
func requesting(request string) map[string]string {
	return map[string]string{"qos.noderesource.dev/pod": request}
}

func container(id string) classes.Holder { return classes.Holder{ID: id, Container: "main"} }

// in returns container `c` with the fields that identify its pod `p`.
func in(p, c classes.Holder) classes.Holder {
	c.SandboxID, c.PodUID, c.PodName, c.PodNamespace, c.PodAnnotations = p.ID, p.PodUID, p.PodName, p.PodNamespace, p.PodAnnotations
	c.PodCgroupsPath = p.PodCgroupsPath
	return c
}

// run creates and starts a container, and returns it as the runtime reports it after the start.
func (f *fixture) run(t *testing.T, p classes.Holder, c classes.Holder) (classes.Holder, error) {
	t.Helper()
	c, _, err := f.create(t, p, c)
	if err != nil {
		return c, err
	}
	c.PID = 1
	return c, f.start(t, p, c)
}

// create creates a container. It returns the container with the annotation that records its classes, and the changes
// that the runtime must make.
func (f *fixture) create(t *testing.T, p classes.Holder, c classes.Holder) (classes.Holder, classes.Adjustment, error) {
	t.Helper()
	adjustment, assigned, err := f.CreateContainer(in(p, c))
	if err != nil {
		return c, adjustment, err
	}
	record, err := state.Record(assigned)
	if err != nil {
		t.Fatal(err)
	}
	c.ContainerAnnotations = map[string]string{state.RecordAnnotation: record}
	return c, adjustment, nil
}

// start starts a container, and waits for the hook as the runtime does. If the hook refuses the start, start calls Kill,
// as the plugin does.
func (f *fixture) start(t *testing.T, p classes.Holder, c classes.Holder) error {
	t.Helper()
	err := finish(t)(f.StartContainer(in(p, c)))
	if err != nil {
		if killErr := f.Kill(t.Context(), in(p, c)); killErr != nil {
			t.Fatal(killErr)
		}
	}
	return err
}

func (f *fixture) runPod(t *testing.T, p classes.Holder) error {
	t.Helper()
	return finish(t)(f.RunPod(p))
}

func (f *fixture) mustRunPod(t *testing.T, p classes.Holder) {
	t.Helper()
	if err := f.runPod(t, p); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) mustUpdate(t *testing.T, owner qos.Subject, requests map[string]string) {
	t.Helper()
	if err := f.Update(t.Context(), owner, requests); err != nil {
		t.Fatal(err)
	}
}

// finish returns a function that takes the two results of a hook. If the hook succeeded, this function calls enforce.
func finish(t *testing.T) func(enforce func(context.Context) error, err error) error {
	t.Helper()
	return func(enforce func(context.Context) error, err error) error {
		if err != nil || enforce == nil {
			return err
		}
		return enforce(t.Context())
	}
}

// running returns a container that runs, as it is listed by the runtime.
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

// has returns the reported class of a container for a resource, together with the source of the class.
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
