// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
	"github.com/qos-nri/qos-nri-plugin/test/foreign"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

const byFile = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/rdt
  rdt: {configFile: /etc/rdt.yaml}
`

// parseFile parses a class file whose field configFile names another file, and returns its resource. The other file has
// the content `text`.
func parseFile(t *testing.T, fs resctrl.FS, text []byte) classes.ResourceConfig {
	t.Helper()
	config, err := classes.Parse([]classes.File{{Name: "a.yaml", Data: []byte(byFile)}}, []classes.Kind{Kind(Options{FS: fs})},
		func(string) ([]byte, error) { return text, nil })
	if err != nil {
		t.Fatal(err)
	}
	return config.Resources[0]
}

// TestFilesOfContainerdAndCRIOAreAcceptedUnchanged uses the examples of goresctrl. containerd and CRI-O read files in its format.
func TestFilesOfContainerdAndCRIOAreAcceptedUnchanged(t *testing.T) {
	files, err := foreign.RDT()
	must(t, err)
	want := map[string][]string{
		"cmd/rdt/sample-conf.yaml": {"Besteffort", "Burstable", "Guaranteed"},
		"doc/rdt.md":               {"besteffort", "burstable", "guaranteed"},
	}

	if len(files) != len(want) {
		t.Errorf("there are %d files, want %d", len(files), len(want))
	}
	for name, text := range files {
		t.Run(name, func(t *testing.T) {
			resource := parseFile(t, nil, text)
			var offered []string
			for _, class := range resource.Classes {
				offered = append(offered, class.Name)
			}

			slices.Sort(offered)
			if diff := cmp.Diff(want[name], offered); diff != "" {
				t.Errorf("classes (-want +got):\n%s", diff)
			}

			taken := 0
			for machine, spec := range machines() {
				if t.Run(machine, func(t *testing.T) { taken += takenUnchanged(t, spec, text) }); t.Failed() {
					return
				}
			}

			if taken == 0 {
				t.Error("Resolve accepts the file on none of the machines")
			}
		})
	}
}

// takenUnchanged checks that Resolve and goresctrl resolve a file alike. If Resolve accepts the file on this machine,
// takenUnchanged applies the file and returns 1. Otherwise it returns 0.
func takenUnchanged(t *testing.T, spec sim.Spec, text []byte) int {
	if !sameAsGoresctrl(t, fakeTree(t, spec), spec, string(text)) {
		return 0
	}

	fs := sim.New(spec)
	resource := parseFile(t, fs, text)
	if err := newBackend(fs, nil).Apply(t.Context(), resource.Backend); err != nil {
		t.Error(err)
	}

	for _, class := range resource.Classes {
		if schemataIn(t, fs)[groups.Of(class.Name)] == "" {
			t.Errorf("class %s has no group", class.Name)
		}
	}

	return 1
}
