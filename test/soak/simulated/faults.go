// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/qos-nri/qos-nri-plugin/test/sim"
)

// refusal makes one write to a kernel file fail. It calls `during` before the write fails.
type refusal struct{ during func() }

// RefuseWrite implements steps.Faults.
func (s *Site) RefuseWrite(during func()) (stop func()) {
	if s.process == nil {
		return func() {}
	}
	host, ended := s.process.host, make(chan struct{})
	r := &refusal{during: sync.OnceFunc(func() { defer close(ended); during() })}
	host.setRefusal(r)
	return func() {
		if host.takeRefusal() != r {
			<-ended // the write was refused
		}
	}
}

func (m *mortal) setRefusal(r *refusal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refusal = r
}

func (m *mortal) takeRefusal() *refusal {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.refusal
	m.refusal = nil
	return r
}

// refused reports whether the next write must fail. If so, it first calls refusal.during. It holds no lock during this
// call, so other goroutines can use the machine.
func (m *mortal) refused() bool {
	r := m.takeRefusal()
	if r != nil {
		r.during()
	}
	return r != nil
}

// refusing is a machine that can refuse updates of containers.
type refusing struct {
	*sim.Machine
	refuses atomic.Bool
}

// RefuseUpdate implements steps.Faults.
func (s *Site) RefuseUpdate() (stop func()) {
	s.oci.refuses.Store(true)
	return func() { s.oci.refuses.Store(false) }
}

func (r *refusing) Update(ctx context.Context, id string, unified map[string]string) error {
	if r.refuses.CompareAndSwap(true, false) {
		return errors.New("runc did not terminate successfully: exit status 1")
	}
	return r.Machine.Update(ctx, id, unified)
}
