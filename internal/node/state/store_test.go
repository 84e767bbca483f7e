// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
)

const (
	cache = "test.example/cache"
	disk  = "test.example/disk"
	net   = "test.example/net" // a resource of pod scope
)

// fixture is a store with three resources, and a clock that only tests advance.
type fixture struct {
	*state.Store
	changes  changes
	backends map[string]*nodetest.Backend
	time     time.Time
}

func newFixture() *fixture {
	f := &fixture{changes: changes{}, backends: map[string]*nodetest.Backend{}, time: time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)}
	for _, name := range []string{cache, disk, net} {
		f.backends[name] = nodetest.NewBackend()
	}
	f.Store = state.New(f.changes, func() time.Time { return f.time })
	f.offer(nil)
	return f
}

// offer makes the configuration of these tests live. If `edit` is not nil, it changes the resources first.
func (f *fixture) offer(edit func([]classes.Resource) []classes.Resource) {
	resources := []classes.Resource{
		{
			Name: cache, Scope: classes.ContainerScope, Mutable: true, DefaultClass: "bronze", OnClassRemoved: classes.Evict,
			Classes: []classes.Class{{Name: "gold", Capacity: 1}, {Name: "silver"}, {Name: "bronze"}},
		},
		{Name: disk, Scope: classes.ContainerScope, Classes: []classes.Class{{Name: "fast"}}},
		{Name: net, Scope: classes.PodScope, Mutable: true, Classes: []classes.Class{{Name: "high", Capacity: 1}, {Name: "low"}}},
	}

	if edit != nil {
		resources = edit(resources)
	}

	files := classes.FileSet{Files: []string{"a.yaml"}, Config: &classes.Config{}}
	next := map[string]state.Resource{}
	for _, r := range resources {
		config := classes.ResourceConfig{Resource: r}
		files.Config.Resources = append(files.Config.Resources, config)
		next[r.Name] = state.Resource{Backend: f.backends[r.Name], Config: config}
	}

	f.GoLive(files, next, true)
}

// withoutGold removes class gold from the resource cache, which has onClassRemoved: evict.
func withoutGold(r []classes.Resource) []classes.Resource {
	r[0].Classes = r[0].Classes[1:]
	return r
}

func withoutCache(r []classes.Resource) []classes.Resource { return r[1:] }

func withoutNet(r []classes.Resource) []classes.Resource { return r[:2] }

func silverByDefault(r []classes.Resource) []classes.Resource {
	r[0].DefaultClass = "silver"
	return r
}

// changes implements state.Changes in memory.
type changes map[string][]classes.Assignment

func (c changes) Get(id string) ([]classes.Assignment, bool) { a, ok := c[id]; return a, ok }
func (c changes) Set(id string, a []classes.Assignment) error {
	c[id] = a
	return nil
}
func (c changes) Forget(id string)                              { delete(c, id) }
func (c changes) Originals(string) (classes.Adjustment, bool)   { return nil, false }
func (c changes) SetOriginals(string, classes.Adjustment) error { return nil }
func (c changes) Keep(live func(string) bool) {
	maps.DeleteFunc(c, func(id string, _ []classes.Assignment) bool { return !live(id) })
}
func (c changes) Memory() map[string][]byte         { return nil }
func (c changes) SetMemory(map[string][]byte) error { return nil }

// qualified completes the names of resources in requests.
var qualified = strings.NewReplacer("cache=", cache+"=", "disk=", disk+"=", "net=", net+"=")

// pod returns a sandbox of a pod. The part of the ID before the first dash is the name of the pod.
func pod(id, request string) classes.Holder {
	name, _, _ := strings.Cut(id, "-")
	h := classes.Holder{ID: id, SandboxID: id, PodUID: "uid-" + name, PodName: name, PodNamespace: "ns", PID: 1}
	if request != "" {
		request = qualified.Replace(request)
		h.PodAnnotations = map[string]string{classes.PodKey: request}
	}
	return h
}

// container returns a container. The part of the ID before the first dash is the name of its pod.
func container(id, request string) classes.Holder {
	h := pod(id, request)
	h.Container, h.SandboxID = "main", "sandbox"
	return h
}

