// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/qos-nri/qos-nri-plugin/test/sim"
)

func newHost(real bool) (host, error) {
	if real {
		return newMachine()
	}
	simulated := sim.New(sim.Options{})
	return simulated, simulated.WriteFile("/sys/block/vda/queue/scheduler", []byte("bfq"))
}
