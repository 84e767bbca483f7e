// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write what the chart renders to the golden files")

// unifiedDiff returns the lines that differ between two texts, with the lines around them.
func unifiedDiff(t *testing.T, before, after string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"before": before, "after": after} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}

	// diff returns an error if the files differ.
	output, err := exec.CommandContext(t.Context(), "diff", "--unified=3", "--label=default", "--label=values", //nolint:forbidigo // ends soon
		filepath.Join(dir, "before"), filepath.Join(dir, "after")).Output()
	if len(output) == 0 {
		t.Fatalf("the values do not change the manifests (%v)", err)
	}

	// The line numbers are removed, because they change with each line that is added above.
	return regexp.MustCompile(`(?m)^@@ .* @@.*$`).ReplaceAllString(string(output), "@@")
}

// rendered returns what the chart renders with values: its objects, and the notes that Helm prints after an installation.
func rendered(t *testing.T, values string) string {
	t.Helper()
	files, err := helmTemplate(t, namespace, values)
	must(t, err)
	return chartObjects(t, namespace, values).text(t) + "# NOTES.txt\n" + files["qos-nri-plugin/templates/NOTES.txt"]
}

// TestValuesChangeWhatTheGoldenFilesShow renders the chart with each file of values and without values, and compares
// the diff of the two results with a golden file. "go test -update ." writes the golden files.
func TestValuesChangeWhatTheGoldenFilesShow(t *testing.T) {
	usual := rendered(t, "")
	files, err := filepath.Glob("testdata/values/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files with values were found: %v", err)
	}

	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			values, err := os.ReadFile(file)
			must(t, err)

			got := unifiedDiff(t, usual, rendered(t, string(values)))
			golden := strings.TrimSuffix(file, ".yaml") + ".diff"
			if *update {
				must(t, os.WriteFile(golden, []byte(got), 0o644)) //nolint:gosec // a file of the checkout
			}

			want, err := os.ReadFile(golden)
			must(t, err)

			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-golden +rendered):\n%s", diff)
			}
		})
	}
}

// readFile reads a file of deploy/.
func readFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "deploy", name))
	must(t, err)
	return data
}

func TestAlertsAndDashboardAreThoseOfDeploy(t *testing.T) {
	found := chartObjects(t, namespace, "{prometheusRule: {enabled: true, labels: {release: prometheus}}, dashboard: {enabled: true}}")
	var rules map[string]any
	must(t, yaml.Unmarshal(readFile(t, "monitoring/rules.yaml"), &rules))

	rule := found["PrometheusRule qos"]
	if diff := cmp.Diff(rules, rule.Object["spec"]); diff != "" || rule.GetLabels()["release"] != "prometheus" {
		t.Errorf("the rules have labels %v, and (-deploy +chart):\n%s", rule.GetLabels(), diff)
	}

	dashboard := found["ConfigMap qos-dashboard"]
	want := map[string]any{"qos.json": string(readFile(t, "monitoring/dashboard.json"))}
	if diff := cmp.Diff(want, dashboard.Object["data"]); diff != "" || dashboard.GetLabels()["grafana_dashboard"] != "1" {
		t.Errorf("the dashboard has labels %v, and (-deploy +chart):\n%s", dashboard.GetLabels(), diff)
	}
}

func TestNoCRDsAreInstalledIfTheValuesSaySo(t *testing.T) {
	for name := range chartObjects(t, namespace, "{crds: {install: false}, policies: {enabled: true}}") { // the policies have a CRD, too
		if strings.HasPrefix(name, "CustomResourceDefinition") {
			t.Errorf("the chart installs %s", name)
		}
	}
}

