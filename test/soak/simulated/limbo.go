// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"sync"
	"time"

	"github.com/qos-nri/qos-nri-plugin/test/sim"
)

// drainInterval is the interval at which the kernel checks whether the RMIDs in limbo can be used again
// (CQM_LIMBOCHECK_INTERVAL in Linux).
const drainInterval = time.Second

// drain frees the RMIDs in limbo at each interval, and lets containers transfer as much as their limits allow, until `stop` is called.
func drain(machine *sim.Machine) (stop func()) {
	ended := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		interval := time.NewTicker(drainInterval)
		defer interval.Stop()
		for {
			select {
			case <-interval.C:
				machine.Resctrl().Drain()
				machine.Cgroups().TransferAtLimits(drainInterval)
			case <-ended:
				return
			}
		}
	})

	return func() {
		close(ended)
		running.Wait()
	}
}
