// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"bytes"
	"log/slog"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// root is the checkout.
const root = "../.."

// namespace is the namespace in the manifests.
const namespace = "qos-system"

// objects are manifests by kind and name. The names of Helm's hooks begin with the event, as "pre-delete hook: Job qos-reset".
type objects map[string]*unstructured.Unstructured

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (o objects) add(t *testing.T, manifest []byte) {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(manifest, &object.Object); err != nil {
		t.Fatalf("%v:\n%s", err, manifest)
	}

	if object.Object == nil {
		return
	}

	name := object.GetKind() + " " + object.GetName()
	if hook := object.GetAnnotations()["helm.sh/hook"]; hook != "" {
		name = hook + " hook: " + name // it can replace an object of the release
	}

	if o[name] != nil {
		t.Errorf("the manifests have %s twice", name)
	}

	o[name] = object
}

// loadChart reads the chart, once.
var loadChart = sync.OnceValues(func() (*chartv2.Chart, error) {
	slog.SetLogLoggerLevel(slog.LevelWarn) // Helm logs each symbolic link
	return loader.LoadDir(filepath.Join(root, "deploy/chart"))
})

// helmTemplate renders the chart into files, like "helm template" with a file of values.
func helmTemplate(t *testing.T, inNamespace, values string) (map[string]string, error) {
	t.Helper()
	given := map[string]any{}
	must(t, yaml.Unmarshal([]byte(values), &given))

	loaded, err := loadChart()
	must(t, err)

	release := common.ReleaseOptions{Name: "qos", Namespace: inNamespace, IsInstall: true}
	all, err := util.ToRenderValues(loaded, given, release, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}

	return engine.Render(loaded, all)
}

// wantRefusal checks that the chart refuses values with a text.
func wantRefusal(t *testing.T, values, text string) {
	t.Helper()
	if _, err := helmTemplate(t, namespace, values); err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: the error is %v, want %s", values, err, text)
	}
}

// chartObjects returns the objects that the chart installs with values, without the objects of "helm test".
func chartObjects(t *testing.T, inNamespace, values string) objects {
	t.Helper()
	files, err := helmTemplate(t, inNamespace, values)
	must(t, err)

	found := objects{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, "NOTES.txt") || strings.Contains(name, "/tests/") {
			continue
		}
		for manifest := range strings.SplitSeq(files[name], "\n---\n") {
			found.add(t, []byte(manifest))
		}
	}

	return found
}

// kustomized returns the objects of kustomizations.
func kustomized(t *testing.T, dirs ...string) objects {
	t.Helper()
	found := objects{}
	for _, dir := range dirs {
		resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, "deploy", dir))
		must(t, err)
		for _, resource := range resources.Resources() {
			data, err := resource.AsYAML()
			must(t, err)
			found.add(t, data)
		}
	}

	return found
}

// asTheChart changes the objects of Kustomize where the chart differs on purpose. It removes the namespace, because Helm creates it. It
// adds the label of the node pool to the DaemonSets, and the annotation that makes Helm keep the CRDs.
func (o objects) asTheChart() objects {
	delete(o, "Namespace qos-system")
	for _, name := range []string{"DaemonSet qos-nri-plugin", "DaemonSet qos-dra-driver"} {
		if daemons := o[name]; daemons != nil {
			for _, path := range []string{"metadata.labels", "spec.selector.matchLabels", "spec.template.metadata.labels"} {
				fields := append(strings.Split(path, "."), "qos.noderesource.dev/nodes")
				_ = unstructured.SetNestedField(daemons.Object, "default", fields...)
			}
		}
	}

	for _, object := range o {
		if object.GetKind() == "CustomResourceDefinition" {
			annotations := map[string]string{"helm.sh/resource-policy": "keep"}
			maps.Copy(annotations, object.GetAnnotations())
			object.SetAnnotations(annotations)
		}
	}

	return o
}

// text returns the objects as YAML, in the order of their kinds and names.
func (o objects) text(t *testing.T) string {
	t.Helper()
	var text bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(o)) {
		data, err := yaml.Marshal(o[name].Object)
		must(t, err)
		text.WriteString("# " + name + "\n" + string(data) + "---\n")
	}
	return text.String()
}

// sameText ignores empty lines, because kustomize adds some when it writes a text over several lines.
var sameText = cmp.Comparer(func(a, b string) bool {
	empty := regexp.MustCompile(`\n+`)
	return a == b || empty.ReplaceAllString(a, "\n") == empty.ReplaceAllString(b, "\n")
})

