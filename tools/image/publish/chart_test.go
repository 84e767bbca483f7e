// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func TestTheChartInstallsTheImageOfTheRelease(t *testing.T) {
	registry := startRegistry(t)
	printed, err := publish(t, registry, build(t))
	if err != nil {
		t.Fatal(err)
	}

	chart := published(t, printed, "chart")
	if name := chart.Context().Name(); name != registry+"/charts/qos-nri-plugin" {
		t.Errorf("the chart is %s", name)
	}

	descriptor, err := remote.Get(chart.Context().Tag("1.2.3"))
	if err != nil {
		t.Fatal(err)
	}

	image, err := descriptor.Image()
	if err != nil {
		t.Fatal(err)
	}

	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}

	if manifest.Config.MediaType != "application/vnd.cncf.helm.config.v1+json" || len(manifest.Layers) != 1 ||
		manifest.Layers[0].MediaType != "application/vnd.cncf.helm.chart.content.v1.tar+gzip" {
		t.Fatalf("the manifest is %+v", manifest)
	}

	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}

	content, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	files := unpack(t, content)
	for file, want := range map[string]string{
		"Chart.yaml":                                          "\nversion: 1.2.3\nappVersion: v1.2.3\n",
		"values.yaml":                                         "\n  repository: " + registry + "/qos-nri-plugin\n",
		"files/kubernetes/daemonset.yaml":                     "kind: DaemonSet",
		"templates/plugin.yaml":                               "{{",
		"files/uninstall/kustomization.yaml":                  "kind: Kustomization",
		"files/monitoring/rules.yaml":                         "alert:",
		"files/kubernetes-metrics/proxy.yaml":                 "kind: DaemonSet",
		"files/kubernetes-eviction/rbac.yaml":                 "kind: ClusterRole",
		"files/scheduler/profiles.yaml":                       "profiles:",
		"files/policies-environments/bound-environments.yaml": "kind:",
	} {
		if !strings.Contains(files["qos-nri-plugin/"+file], want) {
			t.Errorf("%s does not have %q", file, want)
		}
	}

	if digest := "\n  digest: " + published(t, printed, "image").DigestStr() + "\n"; !strings.Contains(files["qos-nri-plugin/values.yaml"], digest) {
		t.Errorf("values.yaml does not have %q", digest)
	}
}

// unpack returns the files of a compressed archive.
func unpack(t *testing.T, content io.Reader) map[string]string {
	t.Helper()
	uncompressed, err := gzip.NewReader(content)
	if err != nil {
		t.Fatal(err)
	}

	files := map[string]string{}
	for reader := tar.NewReader(uncompressed); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(data)
	}
}
