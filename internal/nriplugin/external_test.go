// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

const externalFiles = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: vendor.example/xyz-qos
  defaultClass: low
  classes: [{name: high, capacity: 1}, {name: low}]
  external: {}
- name: vendor.example/net
  scope: pod
  classes: [{name: fast, capacity: 1}, {name: slow}]
  external: {}
`

const (
	xyz    = "vendor.example/xyz-qos"
	netQoS = "vendor.example/net"
)

func TestExternalClassesAreCountedAssignedChangedAndDrainedLikeOthers(t *testing.T) {
	r := newMachineRigWith(t, externalFiles)
	high := r.mustRun(t, r.pod(t, "a", xyz+"=high"))
	low := r.mustRun(t, r.pod(t, "b", ""))
	r.wantReported(t, high, xyz, "high/pod")
	r.wantReported(t, low, xyz, "low/default")

	_, err := r.CreateContainer(t.Context(), r.pod(t, "c", xyz+"=high"), nriruntime.ContainerConfig{Name: "main"})
	if err == nil || !strings.Contains(err.Error(), `class "high" of vendor.example/xyz-qos is full: 1 of 1 in use; available: low`) {
		t.Errorf("a second container of a class with capacity 1: %v", err)
	}

	r.change(t, low, xyz, "")
	r.wantReported(t, low, xyz, "/update")

	r.mustConfigure(t, strings.Replace(externalFiles, "{name: high, capacity: 1}, ", "", 1))
	r.wantReported(t, high, xyz, "high/pod") // the class drains
	if got := nodetest.Draining(r.node.Store); got != 1 {
		t.Errorf("%d assignments drain, want 1", got)
	}
	r.mustStop(t, high)
	if got := nodetest.Draining(r.node.Store); got != 0 {
		t.Errorf("%d assignments drain after the end of the container, want 0", got)
	}
}

func TestAnExternalClassOfPodScopeIsRefusedBeforeThePodRuns(t *testing.T) {
	r := newMachineRigWith(t, externalFiles)
	pod := r.pod(t, "a", netQoS+"=fast")
	if e, _ := r.node.Get(pod); e.Class(netQoS) != "fast" {
		t.Errorf("the pod has the class %q, want fast", e.Class(netQoS))
	}

	_, err := r.RunPod(t.Context(), nriruntime.PodConfig{Name: "b", Annotations: map[string]string{classes.PodKey: netQoS + "=fast"}})
	if err == nil || !strings.Contains(err.Error(), `class "fast" of vendor.example/net is full: 1 of 1 in use; available: slow`) {
		t.Errorf("a second pod of a class with capacity 1: %v", err)
	}
}

func TestExternalClassesSurviveARestartOfThePlugin(t *testing.T) {
	r := newMachineRigWith(t, externalFiles)
	high := r.mustRun(t, r.pod(t, "a", xyz+"=high"))
	r.startNewWith(t, externalFiles)
	r.wantReported(t, high, xyz, "high/pod")
	if _, err := r.CreateContainer(t.Context(), r.pod(t, "b", xyz+"=high"), nriruntime.ContainerConfig{Name: "main"}); err == nil {
		t.Error("after a restart, a second container got a class with capacity 1")
	}
}

// TestPodsOfARuntimeHandlerWithItsOwnKernelGetNoDefaultClass: without the field runtimeHandlers, a resource is for pods without a
// RuntimeClass, and for those with a known handler that shares the kernel of the node, such as runc and crun.
func TestPodsOfARuntimeHandlerWithItsOwnKernelGetNoDefaultClass(t *testing.T) {
	for _, test := range []struct{ name, field, handler, want string }{
		{"no RuntimeClass", "", "", "bronze/default"},
		{"a handler that shares the kernel", "", "crun", "bronze/default"},
		{"a handler with a kernel of its own", "", "kata-qemu", "/runtime-handler"},
		{"a handler that the resource names", "runtimeHandlers: [kata-qemu]", "kata-qemu", "bronze/default"},
		{"a handler that the resource does not name", "runtimeHandlers: [kata-qemu]", "runc", "/runtime-handler"},
	} {
		t.Run(test.name, func(t *testing.T) {
			files := strings.Replace(machineFiles, "- name: k8s.io/rdt\n", "- name: k8s.io/rdt\n  "+test.field+"\n", 1)
			r := newMachineRigWith(t, files)
			pod := r.podWith(t, nriruntime.PodConfig{Name: "a", RuntimeHandler: test.handler})
			id := r.mustRun(t, pod)
			r.wantReported(t, id, "k8s.io/rdt", test.want)

			r.startNewWith(t, files) // the new process adopts the container
			r.wantReported(t, id, "k8s.io/rdt", test.want)
		})
	}
}

func TestARequestOfAPodWhoseRuntimeHandlerHasItsOwnKernelIsRefused(t *testing.T) {
	r := newMachineRigWith(t, machineFiles)
	pod := r.podWith(t, nriruntime.PodConfig{
		Name: "a", RuntimeHandler: "kata-qemu", Annotations: map[string]string{classes.PodKey: "rdt=gold"},
	})

	_, err := r.CreateContainer(t.Context(), pod, nriruntime.ContainerConfig{Name: "main"})
	want := `pod default/a container main: class "gold" of k8s.io/rdt is not for pods of runtime handler "kata-qemu"; the resource's runtimeHandlers are: runc, crun`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	r.wantRefused(t, "a RuntimeHandler")

	id := r.mustRun(t, r.podWith(t, nriruntime.PodConfig{Name: "b", RuntimeHandler: "kata-qemu"}))
	if err := r.update(t, id, "rdt", "gold"); !errors.Is(err, classes.ErrRuntimeHandler) {
		t.Errorf("an update of such a pod: %v", err)
	}
}
