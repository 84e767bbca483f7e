// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"fmt"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
)

// TestAMemoryPolicyIsReadBack enforces a class on a starting container whose runtime has set a policy.
func TestAMemoryPolicyIsReadBack(t *testing.T) {
	for _, test := range []struct{ class, want string }{
		{"{memoryPolicy: {mode: interleave, nodes: 0-1}}", "<nil>"},
		{"{memoryPolicy: {mode: bind, nodes: 1}}", "linux.memoryPolicy is mode=MPOL_INTERLEAVE nodes=0-1, and the class has mode=MPOL_BIND nodes=1: " +
			`the container runtime has not set it; upgrade the OCI runtime, or remove the property from class "a"`},
	} {
		m := sim.New(sim.Options{})
		policy := &api.LinuxMemoryPolicy{Mode: api.MpolMode_MPOL_INTERLEAVE, Nodes: "0-1"}
		backend, pid := running(t, m, test.class, policy)
		target := classes.Holder{ID: "c1", Container: "main", CgroupsPath: "/kubepods/pod1/c1", PID: pid, Starting: true}
		if err := backend.Enforce(t.Context(), target, "a", "a"); fmt.Sprint(err) != test.want {
			t.Errorf("%s: got %v, want %s", test.class, err, test.want)
		}
	}
}

// TestAMemoryPolicyThatNoClassCanHaveIsStale uses a process that has set a flag of its policy. The class is known
// nevertheless, as soon as Enforce has set pids.max of the cgroup.
func TestAMemoryPolicyThatNoClassCanHaveIsStale(t *testing.T) {
	m := sim.New(sim.Options{})
	backend, pid := running(t, m, "{memoryPolicy: {mode: bind, nodes: 0-1}, pids: {max: 100}}", nil)
	m.ChangeProcess(pid, func(p *sim.Process) { p.NUMA = "bind=static:0-1" })

	target := classes.Holder{ID: "c1", Container: "main", CgroupsPath: "/kubepods/pod1/c1", PID: pid}
	for _, known := range []bool{false, true} {
		got, err := backend.Observe(t.Context(), target, "a")
		if err != nil || got.Known != known || got.Stale != "memoryPolicy" {
			t.Errorf("observed %+v, %v; want known %v, and the policy stale", got, err, known)
		}
		must(t, backend.Enforce(t.Context(), target, "a", "a"))
	}
}

// running returns a backend whose only class "a" has these properties, and the first process of the container c1, for which the runtime
// has set a memory policy.
func running(t *testing.T, m *sim.Machine, properties string, policy *api.LinuxMemoryPolicy) (backend classes.Backend, pid int) {
	t.Helper()
	pid, err := m.Create(t.Context(), nriruntime.Spec{ID: "c1", CgroupsPath: "/kubepods/pod1/c1", MemoryPolicy: policy})
	must(t, err)
	tree, err := cgroup.Detect(m)
	must(t, err)
	backend = Kind(Options{FS: m, Tree: tree, Log: discard()}).New("vendor.example/profile", classes.ContainerScope)
	must(t, backend.Apply(t.Context(), parse(t, properties)))
	return backend, pid
}

// TestValuesThatAreTheSameForAllContainersAreReported has one value that depends on the container, the OOM score, which is
// left out.
func TestValuesThatAreTheSameForAllContainersAreReported(t *testing.T) {
	backend, _ := running(t, sim.New(sim.Options{}),
		"{pids: {max: 100}, oomScoreAdj: {add: 10}, rlimits: {nofile: 5}, memoryPolicy: {mode: bind, nodes: 0}}", nil)
	want := map[string]map[string]string{"a": {"pids.max": "100", "rlimits.nofile": "hard=5 soft=5", "memoryPolicy": "mode=MPOL_BIND nodes=0"}}
	if diff := cmp.Diff(want, backend.(classes.Valued).Values()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
