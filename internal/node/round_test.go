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

// rounds is a backend that counts rounds, and the observations in the present round.
type rounds struct {
	*nodetest.Backend
	t                     *testing.T
	begun, open, observed int
}

func (r *rounds) BeginRound() (end func()) {
	r.begun, r.open = r.begun+1, r.open+1
	return func() { r.open-- }
}

func (r *rounds) Observe(ctx context.Context, target classes.Holder, want string) (classes.Observation, error) {
	r.observed++
	if r.open != 1 {
		r.t.Errorf("%s is observed in %d rounds", target, r.open)
	}
	return r.Backend.Observe(ctx, target, want)
}

// TestAllHoldersAreObservedInOneRound: in a round, a backend reads the files that its observations share, such as the
// mounts of the node, only once.
func TestAllHoldersAreObservedInOneRound(t *testing.T) {
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
	if backend.begun == 0 || backend.open != 0 || backend.observed < 2 {
		t.Errorf("%d rounds with %d observations, and %d of them have not ended; want the observations of both volumes", backend.begun, backend.observed, backend.open)
	}
}
