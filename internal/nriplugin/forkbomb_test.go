// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/rdt"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// bomb forks processes of a container as fast as it can, each from any of those before, until it has so many.
func (r *machineRig) bomb(id string, seed uint64, most int) error {
	c, err := r.Container(id)
	if err != nil {
		return err
	}
	random, pids := rand.New(rand.NewPCG(seed, 0)), []int{c.PID}
	for len(pids) < most {
		child, err := r.host.Fork(id, pids[random.IntN(len(pids))])
		if err != nil {
			return err
		}
		pids = append(pids, child)
	}
	return nil
}

// TestEveryProcessOfABoundedForkBombIsInOneClassAfterAMove moves a container to and fro while it forks.
func TestEveryProcessOfABoundedForkBombIsInOneClassAfterAMove(t *testing.T) {
	const bombs, each = 4, 250
	r := newMachineRig(t, simcgroup.New())
	p := &peopled{machineRig: r}
	id := r.mustRun(t, r.pod(t, "bomb", "rdt=silver"))
	owner, moves := p.owner(t, "bomb"), 0
	for round, class := range []string{"gold", "bronze", "", "silver"} {
		var forking sync.WaitGroup
		for i := range bombs {
			forking.Go(func() {
				if err := r.bomb(id, uint64(round*bombs+i), each); err != nil {
					t.Error(err)
				}
			})
		}
		before := r.reported(id, groups)
		err := r.node.Update(t.Context(), owner, map[string]string{"rdt": class})
		forking.Wait()
		switch {
		case err == nil:
			moves++
			r.wantReported(t, id, groups, class+"/update")
		case errors.Is(err, rdt.ErrUnsettled):
			r.wantReported(t, id, groups, before)
		default:
			t.Error(err)
		}
		r.world.Hold(t)
	}
	if moves == 0 {
		t.Error("no move succeeded")
	}
}