func TestTheSchemaRefusesWrongValues(t *testing.T) {
	for values, want := range map[string]string{
		"{imag: {}}":                                       "additional properties 'imag' not allowed",
		"{image: {repo: x}}":                               "at '/image': additional properties 'repo' not allowed",
		"{image: {tag: 1.0}}":                              "at '/image/tag': got number, want string",
		"{image: {digest: 'sha256:12'}}":                   "at '/image/digest': 'sha256:12' does not match pattern",
		"{plugin: {arg: []}}":                              "at '/plugin': additional properties 'arg' not allowed",
		"{shim: {resources: {limit: {}}}}":                 "at '/shim/resources': additional properties 'limit' not allowed",
		"{storage: {drivers: []}}":                         "at '/storage/drivers': minItems: got 0, want 1",
		"{storage: {drivers: ['a,b']}}":                    "at '/storage/drivers/0': 'a,b' does not match pattern",
		"{tracing: {endpoint: 'https://collector:4318'}}":  "at '/tracing/endpoint': 'https://collector:4318' does not match pattern",
		"{tracing: {endpoint: 'collector:4318'}}":          "at '/tracing/endpoint': 'collector:4318' does not match pattern",
		"{evictions: 'yes'}":                               "at '/evictions': got string, want boolean",
		"{policies: {namespaces: some}}":                   "at '/policies/namespaces': value must be one of 'all', 'labelled'",
		"{policies: {leaveOut: [nothing]}}":                "at '/policies/leaveOut/0': value must be one of",
		"{updateStrategy: {rollingUpdate: {maxSurge: 1}}}": "additional properties 'maxSurge' not allowed",
		"{classFiles: {classes.txt: x}}":                   "at '/classFiles': additional properties 'classes.txt' not allowed",
		"{pools: [{name: a, nodeLabels: {a: b}, classFiles: {classes.txt: x}}]}": "at '/pools/0/classFiles': additional properties 'classes.txt' not allowed",
		// The memory limit of the plugin is at least 64 MiB.
		"{plugin: {resources: {limits: {memory: 32Mi}}}}":                            "at '/plugin/resources/limits/memory': '32Mi' does not match pattern",
		"{plugin: {resources: {limits: {memory: 63.5Mi}}}}":                          "at '/plugin/resources/limits/memory': '63.5Mi' does not match pattern",
		"{plugin: {resources: {limits: {memory: 64Mi}, request: {}}}}":               "at '/plugin/resources': additional properties 'request' not allowed",
		"{classFiles: {a.yaml: {kind: QOSClassConfig}}}":                             "at '/classFiles/a.yaml': got object, want string",
		"{pools: [{name: a}]}":                                                       "at '/pools/0': missing properties 'nodeLabels', 'classFiles'",
		"{pools: [{name: a, nodeLabels: {}, classFiles: {a.yaml: x}}]}":              "at '/pools/0/nodeLabels': minProperties: got 0, want 1",
		"{pools: [{name: default, nodeLabels: {a: b}, classFiles: {a.yaml: x}}]}":    "at '/pools/0/name': 'not' failed",
		"{pools: [{name: a, nodeLabels: {a: 1}, classFiles: {a.yaml: x}}]}":          "at '/pools/0/nodeLabels/a': got number, want string",
		"{schedulerProfiles: {resources: [{name: qos.noderesource.dev/rdt.gold}]}}":  "at '/schedulerProfiles/resources/0': missing property 'weight'",
		"{networkPolicy: {from: {namespaceSelector: {}}}}":                           "at '/networkPolicy/from': got object, want array",
		"{metricsProxy: {image: {repository: 'registry.example/proxy@sha256:123'}}}": "does not match pattern",
		"{storage: {nodeSelector: {pool: 1}}}":                                       "at '/storage/nodeSelector/pool': got number, want string",
	} {
		wantRefusal(t, values, want)
	}
}

func TestAValueMayNeedAnother(t *testing.T) {
	for values, want := range map[string]string{
		"{serviceMonitor: {enabled: true}}":  "serviceMonitor scrapes the proxy: set metricsProxy.enabled, or use podMonitor",
		"{storageDefaults: {enabled: true}}": "storageDefaults writes classes into the claims of storage.drivers: set storage.enabled",
	} {
		wantRefusal(t, values, want)
	}
}

// TestValuesAndSchemaHaveTheSameKeys checks that values.yaml, which documents the values, has all keys of the schema.
func TestValuesAndSchemaHaveTheSameKeys(t *testing.T) {
	var values map[string]any
	var schema struct {
		Properties  map[string]any
		Definitions map[string]any
	}

	must(t, yaml.Unmarshal(readFile(t, "chart/values.yaml"), &values))

	must(t, json.Unmarshal(readFile(t, "chart/values.schema.json"), &schema))

	var compare func(path string, values map[string]any, properties map[string]any)
	compare = func(path string, values, properties map[string]any) {
		for key, property := range properties {
			value, there := values[key]
			if !there && path+key != "updateStrategy.type" { // the API server's default
				t.Errorf("values.yaml does not have %s%s", path, key)
			}
			rules := property.(map[string]any)
			if reference, ok := rules["$ref"].(string); ok {
				rules = schema.Definitions[filepath.Base(reference)].(map[string]any)
			}
			inner, isObject := rules["properties"].(map[string]any)
			if nested, ok := value.(map[string]any); ok && isObject {
				if rules["additionalProperties"] != false {
					t.Errorf("%s%s accepts unknown keys", path, key)
				}
				compare(path+key+".", nested, inner)
			}
		}

		for key := range values {
			if properties[key] == nil {
				t.Errorf("values.schema.json does not have %s%s", path, key)
			}
		}
	}

	compare("", values, schema.Properties)
}