// existing returns a running container. If there are assignments, the container has a record of them.
func existing(h classes.Holder, created ...classes.Assignment) state.Existing {
	if record, err := state.Record(created); err == nil && record != "" {
		h.ContainerAnnotations = map[string]string{state.RecordAnnotation: record}
	}
	return state.Existing{Holder: h, Started: true}
}

func assigned(resource, class string, source classes.Source) classes.Assignment {
	return classes.Assignment{Resource: resource, Class: class, Source: source}
}

// run admits and starts a container or pod.
func (f *fixture) run(t *testing.T, h classes.Holder) {
	t.Helper()
	if h.Container == "" {
		e, err := f.AdmitPod(h)
		if err == nil {
			err = f.Finish(e, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}

	if _, _, err := f.Admit(h); err != nil {
		t.Fatal(err)
	}

	f.start(t, h)
}

func (f *fixture) start(t *testing.T, h classes.Holder) {
	t.Helper()
	e, err := f.Start(h)
	if err == nil {
		err = f.Finish(e, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// wantHolders compares all holders with lines like "a-1 cache=gold", or "a-1 cache=gold(bronze)" with an observed class.
func (f *fixture) wantHolders(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, e := range f.Where(func(*state.Holding) bool { return true }) {
		line := []string{e.ID}
		for _, a := range e.Assignments {
			name := strings.TrimPrefix(a.Resource, "test.example/")
			observed := e.ObservedClass(a.Resource)
			switch {
			case observed != a.Class:
				line = append(line, name+"="+a.Class+"("+observed+")")
			case a.Class != classes.SystemDefault:
				line = append(line, name+"="+a.Class)
			}
		}
		got = append(got, strings.Join(line, " "))
	}

	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("holders %q, want %q", got, want)
	}
}

// wantRefused compares the reported refusals with lines like "a ClassFull", which have the name of the pod and the
// reason.
func (f *fixture) wantRefused(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, r := range f.Refused() {
		got = append(got, r.PodName+" "+r.Reason)
	}
	if !slices.Equal(got, want) {
		t.Errorf("refused %q, want %q", got, want)
	}
}

// wantNoneRefused checks that no refusal is reported.
func (f *fixture) wantNoneRefused(t *testing.T) {
	t.Helper()
	f.wantRefused(t)
}

// signalled reports whether a channel is closed or contains a value.
func signalled(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// setForeign records what another program has set for a holder.
func (f *fixture) setForeign(id, resource, text string) {
	f.Modify(id, func(h *state.Holding) { h.SetObservation(resource, classes.Observation{Foreign: text}) })
}

func isUnverified(h *state.Holding) bool { return h.Phase == state.Unverified }

// lackCache makes the resource cache unavailable.
func (f *fixture) lackCache() {
	f.UpdateResource(cache, func(r *state.Resource) { r.Unavailable = &classes.Unavailable{Message: "none"} })
}

// Start returns the container that the store returns for the start of a container without volumes.
func (f *fixture) Start(h classes.Holder) (state.Holding, error) {
	container, _, err := f.Store.Start(h)
	return container, err
}

// section is the section of a resource in a class file.
type section []string

func (s section) ClassNames() []string { return s }

// TestAnUnchangedSectionKeepsTheTimeOfItsValues reloads class files in which only the section of the resource cache has
// changed.
func TestAnUnchangedSectionKeepsTheTimeOfItsValues(t *testing.T) {
	f := newFixture()
	began := f.time
	f.time = f.time.Add(time.Hour)
	files, next := classes.FileSet{Config: &classes.Config{}}, map[string]state.Resource{}
	for name, r := range f.Live().Resources {
		if name == cache {
			r.Config.Backend = section{"other values"}
		}
		files.Config.Resources = append(files.Config.Resources, r.Config)
		next[name] = state.Resource{Backend: r.Backend, Config: r.Config}
	}
	f.GoLive(files, next, true)

	for name, want := range map[string]time.Time{cache: f.time, disk: began} {
		if got := f.Live().Resources[name].ValuesSince; !got.Equal(want) {
			t.Errorf("%s has its values since %v, want %v", name, got, want)
		}
	}
}
