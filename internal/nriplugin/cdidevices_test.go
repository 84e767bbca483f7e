// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

// byClaim is the class that a ResourceClaim allocates in these tests.
var byClaim = classes.Pair{Resource: "test.example/cache", Class: "gold"}

// assignment returns the class and the source of the only container.
func (r *rig) assignment(t *testing.T) string {
	t.Helper()
	for _, pod := range r.node.Assignments() {
		for _, container := range pod.Containers {
			return container.Assignments[0].Class + " " + string(container.Assignments[0].Source)
		}
	}
	return "none"
}

func TestAContainerGetsTheClassOfItsCDIDevice(t *testing.T) {
	r := newRig(t)
	id, err := r.CreateContainer(t.Context(), r.pod(t, "web", ""), nriruntime.ContainerConfig{
		Name: "main", CDIDevices: []string{"gpu.example/gpu=0", classes.CDIDevice(byClaim)}, Env: []string{classes.CDIEnvironment(byClaim)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if got := r.assignment(t); got != "gold allocated" {
		t.Errorf("the container has %s", got)
	}
}

// TestTheEnvironmentVariableOfACDIDeviceAloneGivesNoClass creates containers as a user can who knows the variable: by
// the environment of the pod. The same happens on a runtime that reports no CDI devices.
func TestTheEnvironmentVariableOfACDIDeviceAloneGivesNoClass(t *testing.T) {
	r := newRig(t)
	_, err := r.CreateContainer(t.Context(), r.pod(t, "web", ""), nriruntime.ContainerConfig{Name: "main", Env: []string{"A=B", classes.CDIEnvironment(byClaim)}})
	if err == nil || !strings.Contains(err.Error(), "shows a class that is not allocated to the container") {
		t.Errorf("the error is %v", err)
	}
	if refused := r.node.Refused(); len(refused) != 1 || refused[0].Reason != "BadRequest" {
		t.Errorf("the refusals are %+v", refused)
	}
	if got := r.assignment(t); got != "none" {
		t.Errorf("a refused container has %s", got)
	}
}

// TestAnAnnotationOfTheContainerMustAgreeWithTheClassOfItsClaim creates containers whose claim has allocated gold, and
// whose pod has an annotation. An annotation that is not for this container has no effect.
func TestAnAnnotationOfTheContainerMustAgreeWithTheClassOfItsClaim(t *testing.T) {
	const pod, container = "qos.noderesource.dev/pod", "container.qos.noderesource.dev/main"
	for name, test := range map[string]struct{ key, request, want string }{
		"the same class":       {container, "test.example/cache=gold", "gold container"},
		"a default of the pod": {pod, "test.example/cache=bronze", "gold allocated"},
		"another class":        {container, "test.example/cache=bronze", `class "bronze" of test.example/cache contradicts the allocated class "gold"`},
		"no class":             {container, "test.example/cache=", `class "" of test.example/cache contradicts the allocated class "gold"`},
		"the annotation of the allocation, forged": {"allocated.qos.noderesource.dev/test.example:cache::bronze", "test.example/cache=bronze", "gold allocated"},
		"the name of another CDI device":           {"cdi.k8s.io/qos", classes.CDIDevice(classes.Pair{Resource: byClaim.Resource, Class: "bronze"}), "gold allocated"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			sandbox, err := r.RunPod(t.Context(), nriruntime.PodConfig{Name: "web", Annotations: map[string]string{test.key: test.request}})
			if err != nil {
				t.Fatal(err)
			}
			_, err = r.CreateContainer(t.Context(), sandbox, nriruntime.ContainerConfig{
				Name: "main", CDIDevices: []string{classes.CDIDevice(byClaim)}, Env: []string{classes.CDIEnvironment(byClaim)},
			})
			got := r.assignment(t)
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, test.want) {
				t.Errorf("the container has %s, want %s", got, test.want)
			}
		})
	}
}
