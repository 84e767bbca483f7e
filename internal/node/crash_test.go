// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
)

// crashBackend is a backend whose process may be killed before each call into the kernel, and after each call that
// enforces a class. If `blind` is true, the backend cannot read back which class is in effect.
type crashBackend struct {
	*nodetest.Backend
	killer *killer
	blind  bool
}

func (m crashBackend) Enforce(ctx context.Context, target classes.Holder, from, to string) error {
	m.killer.step()
	defer m.killer.step()
	return m.Backend.Enforce(ctx, target, from, to)
}

func (m crashBackend) Observe(ctx context.Context, target classes.Holder, want string) (classes.Observation, error) {
	m.killer.step()
	seen, err := m.Backend.Observe(ctx, target, want)
	seen.Known = seen.Known && !m.blind
	return seen, err
}

// crashChanges may kill the process before, during and after a write of the checkpoint.
type crashChanges struct {
	state.Changes
	killer *killer
	path   string
}

func (m crashChanges) Set(id string, changed []classes.Assignment) error {
	m.killer.step()
	if m.killer.steps+1 == m.killer.at {
		_ = os.WriteFile(m.path+".new", []byte(`{"bootID":"boot","chan`), 0o600)
	}
	m.killer.step()
	defer m.killer.step()
	return m.Changes.Set(id, changed)
}

func (m crashChanges) SetOriginals(id string, originals classes.Adjustment) error {
	m.killer.step()
	defer m.killer.step()
	return m.Changes.SetOriginals(id, originals)
}

// crashFixture is a node that may be killed, with containers and pods.
type crashFixture struct {
	*fixture
	killer *killer
	text   string // of the class files
	pods   []classes.Holder
	exist  []state.Existing
}

func (f *crashFixture) SetUnified(ctx context.Context, id string, unified map[string]string) error {
	f.killer.step()
	defer f.killer.step()
	return f.fixture.SetUnified(ctx, id, unified)
}

func newCrashFixture(t *testing.T) *crashFixture {
	t.Helper()
	f := &crashFixture{fixture: newFixture(t), killer: &killer{}, text: files}
	create := f.kinds[0].New
	f.kinds[0].New = func(resource string, scope classes.Scope) classes.Backend {
		return crashBackend{create(resource, scope).(*nodetest.Backend), f.killer, resource == disk}
	}

	f.runtime = f
	f.restart(t)
	f.Synchronize(nil, nil)
	for _, name := range []string{"a", "b"} {
		p := pod(name, requesting("test.example/net=low,test.example/disk=slow"))
		f.mustRunPod(t, p)
		f.pods = append(f.pods, p)
		f.exist = append(f.exist, running(p, f.mustRun(t, p, container("c-"+name))))
	}

	return f
}

// restart starts a new process with the same class files. The new process is not synchronized yet.
func (f *crashFixture) restart(t *testing.T) {
	t.Helper()
	f.fixture.restart(t, func(o *node.Options) { o.Changes = crashChanges{o.Changes, f.killer, f.path} })
	f.mustConfigure(t, f.text)
}

func (f *crashFixture) recover(t *testing.T) {
	t.Helper()
	f.restart(t)
	f.Synchronize(f.pods, f.exist)
	f.Reconcile(t.Context())
}

// state returns the reported classes of container c-a and of pod a. It fails the test if the kernel has other classes.
func (f *crashFixture) state(t *testing.T) []string {
	t.Helper()
	var state []string
	for _, resource := range []string{cache, disk} {
		has := f.has("c-a", resource)
		f.wantClass(t, "c-a", resource, has)
		state = append(state, has)
	}

	for _, p := range f.Assignments() {
		if p.UID == "uid-a" {
			has := p.Assignments[0].Class
			if got := f.backends[net].Enforced()["sandbox-a"]; got != has {
				t.Errorf("pod a is reported in %q and is in %q", has, got)
			}
			state = append(state, has)
		}
	}

	return state
}

