// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"errors"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// pending adopts two containers, a and b, that request the same class of capacity 1. The request of b is pending.
func pending(f *fixture, _ *testing.T) {
	f.Rebuild(nil, []state.Existing{
		existing(container("a-1", "cache=gold"), assigned(cache, "gold", classes.SourcePod)), existing(container("b-1", "cache=gold")),
	})
}

// TestRefresh checks the desired classes after the configuration has changed, or a slot has become free. For the form of `want`,
// see wantHolders.
func TestRefresh(t *testing.T) {
	for name, test := range map[string]struct {
		before  func(*fixture, *testing.T)
		want    []string
		refused []string
	}{
		"a default follows the configuration": {
			before: func(f *fixture, t *testing.T) {
				f.run(t, container("b-1", ""))
				f.offer(silverByDefault)
			},
			want: []string{"b-1 cache=silver(bronze)"},
		},
		"a requested class stays": {
			before: func(f *fixture, t *testing.T) {
				f.run(t, container("b-1", "cache=bronze"))
				f.offer(silverByDefault)
			},
			want: []string{"b-1 cache=bronze"},
		},
		"a class of an update stays": {
			before: func(f *fixture, t *testing.T) {
				f.run(t, container("b-1", ""))
				f.change(t, "b", "bronze")
				f.offer(silverByDefault)
			},
			want: []string{"b-1 cache=bronze"},
		},
		"a default of a resource that is gone ends": {
			before: func(f *fixture, t *testing.T) {
				f.run(t, container("b-1", ""))
				f.offer(withoutCache)
			},
			want: []string{"b-1 cache=(bronze)"},
		},
		"a requested class of a resource that is gone drains": {
			before: func(f *fixture, t *testing.T) {
				f.run(t, container("b-1", "cache=gold"))
				f.offer(withoutCache)
			},
			want: []string{"b-1 cache=gold"},
		},
		"a default of a new resource is assigned": {
			before: func(f *fixture, t *testing.T) {
				f.offer(withoutCache)
				f.run(t, container("b-1", ""))
				f.offer(nil)
			},
			want: []string{"b-1 cache=bronze()"},
		},
		"a request stays pending while its class is full": {
			before: pending, want: []string{"a-1 cache=gold", "b-1 cache=bronze()"}, refused: []string{"b ClassFull"},
		},
		"a pending request is admitted once there is room": {
			before: func(f *fixture, t *testing.T) {
				pending(f, t)
				f.Release("a-1")
			},
			want: []string{"b-1 cache=gold()"},
		},
		"after the admission of a pending request, the observed class stays until the container is moved": {
			before: func(f *fixture, t *testing.T) {
				pending(f, t)
				f.Observe("b-1", cache, "bronze")
				f.Release("a-1")
			},
			want: []string{"b-1 cache=gold(bronze)"},
		},
		"the admission of a pending request keeps the class of an update": {
			before: func(f *fixture, t *testing.T) {
				pending(f, t)
				f.change(t, "b", "silver")
			},
			want: []string{"a-1 cache=gold", "b-1 cache=silver"},
		},
		"a pending request is refused again with the present reason": {
			before: func(f *fixture, t *testing.T) {
				pending(f, t)
				f.offer(withoutGold)
			},
			want: []string{"a-1 cache=gold", "b-1 cache=bronze()"}, refused: []string{"b UnknownClass"},
		},
		"a pending request is admitted once its class is configured": {
			before: func(f *fixture, _ *testing.T) {
				f.Rebuild(nil, []state.Existing{existing(container("b-1", "cache=lead"))})
				f.offer(func(r []classes.Resource) []classes.Resource {
					r[0].Classes = append(r[0].Classes, classes.Class{Name: "lead"})
					return r
				})
			},
			want: []string{"b-1 cache=lead()"},
		},
		"an unknown ID changes nothing": {
			before: func(*fixture, *testing.T) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			test.before(f, t)
			f.Refresh("b-1")
			f.wantHolders(t, test.want...)
			f.wantRefused(t, test.refused...)
		})
	}
}

func TestARetryThatIsRefusedAgainIsNotCountedAgain(t *testing.T) {
	f := newFixture()
	pending(f, t)
	before := f.Changed()
	f.Refresh("b-1")
	if got := f.Status().Refusals["ClassFull"]; got != 1 {
		t.Errorf("the refusal is counted %d times, want once", got)
	}
	if signalled(before) {
		t.Error("a change was signalled, although the refusal is the same as before")
	}
}

// change changes a container's class of the resource cache.
func (f *fixture) change(t *testing.T, podName, class string) {
	t.Helper()
	before, changes, err := f.Change(qos.Subject{PodUID: "uid-" + podName, Container: "main"}, map[string]string{cache: class})
	if err != nil {
		t.Fatal(err)
	}
	f.Confirm(before.ID, changes)
}

