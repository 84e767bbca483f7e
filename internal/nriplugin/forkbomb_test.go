// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/rdt"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// bomb is a container that forks a given number of times. Each fork is made by a random process of the container.
type bomb struct {
	*machineRig
	id     string
	random *rand.Rand

	mu   sync.Mutex // guards the fields below
	pids []int
	left int
}

func (b *bomb) fork() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left == 0 {
		return nil
	}
	child, err := b.host.Fork(b.id, b.pids[b.random.IntN(len(b.pids))])
	b.pids, b.left = append(b.pids, child), b.left-1
	return err
}

// forkAll forks until no forks are left.
func (b *bomb) forkAll() error {
	for {
		b.mu.Lock()
		left := b.left
		b.mu.Unlock()
		if left == 0 {
			return nil
		}
		if err := b.fork(); err != nil {
			return err
		}
	}
}

// TestAMoveLeavesAllProcessesOfAForkBombInOneClass moves a container while it forks. The container forks before each
// write of the plugin, or as fast as it can.
func TestAMoveLeavesAllProcessesOfAForkBombInOneClass(t *testing.T) {
	const most = 250
	for name, fast := range map[string]bool{"at each step of the plugin": false, "as fast as it can": true} {
		t.Run(name, func(t *testing.T) {
			r := newMachineRig(t, simcgroup.New())
			id := r.mustRun(t, r.pod(t, "bomb", "rdt=silver"))
			b := &bomb{machineRig: r, id: id, random: rand.New(rand.NewPCG(1, 2)), pids: []int{r.container(t, id).PID}}
			moves := 0
			for _, class := range []string{"gold", "bronze", "", "silver"} {
				b.left = most
				var forking sync.WaitGroup
				if fast {
					forking.Go(func() {
						if err := b.forkAll(); err != nil {
							t.Error(err)
						}
					})
				} else {
					r.host.intercept(func(string, string) error { return b.fork() })
				}
				before := nodetest.Has(r.node.Assignments(), id, groups)
				err := r.update(t, id, "rdt", class)
				forking.Wait()
				switch {
				case err == nil:
					moves++
					r.wantReported(t, id, groups, class+"/update")
				case errors.Is(err, rdt.ErrUnsettled): // the container forked faster than the plugin moved its processes
					r.wantReported(t, id, groups, before)
				default:
					t.Error(err)
				}
				r.world.Hold(t)
			}

			if moves == 0 {
				t.Error("no move succeeded")
			}
		})
	}
}
