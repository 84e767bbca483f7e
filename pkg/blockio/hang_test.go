// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"sync/atomic"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/iotest"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// hanging is a host on which the next search for devices blocks until the channel `released` is closed.
type hanging struct {
	*simcgroup.Machine
	hangs             *atomic.Bool
	reached, released chan struct{}
}

func (h hanging) Glob(pattern string) ([]string, error) {
	if h.hangs.Swap(false) {
		close(h.reached)
		<-h.released
	}
	return h.Machine.Glob(pattern)
}

func TestHooksDoNotWaitForAReloadThatHangsInTheKernel(t *testing.T) {
	host := hanging{disks(simcgroup.New()), &atomic.Bool{}, make(chan struct{}), make(chan struct{})}
	f := newFixtureOn(t, host, host.Machine, classes.ContainerScope, iotest.NewMemory()).apply(throttling)
	config, done := f.parse(throttling), make(chan error, 1)
	host.hangs.Store(true)
	go func() { done <- f.backend.Apply(t.Context(), config) }()
	<-host.reached
	f.runtime("", "slow")
	f.enforce(container(), "", "slow")
	f.wantObserved(container(), "", "slow")
	if got := f.backend.Status(); got.Unavailable != nil {
		t.Errorf("while a reload hangs, the status is %+v, want an available backend", got)
	}

	close(host.released)
	must(t, <-done)
}
