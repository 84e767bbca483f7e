// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
)

// rounds is a backend that counts the open rounds and the observations. An observation outside of a round fails the test.
type rounds struct {
	*nodetest.Backend
	t              *testing.T
	open, observed int
}

func (r *rounds) BeginRound() (end func()) {
	r.open++
	return func() { r.open-- }
}

func (r *rounds) Observe(ctx context.Context, target classes.Holder, want string) (classes.Observation, error) {
	r.observed++
	if r.open != 1 {
		r.t.Errorf("%s is observed in %d rounds", target, r.open)
	}
	return r.Backend.Observe(ctx, target, want)
}

// TestHoldersAreObservedInARound: in a round, a backend reads the files that its observations share, such as the mounts of
// the node, only once.
func TestHoldersAreObservedInARound(t *testing.T) {
	backend := &rounds{Backend: nodetest.NewBackend(), t: t}
	kind := nodetest.Kind("test", []classes.Scope{classes.ContainerScope, classes.VolumeScope},
		map[string]*nodetest.Backend{cache: nodetest.NewBackend(), volumeIO: backend.Backend})
	newBackend := kind.New
	kind.New = func(resource string, scope classes.Scope) classes.Backend {
		if resource == volumeIO {
			return backend
		}
		return newBackend(resource, scope)
	}
	f := newFixtureOf(t, kind)
	f.restart(t)
	f.mustConfigure(t, volumeFiles)
	c := withVolumes("c1", "/a=gold,/b=gold")
	c.PID = 1
	f.Synchronize(nil, []state.Existing{{Holder: c, Started: true}})

	*backend = rounds{Backend: backend.Backend, t: t} // counts from here on
	f.Repair(t.Context())
	if backend.open != 0 || backend.observed < 2 {
		t.Errorf("%d rounds have not ended, and there were %d observations; want those of both volumes", backend.open, backend.observed)
	}
}
