// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/convert"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

var update = flag.Bool("update", false, "write the golden files")

// known returns the resources and classes that the manifests in testdata request. Each resource also has
// one class that no manifest requests.
func known() convert.Known {
	resource := func(name string, scope classes.Scope, names ...string) classes.ResourceConfig {
		r := classes.Resource{Name: name, Scope: scope}
		for _, class := range names {
			r.Classes = append(r.Classes, classes.Class{Name: class})
		}
		return classes.ResourceConfig{Resource: r}
	}
	return convert.KnownFromConfig(&classes.Config{Resources: []classes.ResourceConfig{
		resource("k8s.io/rdt", classes.ContainerScope, "exclusive", "limited", "gold", "silver", "bronze"),
		resource("k8s.io/blockio", classes.ContainerScope, "high-prio", "throttled", "high", "slow"),
		resource("qos.noderesource.dev/network", classes.PodScope, "slow", "normal", "fast", "high"),
		resource("vendor.example/net", classes.PodScope, "fast"),
		resource("vendor.example/volume", classes.VolumeScope, "fast"),
		resource("qos.noderesource.dev/qos-foo", classes.ContainerScope, "low-prio", "normal-prioa", "high-prio"),
		resource("vendor.example/xyz-qos", classes.ContainerScope, "low-prio", "normal", "high-prio", "high"),
	}})
}

// testDriver is the driver of claims whose StorageClass is not in the text.
const testDriver = "topolvm.io"

// toLimits returns options with which containers request the classes of known() by extended resources.
func toLimits() convert.Options { return convert.Options{Known: known(), Driver: testDriver} }

// toClaims returns options with which containers request the classes of known() by claims.
func toClaims() convert.Options {
	return convert.Options{Known: known(), Driver: testDriver, Claims: true}
}

// tryConvert converts a text that errors name a.yaml.
func tryConvert(text string, options convert.Options) (convert.Result, error) {
	results, err := convert.Convert([]convert.Input{{Name: "a.yaml", Text: []byte(text)}}, options)
	if err != nil {
		return convert.Result{}, err
	}
	return results[0], nil
}

func mustConvert(t *testing.T, text string, options convert.Options) convert.Result {
	t.Helper()
	result, err := tryConvert(text, options)
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return result
}

// wantResult converts a text, and compares the result and the notes.
func wantResult(t *testing.T, text string, options convert.Options, want string, notes ...string) {
	t.Helper()
	result := mustConvert(t, text, options)
	if diff := cmp.Diff(want, string(result.Text)); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(notes, result.Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

// wantProblems converts a text, and compares the problems, one in each line.
func wantProblems(t *testing.T, text string, options convert.Options, want string) {
	t.Helper()
	result, err := tryConvert(text, options)
	got := ""
	if err != nil {
		got = err.Error()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s\nresult:\n%s", diff, result.Text)
	}
}

// wantGolden compares a converted manifest with a file, and checks that a second conversion changes nothing.
func wantGolden(t *testing.T, manifest, golden string, options convert.Options) {
	t.Helper()
	result := mustConvert(t, read(t, manifest), options)
	if *update {
		if err := os.WriteFile(golden, result.Text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(read(t, golden), string(result.Text)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", golden, diff)
	}
	if again := mustConvert(t, string(result.Text), options); !bytes.Equal(again.Text, result.Text) {
		t.Errorf("a second conversion changes the result:\n%s", cmp.Diff(string(result.Text), string(again.Text)))
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func manifests(t testing.TB) []string {
	t.Helper()
	names, err := filepath.Glob("testdata/*.in.*")
	if err != nil || len(names) == 0 {
		t.Fatalf("manifests: %q, %v", names, err)
	}
	return names
}

func TestManifestsAreConvertedForStockKubernetes(t *testing.T) {
	for _, name := range manifests(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			wantGolden(t, name, strings.Replace(name, ".in.", ".out.", 1), toLimits())
		})
	}
}
