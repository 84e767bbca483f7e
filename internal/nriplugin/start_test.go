// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// onEachRuntime runs a test with the hooks of containerd, which does not start a container that a plugin refuses, and with those of
// CRI-O, which starts it nevertheless.
func onEachRuntime(t *testing.T, test func(*testing.T, nriruntime.Options)) {
	t.Run("containerd", func(t *testing.T) { test(t, nriruntime.Options{}) })
	t.Run("CRI-O", func(t *testing.T) { test(t, nriruntime.Options{CRIO: true}) })
}

// begun is an OCI runtime that records the resctrl group of each container at the container's first instruction.
type begun struct {
	nriruntime.OCI
	groups map[string]string
	pids   map[string]int
	m      *sim.Machine
	// If ignores is true, the OCI runtime ignores what NRI plugins set.
	ignores bool
}

func newBegun(m *sim.Machine) *begun {
	return &begun{OCI: m, groups: map[string]string{}, pids: map[string]int{}, m: m}
}

func (b *begun) Create(ctx context.Context, spec nriruntime.Spec) (int, error) {
	if b.ignores {
		spec.ClosID, spec.Unified = "", nil
	}
	pid, err := b.OCI.Create(ctx, spec)
	b.pids[spec.ID] = pid
	return pid, err
}

func (b *begun) Start(ctx context.Context, id string) error {
	if err := b.OCI.Start(ctx, id); err != nil {
		return err
	}
	b.groups[id] = b.m.Resctrl().GroupOf(b.pids[id])
	return nil
}

// newStartRig returns a rig, and its OCI runtime, which has the type begun.
func newStartRig(t *testing.T, cgroups *simcgroup.Machine, options nriruntime.Options) (*machineRig, *begun) {
	t.Helper()
	m := newMachine(cgroups)
	b := newBegun(m)
	options.OCI = b
	return newMachineRigOn(t, m, machineFiles, options), b
}

// wantRefused compares the reported refusals with texts that have the name of the pod and the reason.
func (r *machineRig) wantRefused(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, refused := range r.node.Refused() {
		got = append(got, refused.PodName+" "+refused.Reason)
	}
	if !slices.Equal(got, want) {
		t.Errorf("refused: %q, want %q", got, want)
	}
}

// wantNoneRefused checks that no refusal is reported.
func (r *machineRig) wantNoneRefused(t *testing.T) {
	t.Helper()
	r.wantRefused(t)
}

func TestAContainerStartsInItsClassAlthoughTheRuntimeIgnoredTheClass(t *testing.T) {
	onEachRuntime(t, func(t *testing.T, options nriruntime.Options) {
		r, begun := newStartRig(t, simcgroup.New(), options)
		begun.ignores = true
		id := r.mustRun(t, r.pod(t, "a", "rdt=gold,blockio=fast"))
		if got := begun.groups[id]; got != "qos-gold" {
			t.Errorf("the container's first instruction was in the resctrl group %q, want qos-gold", got)
		}
		r.wantNoneRefused(t)
		r.world.Hold(t)
	})
}

// TestAValueOfACgroupThatTheRuntimeIgnoredIsWrittenBeforeTheStart uses a class of kind linux with one value, and one with two.
func TestAValueOfACgroupThatTheRuntimeIgnoredIsWrittenBeforeTheStart(t *testing.T) {
	for class, want := range map[string]map[string]string{
		"pids: {max: 100}":                           {"pids.max": "100"},
		"pids: {max: 100}, memory: {oomGroup: true}": {"pids.max": "100", "memory.oom.group": "1"},
	} {
		m := newMachine(simcgroup.New())
		ignoring := newBegun(m)
		ignoring.ignores = true
		r := newMachineRigOn(t, m, profileFile("a: {"+class+"}"), nriruntime.Options{OCI: ignoring})
		id := r.mustRun(t, r.pod(t, "a", profile+"=a"))
		for file, value := range want {
			r.wantValue(t, id, file, value)
		}
	}
}

func TestAContainerDoesNotRunWhenItsClassCannotBeEnforced(t *testing.T) {
	onEachRuntime(t, func(t *testing.T, options nriruntime.Options) {
		r, begun := newStartRig(t, simcgroup.New(), options)
		begun.ignores = true // the OCI runtime ignores the classes, so the plugin must write the values itself
		pod := r.pod(t, "a", "rdt=gold,blockio=fast")
		r.host.fail("/io.max", syscall.EIO)

		id, err := r.run(t, pod)
		if _, ran := begun.groups[id]; ran || err == nil {
			t.Errorf("the container executed instructions; the error of its start is %v", err)
		}

		r.wantRefused(t, "a EnforcementFailed")

		// the next start succeeds, and the refusal is not reported any more
		r.host.heal()
		r.mustRun(t, pod)
		r.wantNoneRefused(t)
		r.world.Hold(t)
	})
}