// TestChange checks the classes after a client has requested others for a running container. For the form of `want`, see wantHolders.
func TestChange(t *testing.T) {
	main := qos.Subject{PodUID: "uid-a", Container: "main"}
	for name, test := range map[string]struct {
		owner    qos.Subject
		requests map[string]string
		err      error
		want     string
	}{
		"another class":                 {owner: main, requests: map[string]string{cache: "silver"}, want: "a-1 cache=silver(bronze) disk=fast"},
		"the system default":            {owner: main, requests: map[string]string{cache: ""}, want: "a-1 cache=(bronze) disk=fast"},
		"a full class":                  {owner: main, requests: map[string]string{cache: "gold"}, err: classes.ErrClassFull},
		"an unknown class":              {owner: main, requests: map[string]string{cache: "lead"}, err: classes.ErrUnknownClass},
		"an unknown resource":           {owner: main, requests: map[string]string{"x/y": "lead"}, err: classes.ErrUnknownResource},
		"a resource of pods":            {owner: main, requests: map[string]string{net: "high"}, err: classes.ErrBadRequest},
		"an immutable resource":         {owner: main, requests: map[string]string{disk: ""}, err: state.ErrImmutable},
		"one immutable resource of two": {owner: main, requests: map[string]string{cache: "silver", disk: ""}, err: state.ErrImmutable},
		"an unknown container":          {owner: qos.Subject{PodUID: "x", Container: "main"}, err: state.ErrNotFound},
		"a container not yet started":   {owner: qos.Subject{PodUID: "uid-c", Container: "main"}, err: state.ErrNotRunning},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			f.run(t, container("a-1", "disk=fast"))
			f.run(t, container("b-1", "cache=gold"))
			if _, _, err := f.Admit(container("c-1", "")); err != nil {
				t.Fatal(err)
			}

			before, _, err := f.Change(test.owner, test.requests)
			if !errors.Is(err, test.err) {
				t.Errorf("error %v, want %v", err, test.err)
			}
			if test.err != nil {
				test.want = "a-1 cache=bronze disk=fast"
			} else {
				f.Observe(before.ID, cache, "bronze") // as the reconciler does until the change is enforced
			}

			f.wantHolders(t, test.want, "b-1 cache=gold", "c-1 cache=bronze")
		})
	}
}

func TestAChangeOfAnUnavailableResourceIsRefused(t *testing.T) {
	f := newFixture()
	f.run(t, container("a-1", ""))
	f.lackCache()
	_, _, err := f.Change(qos.Subject{PodUID: "uid-a", Container: "main"}, map[string]string{cache: "silver"})
	if !errors.Is(err, classes.ErrUnavailable) {
		t.Errorf("error %v, want ErrUnavailable", err)
	}
}

func TestAChangeEndsConfirmedOrReverted(t *testing.T) {
	owner := qos.Subject{PodUID: "uid-a", Container: "main"}
	for name, test := range map[string]struct {
		end  func(*fixture, state.Holding, []classes.Assignment)
		want []string
	}{
		"confirmed": {
			func(f *fixture, before state.Holding, changes []classes.Assignment) { f.Confirm(before.ID, changes) },
			[]string{"a-1 cache=silver"},
		},
		"confirmed after a synchronization that did not include it": {
			func(f *fixture, before state.Holding, changes []classes.Assignment) {
				f.Rebuild(nil, []state.Existing{existing(container("a-1", ""), assigned(cache, "bronze", classes.SourceDefault))})
				f.Confirm(before.ID, changes)
			},
			[]string{"a-1 cache=silver"},
		},
		"confirmed after the end of the container": {
			func(f *fixture, before state.Holding, changes []classes.Assignment) {
				f.Release(before.ID)
				f.Confirm(before.ID, changes)
			}, nil,
		},
		"reverted": {
			func(f *fixture, before state.Holding, _ []classes.Assignment) {
				f.Modify(before.ID, func(h *state.Holding) { h.Assignments = before.Assignments })
			},
			[]string{"a-1 cache=bronze"},
		},
		"reverted after the end of the container": {
			func(f *fixture, before state.Holding, _ []classes.Assignment) {
				f.Release(before.ID)
				f.Modify(before.ID, func(h *state.Holding) { h.Assignments = before.Assignments })
			}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			f.run(t, container("a-1", ""))
			before, changes, err := f.Change(owner, map[string]string{cache: "silver"})
			if err != nil {
				t.Fatal(err)
			}
			test.end(f, before, changes)
			f.wantHolders(t, test.want...)
		})
	}
}

// TestTheNewestContainerOfAnOwnerIsChanged admits a-2 before a-1, so that a-1 is the newest one.
func TestTheNewestContainerOfAnOwnerIsChanged(t *testing.T) {
	f := newFixture()
	f.run(t, container("a-2", ""))
	f.run(t, container("a-1", ""))
	f.change(t, "a", "silver")
	f.wantHolders(t, "a-1 cache=silver", "a-2 cache=bronze")
}
