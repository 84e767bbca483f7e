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
		resource("qos.noderesource.dev/qos-foo", classes.ContainerScope, "low-prio", "normal-prioa", "high-prio"),
		resource("vendor.example/xyz-qos", classes.ContainerScope, "low-prio", "normal", "high-prio", "high"),
	}})
}

// testDriver is the driver of claims whose StorageClass is not in the text.
const testDriver = "topolvm.io"

func convertFile(name string, text []byte, known convert.Known) (convert.Result, error) {
	results, err := convert.Convert([]convert.Input{{Name: name, Text: text}}, convert.Options{Known: known, Driver: testDriver})
	if err != nil {
		return convert.Result{}, err
	}
	return results[0], nil
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
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
			result, err := convertFile(name, read(t, name), known())
			if err != nil {
				t.Fatal(err)
			}
			golden := strings.Replace(name, ".in.", ".out.", 1)
			if *update {
				if err := os.WriteFile(golden, result.Text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(read(t, golden)), string(result.Text)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", golden, diff)
			}
			again, err := convertFile(name, result.Text, known())
			if err != nil || !bytes.Equal(again.Text, result.Text) {
				t.Errorf("a second conversion changes the result: %v\n%s", err, cmp.Diff(string(result.Text), string(again.Text)))
			}
		})
	}
}
