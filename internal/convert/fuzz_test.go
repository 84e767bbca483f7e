// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

func FuzzConvert(f *testing.F) {
	for _, name := range manifests(f) {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, seed := range []string{
		"spec: {containers: [{resources: {qosResources: [{name: rdt, class: gold}]}}]}",
		"spec:\n containers:\n - name: a\n   resources: &r\n     qosResources: [{name: rdt, class: ''}]\n   ports: []\n - {name: b, resources: *r}\n",
		"? spec\n: containers:\n  - resources:\n      ? qosResources\n      : - {name: rdt, class: gold}\n",
		"\ufeff# x\n---\n- containers:\n  - resources:\n      limits: ~\n      qosResources:\n      - name: !!str rdt\n        class: >-\n          gold\n",
		"x: &x {resources: {qosResources: []}}\ncontainers: [{<<: *x}]\n",
		"apiVersion: v1\nkind: PersistentVolumeClaim\nspec: {resources: {requests: {iops: 500, storage: 1Gi}}}\n--- # y\n",
		"spec:\n volumeClaimTemplates:\n - spec: {resources: &r {requests: {throughput: 5Mi}}}\n - spec: {resources: *r}\n",
		"metadata: {annotations: {a: b}}\nspec:\n  qosResources: [{name: blockio, class: ''}]\n  containers:\n  - env: |+\n     x\n\n...\n--- # y\n",
		"volumeClaimTemplate: {spec: {resources: {requests: {throughput: 100}}}}\n--- 0:",
		"metadata: {annotations: {rdt.resources.beta.kubernetes.io/pod: gold}}\nspec: {containers: []}\n",
		"metadata: {annotations: {rdtclass.resource-policy.nri.io: gold, blockioclass.resource-policy.nri.io/container.a: slow}}\nspec: {containers: [{name: a}]}\n",
	} {
		f.Add([]byte(seed))
	}
	for seed := range uint64(20) {
		text, _ := generate(seed, (*author).pod)
		f.Add([]byte(text))
		text, _ = generate(seed, (*author).claim)
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		result, err := tryConvert(string(text), toLimits())
		if err != nil {
			return
		}
		isAsking := func(name string) bool { return bytes.Contains(text, []byte(name)) }
		if !slices.ContainsFunc([]string{"qosResources", "iops", "throughput", ".resources.kubernetes.io", ".resources.beta.kubernetes.io",
			"class.resource-policy.nri.io"}, isAsking) {
			if !bytes.Equal(text, result.Text) {
				t.Fatal("Convert changed a text that has neither the KEPs' fields nor annotations to convert")
			}
			return
		}
		if bytes.Equal(text, result.Text) {
			return
		}
		before, after := facts(t, text), facts(t, result.Text)
		ours := bytes.Contains(text, []byte("LimitRange")) || bytes.Contains(text, []byte("ResourceQuota"))
		if diff := cmp.Diff(before, after); diff != "" && !ours {
			t.Fatalf("fields other than the requests have changed (-before +after):\n%s\n%s", diff, result.Text)
		}
		again, err := tryConvert(string(result.Text), toLimits())
		if err != nil || !bytes.Equal(again.Text, result.Text) {
			t.Fatalf("a second conversion changes the result (%v):\n%s\n%s", err, result.Text, again.Text)
		}
	})
}

// facts returns one line for each scalar in the documents of a text, without the scalars that the conversion replaces
// or adds.
func facts(t *testing.T, text []byte) []string {
	t.Helper()
	// JSON has escapes that a YAML parser does not read.
	var value any
	if json.Unmarshal(text, &value) == nil {
		var err error
		if text, err = yaml.Marshal(value); err != nil {
			t.Fatal(err)
		}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var all []string
	for i := 0; ; {
		var n yaml.Node
		err := decoder.Decode(&n)
		if errors.Is(err, io.EOF) {
			slices.Sort(all)
			return all
		}
		if err != nil {
			t.Fatalf("the result is not YAML: %v\n%s", err, text)
		}
		if !isClass(n.Content[0]) {
			all = appendFacts(all, fmt.Sprintf("%d", i), "", &n)
			i++
		}
	}
}

func appendFacts(all []string, path, key string, n *yaml.Node) []string {
	switch n.Kind {
	case yaml.AliasNode:
		return appendFacts(all, path, key, n.Alias)
	case yaml.DocumentNode:
		return appendFacts(all, path, key, n.Content[0])
	case yaml.SequenceNode:
		for i, element := range slices.DeleteFunc(slices.Clone(n.Content), isClass) {
			all = appendFacts(all, fmt.Sprintf("%s[%d]", path, i), "", element)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if name := n.Content[i].Value; !isOurs(key, name, n.Content[i+1]) {
				all = appendFacts(all, path+"."+name, name, n.Content[i+1])
			}
		}
	default:
		if made := slices.Contains([]string{"limits", "resources", "metadata", "annotations"}, key); !made || n.ShortTag() != "!!null" {
			all = append(all, path+": "+n.ShortTag()+" "+n.Value)
		}
	}
	return all
}

// isClass reports whether an object is a VolumeAttributesClass or a ResourceClaimTemplate, which the conversion may add.
func isClass(object *yaml.Node) bool {
	for i := 0; object.Kind == yaml.MappingNode && i+1 < len(object.Content); i += 2 {
		if object.Content[i].Value == "kind" {
			return slices.Contains([]string{"VolumeAttributesClass", "ResourceClaimTemplate"}, object.Content[i+1].Value)
		}
	}
	return false
}

// isOurs reports whether the conversion replaces or adds a field.
func isOurs(parent, key string, value *yaml.Node) bool {
	switch parent {
	case "limits":
		return strings.Contains(key, "/") && value.Value == "1"
	case "requests":
		return key == "iops" || key == "throughput"
	case "annotations":
		return strings.Contains(key, "qos.noderesource.dev/") || strings.Contains(key, "kubernetes.io/") ||
			strings.Contains(key, "class.resource-policy.nri.io")
	}
	return slices.Contains([]string{"qosResources", "volumeAttributesClassName", "resourceClaims", "claims"}, key)
}