// updateBoth changes a container's classes of two resources, and its pod's class of one resource.
func (f *crashFixture) updateBoth(t *testing.T) error {
	return errors.Join(
		f.Update(t.Context(), ownerA, map[string]string{cache: "gold", disk: ""}),
		f.Update(t.Context(), qos.Subject{PodUID: "uid-a"}, map[string]string{net: "high"}),
	)
}

// TestTheNextProcessRecoversFromACrashAtAnyStep kills the process before every step that has an effect outside of the
// process. After some of these crashes, it also kills the next process, before every step of the recovery.
func TestTheNextProcessRecoversFromACrashAtAnyStep(t *testing.T) {
	// A state has the classes of container c-a for the resources cache and disk, with their sources, and the class of pod a.
	before := []string{"bronze/default", "slow/pod", "low"}
	half := []string{"gold/update", "/update", "low"} // the container's update was made, and the pod's was not
	after := []string{"gold/update", "/update", "high"}
	fast := []string{"gold/update", "fast/update", "low"} // the next process completes the update, because the kernel accepts it then
	silver := []string{"silver/default", "slow/pod", "low"}
	for _, test := range []struct {
		name string
		do   func(t *testing.T, f *crashFixture)
		// allowed lists the states that are allowed after a crash. The last one is the state without a crash.
		allowed [][]string
		steps   int // the minimum number of steps
	}{
		{name: "in an update", allowed: [][]string{before, half, after}, steps: 16, do: func(t *testing.T, f *crashFixture) {
			if err := f.updateBoth(t); err != nil {
				t.Error(err)
			}
		}},
		{name: "in an update that the kernel refuses", allowed: [][]string{fast, before}, steps: 16, do: func(t *testing.T, f *crashFixture) {
			f.backends[disk].Fail("enforce fast", errors.New("no such device"))
			defer f.backends[disk].Fail("enforce fast", nil)
			if err := f.Update(t.Context(), ownerA, map[string]string{cache: "gold", disk: "fast"}); err == nil {
				t.Error("no error")
			}
		}},
		{name: "while containers follow a new default", allowed: [][]string{silver}, steps: 8, do: func(t *testing.T, f *crashFixture) {
			f.text = strings.ReplaceAll(files, "defaultClass: bronze", "defaultClass: silver")
			if err := f.configure(t, f.text); err != nil {
				t.Error(err)
			}
			f.Reconcile(t.Context())
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := 1
			for ; killAt(t, n, 0, test.do, test.allowed); n++ {
				for again := 1; n%8 == 0 && killAt(t, n, again, test.do, test.allowed); again++ {
				}
			}
			if n <= test.steps {
				t.Errorf("the process has only %d steps", n-1)
			}
		})
	}
}

// killAt kills the process at step `n` of the function `do`. If the parameter `again` is greater than 0, killAt also kills
// the next process during its recovery, at the step with this number. killAt reports whether there were such steps. After the
// recovery, the state must be one of those in `allowed`, only its slots are in use, and another reconciliation changes nothing.
func killAt(t *testing.T, n, again int, do func(*testing.T, *crashFixture), allowed [][]string) (died bool) {
	t.Helper()
	f := newCrashFixture(t)
	*f.killer = killer{at: n}
	died = !f.killer.survives(func() { do(t, f) })
	if died && again > 0 {
		*f.killer = killer{at: again}
		died = !f.killer.survives(func() { f.recover(t) })
	}

	*f.killer = killer{}
	f.recover(t)
	got := f.state(t)
	if !died && again == 0 {
		allowed = allowed[len(allowed)-1:]
	}

	found := false
	for _, want := range allowed {
		found = found || cmp.Equal(want, got)
	}

	if !found {
		t.Errorf("killed at step %d and %d: the state is %q, want one of %q", n, again, got, allowed)
	}

	if used := f.Status().Resources[0].InUse["gold"] == 1; used != strings.HasPrefix(got[0], "gold") {
		t.Errorf("killed at step %d and %d: in %q with %v slots in use", n, again, got, f.Status().Resources[0].InUse)
	}

	f.Reconcile(t.Context())
	if diff := cmp.Diff(got, f.state(t)); diff != "" {
		t.Errorf("killed at step %d and %d: a second call of Reconcile changes the state:\n%s", n, again, diff)
	}

	return died
}
