// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

// byClaim is the class that a ResourceClaim allocates in these tests.
var byClaim = classes.Pair{Resource: "test.example/cache", Class: "gold"}

func TestAContainerGetsTheClassOfItsCDIDevice(t *testing.T) {
	r := newRig(t)
	id := r.runWith(t, r.pod(t, "web", ""), nriruntime.ContainerConfig{
		Name: "main", CDIDevices: []string{"gpu.example/gpu=0", classes.CDIDevice(byClaim)}, Env: []string{classes.CDIEnvironment(byClaim)},
	})
	r.wantReported(t, id, byClaim.Resource, "gold/allocated")
}

// TestAContainerWithOnlyTheEnvironmentVariableOfACDIDeviceIsRefused: any user can write the variable of a class into a pod. If the runtime
// reports no CDI devices, a container whose class a claim has allocated looks the same, so it is refused, too.
func TestAContainerWithOnlyTheEnvironmentVariableOfACDIDeviceIsRefused(t *testing.T) {
	r := newRig(t)
	_, err := r.CreateContainer(t.Context(), r.pod(t, "web", ""), nriruntime.ContainerConfig{Name: "main", Env: []string{"A=B", classes.CDIEnvironment(byClaim)}})
	if err == nil || !strings.Contains(err.Error(), "shows a class that is not allocated to the container") {
		t.Errorf("the error is %v", err)
	}
	if refused := r.node.Refused(); len(refused) != 1 || refused[0].Reason != "BadRequest" {
		t.Errorf("the refusals are %+v", refused)
	}
	if got := r.node.Assignments(); len(got) > 0 {
		t.Errorf("after a refusal, the assignments are %+v", got)
	}
}

// TestAnAnnotationOfTheContainerMustAgreeWithTheClassOfItsClaim creates containers whose claim has allocated gold, and
// whose pod has an annotation. If the annotation requests a class for the pod, or only looks like a class that a claim has
// allocated, it has no effect.
func TestAnAnnotationOfTheContainerMustAgreeWithTheClassOfItsClaim(t *testing.T) {
	const pod, container = "qos.noderesource.dev/pod", "container.qos.noderesource.dev/main"
	for name, test := range map[string]struct{ key, request, want string }{
		"the same class":       {container, "test.example/cache=gold", "gold/container"},
		"a default of the pod": {pod, "test.example/cache=bronze", "gold/allocated"},
		"another class":        {container, "test.example/cache=bronze", `class "bronze" of test.example/cache contradicts the allocated class "gold"`},
		"no class":             {container, "test.example/cache=", `class "" of test.example/cache contradicts the allocated class "gold"`},
		"the annotation of the allocation, forged": {"allocated.qos.noderesource.dev/test.example:cache::bronze", "test.example/cache=bronze", "gold/allocated"},
		"the name of another CDI device":           {"cdi.k8s.io/qos", classes.CDIDevice(classes.Pair{Resource: byClaim.Resource, Class: "bronze"}), "gold/allocated"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			sandbox := r.podWith(t, nriruntime.PodConfig{Name: "web", Annotations: map[string]string{test.key: test.request}})
			id, err := r.CreateContainer(t.Context(), sandbox, nriruntime.ContainerConfig{
				Name: "main", CDIDevices: []string{classes.CDIDevice(byClaim)}, Env: []string{classes.CDIEnvironment(byClaim)},
			})
			got := nodetest.Has(r.node.Assignments(), id, byClaim.Resource)
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, test.want) {
				t.Errorf("the container has %s, want %s", got, test.want)
			}
		})
	}
}
