// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/config"
	"github.com/qos-nri/qos-nri-plugin/pkg/blockio"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt"
	"github.com/qos-nri/qos-nri-plugin/test/foreign"
)

const naming = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/rdt
  rdt: {configFile: /etc/containers/rdt.yaml}
- name: k8s.io/blockio
  blockio: {configFile: /etc/containers/blockio.yaml}
`

func TestConfigFilesOfTheRuntimeAreReadBelowTheHostRoot(t *testing.T) {
	rdtFiles, err := foreign.RDT()
	must(t, err)

	blockioFile, err := foreign.BlockIO()
	must(t, err)

	host := directory(t, map[string]string{
		"etc/containers/rdt.yaml":     string(rdtFiles["cmd/rdt/sample-conf.yaml"]),
		"etc/containers/blockio.yaml": string(blockioFile),
	})

	dir := directory(t, map[string]string{"a.yaml": naming})
	kinds := []classes.Kind{rdt.Kind(rdt.Options{}), blockio.Kind(ioapply.New(ioapply.Options{}))}
	source := config.Read(dir, kinds, config.HostFiles(host))
	must(t, source.Err)

	got := map[string][]string{}
	for _, resource := range source.Config.Resources {
		got[resource.Name] = resource.Backend.ClassNames()
	}

	want := map[string][]string{
		"k8s.io/rdt":     {"Besteffort", "Burstable", "Guaranteed"},
		"k8s.io/blockio": {"HighPrioFullSpeed", "LowPrioThrottled"},
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("classes (-want +got):\n%s", diff)
	}

	// Files has only the class files, not the files that they name.
	if diff := cmp.Diff([]string{filepath.Join(dir, "a.yaml")}, source.Files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestAConfigFileDoesNotLeaveTheHostRoot(t *testing.T) {
	top := directory(t, map[string]string{"secret.yaml": "password: hunter2", "host/etc/ours.yaml": ""})
	read := config.HostFiles(filepath.Join(top, "host"))
	for _, path := range []string{"/../secret.yaml", "../secret.yaml", "/etc/../../secret.yaml"} {
		if data, err := read(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %q, %v", path, data, err)
		}
	}
	if _, err := read("/../etc/ours.yaml"); err != nil {
		t.Error(err)
	}
}
