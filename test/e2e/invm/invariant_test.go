// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"context"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/test/invariant"
)

// holds waits until the node is settled, and checks the invariants; see package invariant.
func (n *node) holds(t testing.TB) {
	t.Helper()
	machine := invariant.Machine{
		API: n.api(t), Host: hostfs.Root("/"), Live: invariant.LiveByCRI(n.runtime, n.cgroupIn), Before: n.foreign,
		Expect: invariant.Expect{Limits: n.limitsOfClasses(t)},
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, violation := range machine.Wait(ctx) {
		t.Error(violation)
	}
}

// cgroupIn returns the cgroup of a container of a pod, or of the pod itself.
func (n *node) cgroupIn(p *cri.PodSandbox, id string) string {
	pod := podConfig(p.GetMetadata().GetName(), nil).Linux.CgroupParent
	if id == "" {
		return pod
	}
	return n.kind.cgroupOf(pod, id)
}

func foreignNow(t testing.TB) map[string]string {
	t.Helper()
	found, err := invariant.ForeignOf(hostfs.Root("/"))
	must(t, err)
	return found
}

// limitsOfClasses returns the limits of the classes in classFile. For cgroup v1 it returns nil, because the cases
// themselves compare the files of cgroup v1.
func (n *node) limitsOfClasses(t testing.TB) map[string]map[string]map[string]string {
	if !n.cgroupV2 {
		return nil
	}
	vda, vdb := deviceNumber(t, "/dev/vda"), deviceNumber(t, "/dev/vdb")
	return map[string]map[string]map[string]string{blockio: {
		"throttled": {"io.max": vda + " rbps=2000000 wbps=1000000 riops=max wiops=max\n" + vdb + " rbps=1000000 wbps=2000000 riops=max wiops=max\n"},
		"slower":    {"io.max": vda + " rbps=700000 wbps=max riops=max wiops=max\n"},
		"single":    {"io.max": vda + " rbps=max wbps=max riops=1000 wiops=max\n" + vdb + " rbps=max wbps=max riops=1000 wiops=max\n"},
		"weighted":  {"io.bfq.weight": "default 400\n", "io.weight": "default 3940\n"}, // as in weights
	}}
}
