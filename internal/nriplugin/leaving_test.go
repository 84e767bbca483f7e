// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
)

// TestAPluginThatDisconnectsRefusesContainersWhoseVolumesHaveClasses uses containers whose creation needs no
// adjustment, because the plugin itself sets the limits of volumes at the start.
func TestAPluginThatDisconnectsRefusesContainersWhoseVolumesHaveClasses(t *testing.T) {
	const resource = "test.example/volume"
	kinds := []classes.Kind{nodetest.Kind("test", []classes.Scope{classes.VolumeScope}, map[string]*nodetest.Backend{resource: nodetest.NewBackend()})}
	config, err := classes.Parse([]classes.File{{Name: "a.yaml", Data: []byte("apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\n" +
		"resources: [{name: " + resource + ", scope: volume, test: {names: [gold]}}]\n")}}, kinds, nil)
	if err != nil {
		t.Fatal(err)
	}

	log := slog.New(slog.DiscardHandler)
	n := node.New(node.Options{Kinds: kinds, Log: log})
	if err := n.Configure(t.Context(), classes.FileSet{Config: config}); err != nil {
		t.Fatal(err)
	}

	s := newSession(New(n, Options{Log: log}))
	s.startLeaving(errLeaving)

	for request, want := range map[string]error{"/data=gold": errLeaving, "": nil} {
		p := &api.PodSandbox{Id: "s", Uid: "u", Annotations: map[string]string{classes.VolumeKeyPrefix + "main": request}}
		_, _, err := s.CreateContainer(t.Context(), p, &api.Container{Id: "c", Name: "main", PodSandboxId: "s"})
		if !errors.Is(err, want) || nodetest.InUse(n.Status(), resource, "gold") != 0 {
			t.Errorf("request %q: the error is %v, and %d slots are in use", request, err, nodetest.InUse(n.Status(), resource, "gold"))
		}
	}
}
