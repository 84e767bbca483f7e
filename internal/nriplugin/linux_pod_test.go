// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"errors"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/checkpoint"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

const (
	idlePods = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: vendor.example/profile
  scope: pod
  linux: {classes: {idle: {cpu: {idle: true}}, busy: {cpu: {idle: false}}}}
`
	podOfIdle = "/kubepods/pod6f1e"
)

// idleRig has a machine with the cgroup of a pod whose CPU weight the kubelet has set.
func idleRig(t *testing.T) *machineRig {
	t.Helper()
	m := newMachine(simcgroup.New())
	m.Cgroups().AddCgroup(podOfIdle)
	setWeight(t, m, "79")
	return newMachineRigOn(t, m, idlePods, nriruntime.Options{})
}

func setWeight(t *testing.T, m *sim.Machine, weight string) {
	t.Helper()
	must(t, m.WriteFile(podFile("cpu.weight"), []byte(weight)))
}

func podFile(name string) string { return path.Join("/sys/fs/cgroup", podOfIdle, name) }

// mustRunPod runs a pod that requests a class for the cgroup podOfIdle.
func (r *machineRig) mustRunPod(t *testing.T, class string) (sandbox string) {
	t.Helper()
	return r.podWith(t, nriruntime.PodConfig{
		Name: "a", UID: "6f1e", CgroupParent: podOfIdle, Annotations: map[string]string{classes.PodKey: profile + "=" + class},
	})
}

// wantIdle compares the pod's cgroup. While a cgroup is idle, its weight is 1.
func (r *machineRig) wantIdle(t *testing.T, idle, weight string) {
	t.Helper()
	for file, want := range map[string]string{"cpu.idle": idle, "cpu.weight": weight} {
		if data, err := r.host.ReadFile(podFile(file)); err != nil || strings.TrimSpace(string(data)) != want {
			t.Errorf("%s is %q, %v; want %s", file, data, err, want)
		}
	}
}

// TestAPodThatLeavesAnIdleClassGetsItsWeightBack uses a pod to which the kubelet gave the CPU weight 79.
func TestAPodThatLeavesAnIdleClassGetsItsWeightBack(t *testing.T) {
	for name, before := range map[string]func(*machineRig){
		"at once":                       func(*machineRig) {},
		"after a restart of the plugin": func(r *machineRig) { r.startNewWith(t, idlePods) },
	} {
		t.Run(name, func(t *testing.T) {
			r := idleRig(t)
			id := r.mustRunPod(t, "idle")
			r.wantIdle(t, "1", "1")
			r.wantReported(t, id, profile, "idle/pod")
			if err := r.host.Machine.WriteFile(podFile("cpu.weight"), []byte("100")); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("the kernel accepts the weight of an idle pod: %v", err)
			}

			before(r)
			r.change(t, id, profile, classes.SystemDefault)
			r.wantIdle(t, "0", "79")
			r.node.Repair(t.Context())
			r.wantIdle(t, "0", "79")
			r.wantReported(t, id, profile, "/update")
		})
	}
}

// TestAPodThatWasResizedBetweenTwoStaysInAnIdleClassKeepsItsNewWeight changes an idle pod to class busy, so that the kubelet can resize it,
// and back to class idle. When the pod leaves this class, it has the weight 157 of the resize, and not the former weight 79.
func TestAPodThatWasResizedBetweenTwoStaysInAnIdleClassKeepsItsNewWeight(t *testing.T) {
	r := idleRig(t)
	id := r.mustRunPod(t, "idle")
	r.change(t, id, profile, "busy")
	r.wantIdle(t, "0", "79")
	setWeight(t, r.host.Machine, "157")
	for _, class := range []string{"idle", classes.SystemDefault} {
		r.change(t, id, profile, class)
	}
	r.wantIdle(t, "0", "157")
}

// TestAPodIsIdleAgainAfterAnotherProgramHasResetIt uses a systemd that writes its own weight of the pod's slice.
func TestAPodIsIdleAgainAfterAnotherProgramHasResetIt(t *testing.T) {
	r := idleRig(t)
	id := r.mustRunPod(t, "idle")
	must(t, r.host.Machine.WriteFile(podFile("cpu.idle"), []byte("0")))
	setWeight(t, r.host.Machine, "80")
	r.node.Repair(t.Context())
	r.wantIdle(t, "1", "1")
	r.wantReported(t, id, profile, "idle/pod")
}

func TestAPodStaysIdleIfItsWeightCannotBeRestored(t *testing.T) {
	r := idleRig(t)
	id := r.mustRunPod(t, "idle")
	r.host.fail("/cpu.weight", syscall.EIO)
	if err := r.update(t, id, profile, classes.SystemDefault); !errors.Is(err, syscall.EIO) {
		t.Errorf("the update returns %v", err)
	}
	r.wantIdle(t, "1", "1")
	r.wantReported(t, id, profile, "idle/pod")
}

// TestAPodThatAnotherProgramHasMadeIdleStaysSo uses a pod without a class. When the pod became idle, the kernel dropped its weight 79. In
// class busy, it has the kernel's default weight 100.
func TestAPodThatAnotherProgramHasMadeIdleStaysSo(t *testing.T) {
	r := idleRig(t)
	must(t, r.host.Machine.WriteFile(podFile("cpu.idle"), []byte("1")))
	id := r.mustRunPod(t, "")
	r.node.Repair(t.Context())
	r.wantIdle(t, "1", "1")
	for _, step := range []struct{ class, idle, weight string }{
		{"busy", "0", "100"}, {classes.SystemDefault, "1", "1"},
	} {
		r.change(t, id, profile, step.class)
		r.wantIdle(t, step.idle, step.weight)
	}
}

func TestTheCheckpointForgetsTheOriginalValuesOfARemovedPod(t *testing.T) {
	r := idleRig(t)
	id := r.mustRunPod(t, "idle")
	wantSaved := func(want bool) {
		t.Helper()
		r.node.Repair(t.Context())
		saved := checkpoint.Open(r.checkpoint, "this boot", slog.New(slog.DiscardHandler)).Memory()
		names := func(key string) bool { return strings.Contains(key, podOfIdle) }
		if keys := slices.Collect(maps.Keys(saved)); slices.ContainsFunc(keys, names) != want {
			t.Errorf("the checkpoint has %q; names the pod's cgroup: want %t", keys, want)
		}
	}
	wantSaved(true)
	must(t, r.StopPod(t.Context(), id))
	must(t, r.RemovePod(t.Context(), id))
	wantSaved(false)
}

func TestTheStatusReportsThatAPodOfAnIdleClassCannotBeResized(t *testing.T) {
	r := idleRig(t)
	const want = "the kubelet cannot change the CPU requests of a running pod of class idle: the kernel refuses a CPU weight for the cgroup of an idle pod; " +
		"let the pod leave the class before a resize, or create it again"
	conditions := r.node.Status().Resources[0].Conditions
	if len(conditions) != 1 || conditions[0].Message != want || !conditions[0].Limited {
		t.Errorf("the conditions are %+v", conditions)
	}
}
