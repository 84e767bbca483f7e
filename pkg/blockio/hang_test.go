// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
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
	tree, err := cgroup.Detect(host)
	must(t, err)

	kind := Kind(ioapply.New(ioapply.Options{FS: host, Tree: tree, Log: slog.New(slog.DiscardHandler)}))
	f := fixture{t, host.Machine, kind.New("k8s.io/blockio", classes.ContainerScope).(*Backend)}
	f.apply(throttling)
	config, done := f.parse(throttling), make(chan error, 1)
	host.hangs.Store(true)
	go func() { done <- f.backend.Apply(t.Context(), config) }()
	<-host.reached
	f.runtime("", "slow")
	f.enforce(container(), "", "slow")
	if got, err := f.backend.Observe(t.Context(), container(), ""); got.Class != "slow" || !got.Known || err != nil {
		t.Errorf("the container is observed as %+v, %v, want the class slow", got, err)
	}

	if got := f.backend.Status(); got.Unavailable != nil {
		t.Errorf("while a reload hangs, the status is %+v, want an available backend", got)
	}

	close(host.released)
	must(t, <-done)
}
