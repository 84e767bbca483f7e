// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin

import (
	"errors"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
)

// TestAPluginThatDisconnectsRefusesContainersWhoseVolumesHaveClasses uses containers whose creation needs no
// adjustment, because the plugin itself sets the limits of volumes at the start.
func TestAPluginThatDisconnectsRefusesContainersWhoseVolumesHaveClasses(t *testing.T) {
	const resource = "test.example/volume"
	s, n := sessionOf(t, "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\n"+
		"resources: [{name: "+resource+", scope: volume, test: {names: [gold]}}]\n")
	s.startLeaving(errLeaving)

	for request, want := range map[string]error{"/data=gold": errLeaving, "": nil} {
		p := &api.PodSandbox{Id: "s", Uid: "u", Annotations: map[string]string{classes.VolumeKeyPrefix + "main": request}}
		_, _, err := s.CreateContainer(t.Context(), p, &api.Container{Id: "c", Name: "main", PodSandboxId: "s"})
		if !errors.Is(err, want) || nodetest.InUse(n.Status(), resource, "gold") != 0 {
			t.Errorf("request %q: the error is %v, and %d slots are in use", request, err, nodetest.InUse(n.Status(), resource, "gold"))
		}
	}
}