// TestTheChartInstallsWhatKustomizeInstalls compares the chart with the kustomizations that have the same effect as the
// values.
func TestTheChartInstallsWhatKustomizeInstalls(t *testing.T) {
	for values, dirs := range map[string][]string{
		"":                                      {"kubernetes"},
		"{dra: true}":                           {"kubernetes-dra"},
		"{evictions: true}":                     {"kubernetes", "kubernetes-eviction"},
		"{followAnnotations: true}":             {"kubernetes-follow-annotations"},
		"{storage: {enabled: true}}":            {"storage"},
		"{statefulSetVolumes: {enabled: true}}": {"kubernetes", "storage-statefulsets"},
		"{statefulSetVolumes: {enabled: true, changedTemplates: true}}":                       {"kubernetes", "storage-statefulsets", "storage-statefulsets-policy"},
		"{storage: {enabled: true}, storageDefaults: {enabled: true}}":                        {"storage", "storage-defaults"},
		"{storage: {enabled: true}, storageDefaults: {enabled: true, requestPolicies: true}}": {"storage", "storage-defaults", "storage-requests-policy"},
		"{metricsProxy: {enabled: true}}":                                                     {"kubernetes", "kubernetes-metrics"},
		"{nodeReadiness: {enabled: true}}":                                                    {"kubernetes-node-readiness"},
		"{policies: {enabled: true}}":                                                         {"kubernetes", "policies"},
		"{policies: {enabled: true, namespaces: labelled}}":                                   {"kubernetes", "policies-opt-in"},
		"{policies: {boundEnvironments: true}}":                                               {"kubernetes", "policies-environments"},
	} {
		t.Run(values, func(t *testing.T) {
			want, got := kustomized(t, dirs...).asTheChart(), chartObjects(t, namespace, values)
			if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
				t.Errorf("objects (-kustomize +chart):\n%s", diff)
			}
			for name, object := range want {
				if got[name] == nil {
					continue
				}
				if diff := cmp.Diff(object.Object, got[name].Object, sameText); diff != "" {
					t.Errorf("%s (-kustomize +chart):\n%s", name, diff)
				}
			}
		})
	}
}

// TestTheChartIsInstalledIntoAnyNamespace checks that the namespace of the release replaces the default one everywhere:
// in the objects, in the subjects of bindings, and in the namespaces that the policies leave out.
func TestTheChartIsInstalledIntoAnyNamespace(t *testing.T) {
	const all = "{dra: true, evictions: true, storage: {enabled: true}, statefulSetVolumes: {enabled: true}, storageDefaults: {enabled: true}, metricsProxy: {enabled: true}, nodeReadiness: {enabled: true}, policies: {enabled: true}, podMonitor: {enabled: true}, dashboard: {enabled: true}}"
	usual, other := chartObjects(t, namespace, all).text(t), chartObjects(t, "elsewhere", all).text(t)
	if diff := cmp.Diff(strings.ReplaceAll(usual, namespace, "elsewhere"), other); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestHelmTestAsksThePluginWithoutRights: the pod of "helm test" reads the status from the read-only socket, and has no
// token.
func TestHelmTestAsksThePluginWithoutRights(t *testing.T) {
	files, err := helmTemplate(t, namespace, "")
	must(t, err)

	pod := objects{}
	pod.add(t, []byte(files["qos-nri-plugin/templates/tests/status.yaml"]))
	spec, _, _ := unstructured.NestedMap(pod["test hook: Pod qos-test-status"].Object, "spec")
	if spec["automountServiceAccountToken"] != false || spec["hostPID"] != nil {
		t.Errorf("the pod has a token or the host's PID namespace: %v", spec)
	}

	publisher, _, _ := unstructured.NestedSlice(chartObjects(t, namespace, "")["DaemonSet qos-publisher"].Object, "spec", "template", "spec", "containers")
	container := spec["containers"].([]any)[0].(map[string]any)
	for _, key := range []string{"image", "imagePullPolicy"} {
		if want := publisher[0].(map[string]any)[key]; container[key] != want {
			t.Errorf("%s is %v, want %v", key, container[key], want)
		}
	}

	if !slices.Contains(container["command"].([]any), "--api-socket=/run/qos-nri-plugin/read/qos.sock") {
		t.Errorf("the command of the pod is %v", container["command"])
	}
}
