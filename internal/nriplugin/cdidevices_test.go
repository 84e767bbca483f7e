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

func TestACDIDeviceGivesItsClass(t *testing.T) {
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

// TestTheVariableOfACDIDeviceGivesNoClass creates containers as a user can who knows the variable: by the environment of the pod. The same
// happens on a runtime that reports no CDI devices.
func TestTheVariableOfACDIDeviceGivesNoClass(t *testing.T) {
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