// TestARefusedContainerThatCannotBeEndedRunsAndIsRepaired uses cgroup v1, which has no cgroup.kill, so the plugin
// cannot end a refused container. CRI-O runs it nevertheless.
func TestARefusedContainerThatCannotBeEndedRunsAndIsRepaired(t *testing.T) {
	r, _ := newStartRig(t, simcgroup.NewLegacy(), nriruntime.Options{CRIO: true})
	r.world.Expect.Limits = nil // the expected values of disks are those of cgroup v2
	pod := r.pod(t, "a", "rdt=gold,blockio=fast")
	r.host.fail("/blkio.throttle.", syscall.EIO)

	id := r.mustRun(t, pod)
	r.wantReported(t, id, disks, "/adopted")
	r.wantRefused(t, "a EnforcementFailed")

	// the limits of the disk still cannot be written, so this repair enforces only the class of rdt
	r.node.Repair(t.Context())
	r.wantReported(t, id, groups, "gold/pod")
	r.wantReported(t, id, disks, "/adopted")
	r.wantRefused(t, "a EnforcementFailed")

	r.host.heal()
	r.node.Repair(t.Context())
	r.wantReported(t, id, disks, "fast/pod")
	r.wantNoneRefused(t)
	r.world.Hold(t)
}

// missed returns a container that was created while no plugin ran.
func (r *machineRig) missed(t *testing.T, name, request string) string {
	t.Helper()
	r.stop()
	pod := r.pod(t, name, request)
	id, err := r.CreateContainer(t.Context(), pod, nriruntime.ContainerConfig{Name: "main"})
	if err != nil && strings.Contains(err.Error(), "ttrpc: closed") {
		id, err = r.create(t, pod), nil // the first call failed, and showed the runtime that the plugin had ended
	}
	must(t, err)
	r.startNew(t)
	return id
}

func TestAContainerThatWasCreatedWithoutThePluginStartsInItsClass(t *testing.T) {
	onEachRuntime(t, func(t *testing.T, options nriruntime.Options) {
		r, begun := newStartRig(t, simcgroup.New(), options)
		id := r.missed(t, "a", "rdt=gold,blockio=fast")
		must(t, r.StartContainer(t.Context(), id))
		if got := begun.groups[id]; got != "qos-gold" {
			t.Errorf("the container's first instruction was in the resctrl group %q, want qos-gold", got)
		}
		r.wantReported(t, id, groups, "gold/pod")
		r.wantReported(t, id, disks, "fast/pod")
		r.wantNoneRefused(t)
		r.world.Hold(t)
	})
}

// TestAContainerThatWasCreatedWithoutThePluginDoesNotStartIfItsClassIsFull expects the same result with both runtimes: with CRI-O, the
// plugin itself ends the container.
func TestAContainerThatWasCreatedWithoutThePluginDoesNotStartIfItsClassIsFull(t *testing.T) {
	onEachRuntime(t, func(t *testing.T, options nriruntime.Options) {
		r, begun := newStartRig(t, simcgroup.New(), options)
		r.mustRun(t, r.pod(t, "first", "rdt=gold"))
		second := r.mustRun(t, r.pod(t, "second", "rdt=gold"))
		id := r.missed(t, "third", "rdt=gold")
		err := r.StartContainer(t.Context(), id)
		if _, ran := begun.groups[id]; ran || err == nil {
			t.Errorf("the container executed instructions; the error of its start is %v", err)
		}

		r.wantRefused(t, "third ClassFull")
		r.world.Hold(t)

		// when a slot is free, the kubelet creates the container again, and it starts
		r.mustStop(t, second)
		r.mustRun(t, r.podOf(t, id))
		r.wantNoneRefused(t)
		r.world.Hold(t)
	})
}

// podOf returns the pod of a container.
func (r *machineRig) podOf(t *testing.T, id string) string {
	t.Helper()
	c := r.container(t, id)
	return c.PodID
}

// TestARunningContainerThatWasRefusedGetsItsClassWhenASlotIsFree uses cgroup v1, so the plugin cannot end a refused container, and CRI-O
// runs it. While the container waits for a slot, its class of another resource can change.
func TestARunningContainerThatWasRefusedGetsItsClassWhenASlotIsFree(t *testing.T) {
	r, _ := newStartRig(t, simcgroup.NewLegacy(), nriruntime.Options{CRIO: true})
	r.world.Expect.Limits = nil // the expected values of disks are those of cgroup v2
	r.mustRun(t, r.pod(t, "first", "rdt=gold"))
	second := r.mustRun(t, r.pod(t, "second", "rdt=gold"))
	id := r.missed(t, "third", "rdt=gold,blockio=fast")
	must(t, r.StartContainer(t.Context(), id))

	r.wantRefused(t, "third ClassFull")
	r.node.Repair(t.Context())
	r.wantReported(t, id, groups, "bronze/default")
	r.wantRefused(t, "third ClassFull")

	c := r.container(t, id)

	owner := qos.Subject{PodUID: c.Spec.Annotations["io.kubernetes.cri.sandbox-uid"], Container: "main"}
	if err := r.node.Update(t.Context(), owner, map[string]string{"blockio": "slow"}); err != nil {
		t.Errorf("the class of the pending container cannot be changed: %v", err)
	}

	r.wantReported(t, id, disks, "slow/update")

	r.mustStop(t, second)
	r.node.Repair(t.Context())
	r.wantReported(t, id, groups, "gold/pod")
	r.wantNoneRefused(t)
	r.world.Hold(t)
}
