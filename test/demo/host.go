// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/qos-nri/qos-nri-plugin/test/sim"
	"github.com/qos-nri/qos-nri-plugin/test/stage"
)

func newHost(real bool) (stage.Host, error) {
	if real {
		machine, err := stage.NewMachine()
		if err != nil {
			return nil, fmt.Errorf("--real: %w", err)
		}
		return machine, nil
	}
	simulated := sim.New(sim.Options{})
	return simulated, simulated.WriteFile("/sys/block/vda/queue/scheduler", []byte("bfq"))
}
