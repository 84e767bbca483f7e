// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/qos-nri/qos-nri-plugin/tools/image/child"
)

func TestTheChartInstallsTheImageOfTheRelease(t *testing.T) {
	registry := startRegistry(t)
	printed := must(publish(t, registry, build(t)))(t)
	chart := published(t, printed, "chart")
	if name := chart.Context().Name(); name != registry+"/charts/qos-nri-plugin" {
		t.Errorf("the chart is %s", name)
	}

	descriptor := must(remote.Get(chart.Context().Tag("1.2.3")))(t)
	image := must(descriptor.Image())(t)
	manifest := must(image.Manifest())(t)

	if manifest.Config.MediaType != "application/vnd.cncf.helm.config.v1+json" || len(manifest.Layers) != 1 ||
		manifest.Layers[0].MediaType != "application/vnd.cncf.helm.chart.content.v1.tar+gzip" {
		t.Fatalf("the manifest is %+v", manifest)
	}

	layers := must(image.Layers())(t)
	content := must(layers[0].Compressed())(t)
	defer content.Close()
	dir := t.TempDir()
	unpack := child.Command(t, "tar", "-xz", "-C", dir)
	unpack.Stdin = content
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	for file, want := range map[string]string{
		"Chart.yaml":                                          "\nversion: 1.2.3\nappVersion: v1.2.3\n",
		"values.yaml":                                         "\n  repository: " + registry + "/qos-nri-plugin\n  tag: \"\"\n  digest: " + published(t, printed, "image").DigestStr() + "\n",
		"files/kubernetes/daemonset.yaml":                     "kind: DaemonSet",
		"templates/plugin.yaml":                               "{{",
		"files/uninstall/kustomization.yaml":                  "kind: Kustomization",
		"files/monitoring/rules.yaml":                         "alert:",
		"files/kubernetes-metrics/proxy.yaml":                 "kind: DaemonSet",
		"files/kubernetes-eviction/rbac.yaml":                 "kind: ClusterRole",
		"files/scheduler/profiles.yaml":                       "profiles:",
		"files/policies-environments/bound-environments.yaml": "kind:",
	} {
		if text, err := os.ReadFile(filepath.Join(dir, "qos-nri-plugin", file)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s does not have %q (%v)", file, want, err)
		}
	}
}
